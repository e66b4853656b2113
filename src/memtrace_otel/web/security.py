"""What every request to the pages has to pass, and the headers of every response."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memtrace_otel.hosts import is_own_name

COOKIE = "memtrace_annotator"
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with no-referrer a browser hides the origin of our own forms
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_OPEN = ("/login", "/static/")
"""Paths that need no token. The path of the scope is compared: that of `request.url` begins with the host header."""
BODY_BYTES = 1 << 19
"""Most bytes of a form: two full texts in Chinese, nine bytes a character."""


class AnnotatorsError(ValueError):
    """A file of annotators that cannot be used."""


def read_annotators(path: Path) -> dict[str, str]:
    """Return token -> name of a file with one `name token` a line. Raises AnnotatorsError, OSError."""
    found: dict[str, str] = {}
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        name, _, token = line.strip().rpartition(" ")
        if line.strip() and (len(token) < 16 or not name.strip() or token in found):
            raise AnnotatorsError(
                f"{path}, line {number}: a name and an own token of at least 16 characters are needed"
            )
        if line.strip():
            found[token] = name.strip()
    if not found:
        raise AnnotatorsError(f"{path}: no annotator")
    return found


class Guard:
    """Refuses foreign hosts, posts of other sites, and, with `annotators` (token -> name), strangers."""

    def __init__(self, app: ASGIApp, annotators: Mapping[str, str]) -> None:
        self._app = app
        self._annotators = annotators

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        request = Request(scope)
        refusal = self._refusal(request)
        await (refusal or self._app)(scope, receive, with_headers)

    def _refusal(self, request: Request) -> PlainTextResponse | RedirectResponse | None:
        host = request.headers.get("host", "")
        if not self._annotators and not is_own_name(host):
            return PlainTextResponse("not by this name\n", 403)
        if request.method not in ("GET", "HEAD"):
            if not is_same_site(request.headers, host):
                return PlainTextResponse("a form of another site\n", 403)
            length = request.headers.get("content-length", "")
            if not length.isdecimal() or int(length) > BODY_BYTES:
                return PlainTextResponse("the form is too large\n", 413)
        if (
            self._annotators
            and not request.scope["path"].startswith(_OPEN)
            and not annotator_of(request, self._annotators)
        ):
            return RedirectResponse("/login", 303)
        return None


def is_same_site(headers: Mapping[str, str], host: str) -> bool:
    """Tell whether a form was sent by a page of this host. A request that does not say is refused."""
    site = headers.get("sec-fetch-site")
    origin = headers.get("origin", "")
    if site not in (None, "same-origin"):
        return False
    return urlsplit(origin).netloc == host if origin else site == "same-origin"


def annotator_of(request: Request, annotators: Mapping[str, str]) -> str:
    """Return the name of the annotator, '' when unknown: by token where tokens are needed, else as given."""
    given = unquote(request.cookies.get(COOKIE, ""))
    if not annotators:
        return given if given.isprintable() else ""
    known = (name for token, name in annotators.items() if hmac.compare_digest(token.encode(), given.encode()))
    return next(known, "")


def cookie_value(given: str) -> str:
    """Return a name or token as a cookie can hold it."""
    return quote(given, safe="")
