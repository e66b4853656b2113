"""OTLP over HTTP: `POST /v1/traces` and `/v1/logs` in protobuf or JSON, `/v1/feedback` in JSON; gzip of each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message
from google.rpc.status_pb2 import Status
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as AsgiMessage

from memtrace_otel.otlp.feedback import FeedbackError, Text, as_given, encode_feedback
from memtrace_otel.otlp.receiver.requests import (
    BusyError,
    Cause,
    ContentTypeError,
    Count,
    InFlightBytes,
    Intake,
    Limits,
    RequestError,
    Signal,
    TooLargeError,
    export_response,
    gunzip,
    is_allowed,
    json_object,
    read_json,
)

_PROTOBUF, _JSON = "application/x-protobuf", "application/json"
_READ_SECONDS = 30.0
"""Longest time for a body to arrive."""
_DRAINED = 4
"""How many times the size limit is read of a body that is refused: a client reads no answer while it sends."""
_INVALID, _EXHAUSTED, _UNAVAILABLE = 3, 8, 14
"""Codes of google.rpc.Code."""
_SMALL_BYTES = 1 << 16
"""Bodies up to this size are inflated and converted at once; larger ones one after another, to bound the memory."""
_FEEDBACK_BYTES = 1 << 18
_FEEDBACK_TEXTS = frozenset({"trace_id", "label", "expected", "explanation", "name", "time"})
_SCORE = "score"
_NO_FRAMES = (b"content-security-policy", b"frame-ancestors 'none'")

Reader = Callable[[bytes], bytes] | None
"""Converts a body to a protobuf request; None for a body that is one."""


def http_app(
    intake: Intake,
    limits: Limits,
    in_flight: InFlightBytes,
    refused: Count,
    token: str = "",
    routes: Sequence[BaseRoute] = (),
    described: Callable[[str], Text] = as_given,
) -> Starlette:
    """Return the ASGI application with the endpoints and `routes`. Every path but /health asks for the token.

    `refused` counts refused requests, `described` says what of the texts of feedback may be kept.
    """
    endpoints = _Endpoints(intake, limits, in_flight, refused)
    signals = [
        endpoints.route(signal, signal, {_PROTOBUF: None, _JSON: lambda body, s=signal: read_json(s, body, limits)})
        for signal in Signal
    ]
    feedback = endpoints.route("feedback", Signal.TRACES, {_JSON: lambda body: read_feedback(body, described)})
    return Starlette(routes=[*signals, feedback, *routes], middleware=[Middleware(_Access, token, refused)])


class _Endpoints:
    """Receives bodies for the intake."""

    def __init__(self, intake: Intake, limits: Limits, in_flight: InFlightBytes, refused: Count) -> None:
        self._intake = intake
        self._limits = limits
        self._in_flight = in_flight
        self._refused = refused
        self._large = asyncio.Lock()

    def route(self, name: str, signal: Signal, readers: Mapping[str, Reader]) -> Route:
        """Return the route `/v1/NAME`, with a reader for each content type."""

        async def export(request: Request) -> Response:
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            try:
                if kind not in readers:
                    raise ContentTypeError(f"content type {' or '.join(readers)} is needed")
                with self._in_flight.request() as add:
                    body = await self._received(request, readers[kind], add)
                    acknowledgement = await self._intake.accept(body, signal)
            except ClientDisconnect:
                return Response(status_code=400)  # the client does not read it
            except (RequestError, BusyError, TimeoutError) as error:
                self._refused(Cause.LATE if isinstance(error, TimeoutError) else error.cause)
                return _refusal(kind if kind in readers else next(iter(readers)), error)
            return _reply(kind, 200, export_response(signal, acknowledgement))

        return Route(f"/v1/{name}", export, methods=["POST"])

    async def _received(self, request: Request, read: Reader, add: Callable[[int], None]) -> bytes:
        body = await asyncio.wait_for(_read_body(request, self._limits, add), _READ_SECONDS)
        if _is_gzip(request):
            async with self._turn(body):
                body = await asyncio.to_thread(gunzip, body, self._limits)
                add(len(body))
        if read:
            async with self._turn(body):
                body = await asyncio.to_thread(read, body)
                add(len(body))
        return body

    def _turn(self, body: bytes) -> AbstractAsyncContextManager[Any]:
        return self._large if len(body) > _SMALL_BYTES else nullcontext()


async def _read_body(request: Request, limits: Limits, add: Callable[[int], None]) -> bytes:
    """Return the body. A refused body is read further and thrown away."""
    most = _DRAINED * limits.request_bytes
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > most:
        limits.check_size(int(declared))
    chunks: list[bytes] = []
    size = 0
    busy: BusyError | None = None
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            break
        if busy or size > limits.request_bytes:
            continue
        try:
            add(len(chunk))
            chunks.append(chunk)
        except BusyError as error:
            busy = error
            add(-sum(map(len, chunks)))
            chunks.clear()
    limits.check_size(size)
    if busy:
        raise busy
    return b"".join(chunks)


def _is_gzip(request: Request) -> bool:
    match request.headers.get("content-encoding", "").strip().lower():
        case "" | "identity":
            return False
        case "gzip":
            return True
        case _:
            raise RequestError("content encoding gzip or none is needed")


def read_feedback(body: bytes, described: Callable[[str], Text] = as_given) -> bytes:
    """Return feedback in JSON as a trace request; fields as in `encode_feedback`, null as no field.

    Raises RequestError.
    """
    if len(body) > _FEEDBACK_BYTES:
        raise TooLargeError(f"the feedback is larger than {_FEEDBACK_BYTES} bytes")
    given: dict[str, Any] = {name: value for name, value in json_object(body, "feedback").items() if value is not None}
    if not given.keys() <= _FEEDBACK_TEXTS | {_SCORE}:
        raise RequestError(f"feedback has no fields but {', '.join(sorted(_FEEDBACK_TEXTS | {_SCORE}))}")
    if "trace_id" not in given:
        raise RequestError("feedback needs a trace_id")
    for name, value in given.items():
        if name == _SCORE and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise RequestError("the score must be a number")
        if name != _SCORE and not isinstance(value, str):
            raise RequestError(f"{name} must be a string")
    try:
        return encode_feedback(**given, described=described)
    except FeedbackError as error:
        raise RequestError(str(error)) from None


class _Access:
    """Middleware: asks for the token. Without a token, a request of a web page, which has an `Origin`, is refused."""

    def __init__(self, app: ASGIApp, token: str, refused: Count) -> None:
        self._app = app
        self._token = token
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_unframed(message: AsgiMessage) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], _NO_FRAMES]
            await send(message)

        app = self._app
        if scope["type"] == "http" and scope["path"] != "/health":
            headers = dict(scope["headers"])
            if not is_allowed(headers.get(b"authorization", b"").decode("latin-1"), self._token):
                app = PlainTextResponse("a bearer token is needed\n", 401, {"www-authenticate": "Bearer"})
            elif not self._token and b"origin" in headers:
                app = PlainTextResponse("not from a web page\n", 403)
            if app is not self._app:
                self._refused(Cause.UNAUTHORIZED)
        await app(scope, receive, send_unframed)


def _refusal(kind: str, error: RequestError | BusyError | TimeoutError) -> Response:
    """Return the OTLP status body with the reason."""
    reason, code, headers = str(error), _INVALID, dict[str, str]()
    match error:
        case ContentTypeError():
            status = 415
        case TooLargeError():
            status = 413
        case RequestError():
            status = 400
        case BusyError():
            status, code = (429, _EXHAUSTED) if error.is_overload else (503, _UNAVAILABLE)
            headers["retry-after"] = str(error.retry_after)
        case TimeoutError():
            status, reason = 408, "the body did not arrive in time"
            headers["connection"] = "close"
    return _reply(kind, status, Status(code=code, message=reason), headers)


def _reply(kind: str, status: int, message: Message, headers: dict[str, str] | None = None) -> Response:
    content = message.SerializeToString() if kind == _PROTOBUF else MessageToJson(message, indent=None)
    return Response(content, status, headers, kind)
