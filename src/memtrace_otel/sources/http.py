"""GET requests to the API of a tracing backend: bounded, patient with a server that is busy, silent about secrets."""

from __future__ import annotations

import json
import random
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import Final, cast
from urllib.parse import urlencode

from memtrace_otel import settings
from memtrace_otel.sources.errors import SourceLimitError, StoreError
from memtrace_otel.version import __version__

INTERNAL_ERROR: Final = 500
_FAILED: Final = frozenset({INTERNAL_ERROR, 502, 503, 504})
_REFUSED: Final = frozenset({400, 413, 414, 422, 431})
_BUSY: Final = _FAILED | {429}
NOT_THERE: Final = " (is this the port of the HTTP API, and the path of a proxy in front of it?)"
_REMEMBERED: Final = 10_000
_LONGEST_WAIT = 10.0
_SHOWN = 300


class UnreachableError(StoreError):
    """The backend does not answer, or not to us."""


class FailedError(UnreachableError):
    """The backend answers that it fails (HTTP 500, 502, 503, 504, in `status`), or breaks off (0): at this request, or
    at any."""

    def __init__(self, path: str, reason: str, status: int = 0) -> None:
        super().__init__(path, reason)
        self.status = status


class RefusedError(StoreError):
    """The backend does not answer such a request (HTTP 400, 413, 414, 422, 431): it says why in `reason`."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What reading may cost: per failing trace `requests` and `bytes`, per reply `reply_bytes`, and `seconds` in which
    nothing of it comes; how often a request is tried."""

    requests: int = 2000
    bytes: int = 256 << 20
    reply_bytes: int = 64 << 20
    seconds: float = 30.0
    tries: int = 5


@dataclass(frozen=True, slots=True)
class Address:
    """Where an API is. `path` is what its own paths come after, without a slash at its end."""

    secure: bool
    host: str
    port: int
    path: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}{self.path}"


@dataclass(slots=True)
class Spent:
    """What reading has cost so far."""

    requests: int = 0
    bytes: int = 0
    retries: int = 0


class BackendApi:
    """An API over HTTP; may be shared by threads. Connections stay open between requests.

    `headers` go with every request and never into a message. Redirects are not followed: they would take the headers
    elsewhere.
    """

    def __init__(
        self,
        address: Address,
        headers: Mapping[str, str] | None = None,
        bounds: Bounds | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.address = address
        self.bounds = bounds or Bounds()
        self.spent = Spent()
        self.advice = ""
        """Said where more requests are needed than are allowed: what would need fewer."""
        self._seconds = self.bounds.seconds
        self._allowed = Spent(self.bounds.requests, self.bounds.bytes)
        self._headers = {"user-agent": f"memtrace-otel/{__version__}", **(headers or {})}
        values = {part for value in (headers or {}).values() for part in (value, *value.split()[1:])} - {""}
        self._secrets = sorted(values, key=len, reverse=True)  # a backend may repeat a token without `Bearer`
        self._tls = tls
        self._idle: list[HTTPConnection] = []
        self._failed: set[str] = set()
        """What it failed at, all tries long: the next time that is tried once."""
        self._lock = threading.Lock()

    def __str__(self) -> str:
        return str(self.address)

    def allow(self, cases: int) -> None:
        """Allow, from now on, what reading for so many failing traces may cost."""
        with self._lock:
            self._allowed.requests = self.spent.requests + cases * self.bounds.requests
            self._allowed.bytes = self.spent.bytes + cases * self.bounds.bytes

    def allow_at_least(self, cases: int) -> None:
        """Allow no less than that, and no less than is allowed already."""
        with self._lock:
            before = self._allowed
            self._allowed = Spent(
                max(before.requests, self.spent.requests + cases * self.bounds.requests),
                max(before.bytes, self.spent.bytes + cases * self.bounds.bytes),
            )

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left of what was allowed."""
        spent, allowed = self.spent, self._allowed
        return spent.requests >= allowed.requests or spent.bytes >= allowed.bytes

    def hurry(self, seconds: float) -> None:
        """From now on try each request once, for so many seconds or what the bounds say, whichever is shorter."""
        self.bounds = replace(self.bounds, tries=1, seconds=min(seconds, self._seconds))
        self.close()  # those that are open wait longer

    def get(
        self,
        path: str,
        query: Mapping[str, str | int] | None = None,
        accept: str = "application/json",
        *,
        may_miss: bool = False,
        may_fail: bool = False,
    ) -> bytes:
        """Return the body of a reply; b'' of one that says that there is no such thing (404), when that `may_miss`: a
        search has an answer, else the address is another one. What the backend fails at itself (500) is tried once when
        that `may_fail`: there is another way.

        Raises SourceLimitError past the bounds, RefusedError when the backend takes no such request, FailedError when
        it fails at it, StoreError when it cannot be reached or does not answer.
        """
        target = f"{self.address.path}{path}" + (f"?{urlencode(query)}" if query else "")
        problem, status, cut = "", 0, False
        tries = 1 if target in self._failed else self.bounds.tries
        for attempt in range(tries):
            if attempt:
                self.spent.retries += 1
            self._count_request()
            try:
                status, body, wait = self._ask(target, accept)
            except (OSError, HTTPException) as error:
                problem, status, wait = f"{_said(error)}", 0, None
                cut = isinstance(error, IncompleteRead)
            else:
                cut = False
                if status not in _BUSY:
                    self._failed.discard(target)
                if status == 200:
                    return body
                if status == 404 and may_miss:
                    return b""
                problem = f"HTTP {status} {self._shown(body)}".strip()
                if status not in _BUSY:
                    self._refuse(path, status, problem)
                if status == INTERNAL_ERROR and may_fail:
                    tries = attempt + 1
                    break
            if attempt + 1 < tries:
                time.sleep(min(_LONGEST_WAIT, wait if wait is not None else 0.2 * 2**attempt * (1 + random.random())))
        reason = f"{path}: {problem} ({tries} tries)"
        if status not in _FAILED and not cut:
            raise UnreachableError(str(self), reason)
        if len(self._failed) >= _REMEMBERED:
            self._failed.clear()
        self._failed.add(target)
        raise FailedError(str(self), reason, status)

    def get_json(
        self,
        path: str,
        query: Mapping[str, str | int] | None = None,
        *,
        may_miss: bool = False,
        may_fail: bool = False,
    ) -> dict[str, object]:
        """Return the JSON object that a reply is, an empty one where there is no such thing; see `get`."""
        body = self.get(path, query, may_miss=may_miss, may_fail=may_fail)
        try:
            document = cast("object", json.loads(body or b"{}"))
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            reason = f"{path}: the reply is no JSON object; is this the port of the HTTP API?"
            if not may_miss:
                raise StoreError(str(self), reason)
            # what may not be there may be left out, too; a proxy may have said so, for now
            raise SourceLimitError(str(self), reason, is_reply=True, may_pass=True)
        return cast("dict[str, object]", document)

    def close(self) -> None:
        """Close the connections that are open; the next request opens one."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _refuse(self, path: str, status: int, problem: str) -> None:
        if status in (401, 403):
            told = (settings.SOURCE_TOKEN, settings.SOURCE_TENANT, settings.SOURCE_HEADERS)
            problem += f" ({', '.join(setting.env for setting in told)} say who asks)"
        if status == 404:
            problem += NOT_THERE
        raise (RefusedError if status in _REFUSED else UnreachableError)(str(self), f"{path}: {problem}")

    def _count_request(self) -> None:
        with self._lock:
            if self.spent.requests >= self._allowed.requests:
                advice = self.advice and f" ({self.advice})"
                raise SourceLimitError(
                    str(self), f"{self.bounds.requests} requests a failing trace are not enough{advice}"
                )
            self.spent.requests += 1

    def _count_bytes(self, read: int) -> None:
        with self._lock:
            self.spent.bytes += read
            if self.spent.bytes > self._allowed.bytes:
                raise SourceLimitError(str(self), f"{self.bounds.bytes} bytes a failing trace are not enough")

    def _ask(self, target: str, accept: str) -> tuple[int, bytes, float | None]:
        """Return status, body and the seconds after which to come again, when told."""
        connection = self._connection()
        was_open = connection.sock is not None
        try:
            try:
                reply = self._reply(connection, target, accept)
            except ConnectionError:
                if not was_open:
                    raise
                connection.close()  # the backend did so, since nothing was asked for a while; it is opened again
                reply = self._reply(connection, target, accept)
            body = reply.read(self.bounds.reply_bytes + 1)
            told = reply.getheader("retry-after", "")
            self._count_bytes(len(body))
            if reply.status == 200 and reply.length and len(body) <= self.bounds.reply_bytes:
                raise IncompleteRead(body, reply.length)  # http.client takes it as it is
            if len(body) > self.bounds.reply_bytes:
                raise SourceLimitError(
                    str(self), f"a reply has more than {self.bounds.reply_bytes} bytes", is_reply=True
                )
        except BaseException:
            connection.close()
            raise
        if reply.length:  # the rest of an error, if it ever comes, is no other reply
            connection.close()
        with self._lock:
            self._idle.append(connection)
        return reply.status, body, float(told) if told.isdecimal() else None

    def _reply(self, connection: HTTPConnection, target: str, accept: str) -> HTTPResponse:
        connection.request("GET", target, headers={**self._headers, "accept": accept})
        return connection.getresponse()

    def _connection(self) -> HTTPConnection:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        host, port, seconds = self.address.host, self.address.port, self.bounds.seconds
        if self.address.secure:
            return HTTPSConnection(host, port, timeout=seconds, context=self._tls)
        return HTTPConnection(host, port, timeout=seconds)

    def _shown(self, body: bytes) -> str:
        """The beginning of what the backend says, on one line and without what we told it."""
        text = body.decode("utf-8", "replace")
        for secret in self._secrets:  # before it is cut: a part of one would stay
            text = text.replace(secret, "***")
        return one_line(text)


def one_line(text: str, most: int = _SHOWN) -> str:
    """Return the beginning of anybody's text as a terminal may show it: one line, nothing that steers."""
    return " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * most]).split())[:most]


def _said(error: Exception) -> str:
    return str(getattr(error, "strerror", "") or error) or type(error).__name__


def listed(document: Mapping[str, object], name: str) -> list[object]:
    """Return an array of a reply, [] where there is none."""
    value = document.get(name)
    return cast("list[object]", value) if isinstance(value, list) else []


def objects(document: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
    """Return the objects of an array of a reply."""
    return [cast("Mapping[str, object]", item) for item in listed(document, name) if isinstance(item, dict)]


def trace_id(found: Mapping[str, object]) -> str:
    """Return the id of a trace that a search found: leading zeros, which backends leave out, are filled in."""
    return str(found.get("traceID", "")).zfill(32)


def span_id(found: Mapping[str, object]) -> str:
    """Return the id of a span that a search found."""
    return str(found.get("spanID", "")).zfill(16)
