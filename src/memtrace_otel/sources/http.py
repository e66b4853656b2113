"""HTTP client for the query API of a tracing backend: retries, limits of time and size, no secret in an error.

httpx is imported when the first request is made: a program that only records spans does not load it.
"""

from __future__ import annotations

import json
import math
import random
import ssl
import threading
import time
from collections.abc import Generator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING, Final, Self, cast
from urllib.parse import urlencode

from memtrace_otel import settings
from memtrace_otel.model.printable import one_line
from memtrace_otel.sources.errors import SourceError
from memtrace_otel.version import __version__

if TYPE_CHECKING:
    import httpx

_REFUSED: Final = frozenset({400, 413, 414, 422, 431})
_FAILED: Final = frozenset({500, 502, 503, 504})
_UNREACHABLE, _BROKEN = 0, -1
"""In place of a status: no connection, and a connection that ended before the reply did."""
_RETRIED: Final = _FAILED | {429, _UNREACHABLE, _BROKEN}
_TRIES: Final = 5
_FIRST_PAUSE: Final = 0.2
"""Seconds before the second try; each further pause is twice as long."""
_LONGEST_PAUSE: Final = 10.0
_REPLY_BYTES: Final = 64 << 20
_SHOWN: Final = 300
"""Characters of a reply in an error."""


class ReplyError(Exception):
    """This request has no usable reply; another request may have one. `status` is the HTTP status, <= 0 without one."""

    def __init__(self, reason: str, status: int = 0) -> None:
        super().__init__(reason)
        self.status = status


class LimitError(Exception):
    """A bound of the session is reached."""


class Budget:
    """What a session may still read. Shared by threads. Without arguments nothing is bounded."""

    def __init__(self, requests: float = math.inf, seconds: float = math.inf, spans: float = math.inf) -> None:
        self._bounds = (requests, seconds, spans)
        self._requests, self._spans, self._end = requests, spans, time.monotonic() + seconds
        self._lock = threading.Lock()

    def take_request(self) -> None:
        """Count a request. Raises LimitError past the bound of requests or of time."""
        requests, seconds, _ = self._bounds
        with self._lock:
            if self._requests <= 0:
                raise LimitError(f"the bound of {requests} requests is reached ({settings.SOURCE_REQUESTS.env})")
            if time.monotonic() > self._end:
                raise LimitError(f"the bound of {seconds:g} seconds is reached")
            self._requests -= 1

    def take_spans(self, spans: int) -> None:
        """Count spans that were read. Raises LimitError past the bound."""
        with self._lock:
            self._spans -= spans
            if self._spans < 0:
                raise LimitError(f"the bound of {self._bounds[2]} spans is reached")


class BackendApi:
    """The HTTP API at `url`. May be shared by threads; connections stay open between requests.

    `headers` go with every request and never into an error. Redirects are not followed: they would take the headers to
    another host. `timeout` (seconds) bounds each request as a whole.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
        tries: int = _TRIES,
        reply_bytes: int = _REPLY_BYTES,
    ) -> None:
        self.url = url.rstrip("/")
        self.budget = Budget()
        self.timeout = settings.SOURCE_TIMEOUT.read() if timeout is None else timeout
        self._tries = tries
        self._reply_bytes = reply_bytes
        self._headers = {
            "user-agent": f"memtrace-otel/{__version__}",
            "accept": "application/json",
            "accept-encoding": "identity",  # the limit of size is one of bytes received
            **(headers or {}),
        }
        values = {part for value in (headers or {}).values() for part in (value, *value.split()[1:])} - {""}
        self._secrets = sorted(values, key=len, reverse=True)  # a backend may repeat a token without `Bearer`
        self._clients: list[httpx.Client] = []
        self._lock = threading.Lock()

    def __str__(self) -> str:
        return self.url

    def within(self, budget: Budget) -> Self:
        """Return the same API, same connections, whose requests count against `budget`."""
        bounded = copy(self)
        bounded.budget = budget
        return bounded

    def close(self) -> None:
        """Close the connections; the next request opens a new one."""
        with self._lock:
            while self._clients:
                self._clients.pop().close()

    def get(
        self, path: str, query: Mapping[str, str | int] | None = None, *, may_miss: bool = False, may_fail: bool = False
    ) -> bytes:
        """Return the body of the reply; b'' for HTTP 404 when the thing `may_miss`.

        A busy backend (HTTP 429 and 5xx, a broken connection) is asked again; after HTTP 500 not when it `may_fail`.
        Raises ReplyError when this request has no usable reply, SourceError when the backend cannot be reached or
        answers nobody, LimitError past the budget.
        """
        target = self.url + path + (f"?{urlencode(query)}" if query else "")
        status, reason, pause = 0, "", 0.0
        for attempt in range(self._tries):
            if attempt:
                time.sleep(pause)
            self.budget.take_request()
            status, body, retry_after = self._ask(target)
            if status == 200:
                return body
            if status == 404 and may_miss:
                return b""
            reason = f"{path}: {f'HTTP {status} ' if status > 0 else ''}{self._shown(body)}".strip()
            if status not in _RETRIED or (may_fail and status == 500):
                break
            pause = _FIRST_PAUSE * 2**attempt * (1 + random.random()) if retry_after is None else retry_after
            pause = min(pause, _LONGEST_PAUSE)
        else:
            reason += f" ({self._tries} tries)"
        if status in _REFUSED | _FAILED | {_BROKEN}:
            raise ReplyError(reason, status)
        if status in (401, 403):
            reason += f" ({settings.SOURCE_TOKEN.env} or {settings.SOURCE_HEADERS.env} authenticate)"
        elif status == 404:
            reason += " (is this the port of the HTTP API, and the path of a proxy in front of it?)"
        raise SourceError(str(self), reason)

    def get_json(
        self, path: str, query: Mapping[str, str | int] | None = None, *, may_miss: bool = False, may_fail: bool = False
    ) -> dict[str, object]:
        """Return the JSON object of the reply, {} for a thing that is missing; see `get`."""
        body = self.get(path, query, may_miss=may_miss, may_fail=may_fail)
        try:
            document = cast("object", json.loads(body or b"{}"))
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise ReplyError(f"{path}: the reply is no JSON object; is this the port of the HTTP API?")
        return cast("dict[str, object]", document)

    def _ask(self, target: str) -> tuple[int, bytes, float | None]:
        """Return status, body and the seconds of Retry-After; _UNREACHABLE or _BROKEN and the reason without a reply.

        The request runs in a thread of its own: neither a name server nor a backend that sends a byte now and then
        can hold the caller longer than `timeout`.
        """
        reply: Future[tuple[int, bytes, float | None]] = Future()
        threading.Thread(target=self._answer, args=(target, reply), daemon=True).start()
        try:
            return reply.result(self.timeout)
        except TimeoutError:
            raise ReplyError(f"no whole reply within {self.timeout:g} s") from None

    def _answer(self, target: str, reply: Future[tuple[int, bytes, float | None]]) -> None:
        import httpx

        end, body = time.monotonic() + self.timeout, bytearray()
        try:
            with self._stream(target) as response:
                for chunk in response.iter_raw():
                    body += chunk
                    if len(body) > self._reply_bytes:
                        raise ReplyError(f"the reply has more than {self._reply_bytes} bytes")
                    if time.monotonic() > end:  # nobody waits any more
                        raise ReplyError("late")
                told = response.headers.get("retry-after", "")
            reply.set_result((response.status_code, bytes(body), float(told) if told.isdecimal() else None))
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            status = _UNREACHABLE if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout) else _BROKEN
            reply.set_result((status, (str(error) or type(error).__name__).encode(), None))
        except BaseException as error:
            reply.set_exception(error)

    @contextmanager
    def _stream(self, target: str) -> Generator[httpx.Response]:
        import httpx

        with self._lock:
            if not self._clients:
                verify = ssl.create_default_context() if target.startswith("https:") else False
                self._clients.append(httpx.Client(verify=verify, timeout=self.timeout, trust_env=False))
            client = self._clients[0]
        with client.stream("GET", target, headers=self._headers) as response:
            yield response

    def _shown(self, body: bytes) -> str:
        """The beginning of a reply, in one line and without secrets."""
        text = body.decode("utf-8", "replace")
        for secret in self._secrets:  # before the text is cut: a part of a secret would stay
            text = text.replace(secret, "***")
        return one_line(text[: 4 * _SHOWN], _SHOWN)


def values(document: Mapping[str, object], name: str) -> list[object]:
    """Return an array of a reply, [] where there is none."""
    value = document.get(name)
    return cast("list[object]", value) if isinstance(value, list) else []


def objects(document: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
    """Return the objects of an array of a reply."""
    return [cast("Mapping[str, object]", item) for item in values(document, name) if isinstance(item, dict)]


def trace_id(found: Mapping[str, object]) -> str:
    """Return the trace id of a search result; backends leave out leading zeros."""
    return str(found.get("traceID", "")).zfill(32)


def span_id(found: Mapping[str, object]) -> str:
    """Return the span id of a search result."""
    return str(found.get("spanID", "")).zfill(16)
