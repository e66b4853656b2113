"""OTLP over HTTP: `POST /v1/traces` and `/v1/logs` in protobuf or JSON, gzipped or not; `/v1/feedback` in JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial

from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message
from google.rpc.status_pb2 import Status
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from memtrace_otel.otlp.feedback import Text, as_given
from memtrace_otel.otlp.receiver.access import is_allowed
from memtrace_otel.otlp.receiver.conversion import from_json
from memtrace_otel.otlp.receiver.feedback import read_feedback
from memtrace_otel.otlp.receiver.intake import (
    BusyError,
    Cause,
    ContentTypeError,
    Count,
    Intake,
    RequestError,
    Signal,
    TooLargeError,
)
from memtrace_otel.otlp.receiver.limits import Limits, gunzip
from memtrace_otel.otlp.receiver.responses import export_response
from memtrace_otel.otlp.receiver.room import Held, Room

_PROTOBUF, _JSON = "application/x-protobuf", "application/json"
_READ_SECONDS = 30.0
"""Longest time that a body may take to arrive."""
_PATIENCE = 4
_INVALID, _EXHAUSTED, _UNAVAILABLE, _UNAUTHENTICATED = 3, 8, 14, 16
"""Codes of google.rpc.Code."""
_SMALL, _SMALL_AT_ONCE = 1 << 16, 4
"""Bytes of JSON that wait for no large body, and how many such bodies are read at a time: together they grow to little
beside one of those."""
Reader = Callable[[bytes], bytes] | None
"""How a body becomes protobuf; None: it is."""
Readers = Mapping[str, Reader]
"""By content type."""


def http_app(
    intake: Intake,
    limits: Limits,
    room: Room,
    refused: Count,
    token: str = "",
    routes: Sequence[BaseRoute] = (),
    described: Callable[[str], Text] = as_given,
) -> Starlette:
    """Return the ASGI application; `routes` are served beside the endpoints. A token is asked of all but /health.

    `refused` counts the requests that are refused, `described` says what of the texts of feedback may be kept.
    """

    turns = _Turns()

    def route(name: str, signal: Signal, readers: Readers) -> Route:
        async def export(request: Request) -> Response:
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            with room.hold() as held:
                try:
                    if kind not in readers:
                        raise ContentTypeError(f"content type {' or '.join(readers)} is needed")
                    body = await asyncio.wait_for(_body(request, limits, held), _READ_SECONDS)
                    if _is_packed(request):
                        async with turns.unpacking:
                            body = await asyncio.to_thread(gunzip, body, limits)
                            held.grow(len(body))
                    if read := readers[kind]:
                        limits.check_json(len(body))
                        async with turns.reading(body):
                            body = await asyncio.to_thread(read, body)
                            held.grow(len(body))
                    acknowledgement = await intake.accept(body, signal)
                except ClientDisconnect:
                    return Response(status_code=400)  # nobody is there to read it
                except (RequestError, BusyError, TimeoutError) as error:
                    refused(Cause.LATE if isinstance(error, TimeoutError) else error.cause)
                    return _refused(kind if kind in readers else next(iter(readers)), error)
            return _reply(kind, 200, export_response(signal, acknowledgement))

        return Route(f"/v1/{name}", export, methods=["POST"])

    signals = [route(signal, signal, {_PROTOBUF: None, _JSON: partial(from_json, signal)}) for signal in Signal]
    return Starlette(
        routes=[
            *signals,
            route("feedback", Signal.TRACES, {_JSON: partial(read_feedback, described=described)}),
            *routes,
        ],
        middleware=[Middleware(_Gate, token, refused)],
    )


class _Turns:
    """One body at a time is unpacked, and one large one is read from JSON: what it grows to meanwhile is not held."""

    def __init__(self) -> None:
        self.unpacking = asyncio.Lock()
        self._large, self._small = asyncio.Lock(), asyncio.Semaphore(_SMALL_AT_ONCE)

    def reading(self, body: bytes) -> AbstractAsyncContextManager[None]:
        """The turn of a body of JSON."""
        return self._small if len(body) <= _SMALL else self._large


class _Gate:
    """Lets in who bears the token. Without one, no page of a browser is let in: it sends its `Origin`."""

    def __init__(self, app: ASGIApp, token: str, refused: Count) -> None:
        self._app = app
        self._token = token
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != "/health":
            headers = dict(scope["headers"])
            refusal = self._refusal(headers.get(b"authorization", b"").decode("latin-1"), b"origin" in headers)
            if refusal is not None:
                self._refused(Cause.UNAUTHORIZED)
                return await refusal(scope, receive, send)
        return await self._app(scope, receive, send)

    def _refusal(self, authorization: str, from_page: bool) -> Response | None:
        if not is_allowed(authorization, self._token):
            return PlainTextResponse("a bearer token is needed\n", 401, {"www-authenticate": "Bearer"})
        if not self._token and from_page:
            return PlainTextResponse("not from a web page\n", 403)
        return None


async def _body(request: Request, limits: Limits, held: Held) -> bytes:
    """Return the body. One that is refused is read further, and thrown away: who is still sending hears no answer."""
    patience = _PATIENCE * limits.request_bytes
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > patience:
        limits.check_size(int(declared))
    chunks: list[bytes] = []
    size = 0
    refusal: BusyError | None = None
    async for chunk in request.stream():
        size += len(chunk)
        if size > patience:
            break
        if refusal or size > limits.request_bytes:
            continue
        try:
            held.grow(len(chunk))
            chunks.append(chunk)
        except BusyError as error:
            refusal = error
            chunks.clear()
            held.release()
    limits.check_size(size)
    if refusal:
        raise refusal
    return b"".join(chunks)


def _is_packed(request: Request) -> bool:
    match request.headers.get("content-encoding", "").strip().lower():
        case "" | "identity":
            return False
        case "gzip":
            return True
        case _:
            raise RequestError("content encoding gzip or none is needed")


def _refused(kind: str, error: RequestError | BusyError | TimeoutError) -> Response:
    match error:
        case ContentTypeError():
            return _refusal(kind, 415, _INVALID, str(error))
        case TooLargeError():
            return _refusal(kind, 413, _INVALID, str(error))
        case RequestError():
            return _refusal(kind, 400, _INVALID, str(error))
        case TimeoutError():
            return _refusal(kind, 408, _INVALID, "the body did not arrive in time", {"connection": "close"})
        case BusyError():
            status, code = (429, _EXHAUSTED) if error.full else (503, _UNAVAILABLE)
            return _refusal(kind, status, code, str(error), {"retry-after": str(error.retry_after)})


def _reply(kind: str, status: int, message: Message, headers: dict[str, str] | None = None) -> Response:
    content = message.SerializeToString() if kind == _PROTOBUF else MessageToJson(message, indent=None)
    return Response(content, status, headers, kind)


def _refusal(kind: str, status: int, code: int, reason: str, headers: dict[str, str] | None = None) -> Response:
    return _reply(kind, status, Status(code=code, message=reason), headers)
