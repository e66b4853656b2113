"""The server: HTTP and gRPC endpoints, /health and /metrics, background processes, and an orderly end."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import socket
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import grpc
import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from memtrace_otel import settings
from memtrace_otel.capture.feedback import feedback_redaction
from memtrace_otel.otlp.receiver import InFlightBytes, Limits
from memtrace_otel.otlp.receiver.grpc_server import grpc_server
from memtrace_otel.otlp.receiver.http import http_app
from memtrace_otel.serve.child import Child
from memtrace_otel.serve.connections import Connections
from memtrace_otel.serve.intake import Backlog, GroupCommit, StoreIntake
from memtrace_otel.serve.metrics import Metrics
from memtrace_otel.serve.options import Options, ServeError, listen
from memtrace_otel.serve.progress import Process
from memtrace_otel.serve.reports import Reports, is_by_own_name, not_by_this_name
from memtrace_otel.sources import SourceError, SqliteStore

_logger = logging.getLogger(__name__)
_MEASURE_SECONDS = 0.5
_CLOSING_SECONDS, _FLUSH_SECONDS = 0.5, 2.0
MOST_CONNECTIONS = 512
"""Over HTTP, and the same number over gRPC."""
GRACE_SECONDS = 10
"""Open requests may take so long after the signal to end."""
_BACKLOG = 128
"""Connections that the event loop accepts at a time, before it closes any."""
_RESERVED_FILES = 512
"""File descriptors for accepted connections and TLS handshakes, the database, and the processes of reports."""


@dataclass(frozen=True, slots=True)
class Listening:
    """The address of a running server."""

    host: str
    grpc_port: int
    http_port: int


_MAX_MESSAGES = 1000


class RepeatedLines(logging.Filter):
    """Lets the same message through once in ten seconds, with the number of those left out."""

    def __init__(self, seconds: float = 10.0) -> None:
        super().__init__()
        self._seconds = seconds
        self._last: dict[tuple[str, object], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        key = record.name, record.msg
        last, left_out = self._last.get(key, (-self._seconds, 0))
        if record.created < last + self._seconds:
            self._last[key] = last, left_out + 1
            return False
        if len(self._last) >= _MAX_MESSAGES:  # texts of varying messages
            self._last.clear()
        self._last[key] = record.created, 0
        if left_out:
            record.msg = f"{record.msg} ({left_out} repeated lines suppressed)"
        return True


def serve(options: Options, ready: Callable[[Listening], None]) -> None:
    """Serve until SIGTERM or SIGINT; every acknowledged request is on disk then. Calls `ready` once it listens.

    Raises ServeError when it cannot listen, SourceError when the database cannot be opened, AddressError for a wrong
    address of the backend to look into.
    """
    handler = logging.StreamHandler()
    handler.addFilter(RepeatedLines())
    logging.basicConfig(format="memtrace-otel: %(message)s", handlers=[handler])
    options.check()
    for warning in options.warnings():
        _logger.warning(warning)
    with SqliteStore.open(options.database) as store:
        asyncio.run(_serve(options, store, ready))


async def _serve(options: Options, store: SqliteStore, ready: Callable[[Listening], None]) -> None:
    metrics = Metrics(options.repair)
    backlog = Backlog(settings.INBOX_BYTES.read(), store.waiting)
    limits = Limits.from_settings()
    most = most_connections()
    with listen(options.host, options.http_port) as http_socket:
        database = str(options.database)
        decoding = Child(Process.DECODING, (database,), metrics)
        children = [decoding, Child(Process.ATTRIBUTING, (database, options.look_in), metrics)]
        if options.ui_port is not None:
            place = (options.host, str(options.ui_port), str(options.annotators or ""))
            children.append(Child(Process.SHOWING, (database, *place), metrics))

        def commit(bodies: Sequence[bytes]) -> None:
            store.add_requests(bodies)
            decoding.wake()

        commits = GroupCommit(commit)
        try:
            intake = StoreIntake(commits, backlog, limits, metrics)
            in_flight = InFlightBytes(4 * limits.request_bytes)
            routes = _routes(store, commits, backlog, metrics, options.token)
            routes.append(Reports(options.database, options.token).route())
            app = http_app(intake, limits, in_flight, metrics.refused, options.token, routes, feedback_redaction())
            http = _HttpServer(options, app, most)
            rpc = grpc_server(intake, limits, in_flight, metrics.refused, most, options.token)
            grpc_port = _bind(rpc, options)
            await rpc.start()
            serving = asyncio.create_task(http.serve(sockets=[http_socket]))
            measuring = asyncio.create_task(_measure(backlog))
            sweeping = asyncio.create_task(http.open_connections.sweep())
            stop = _stop_signal()  # before a caller learns that the server runs
            ready(Listening(options.host, grpc_port, http_socket.getsockname()[1]))
            await _until_stopped(stop, serving)
            measuring.cancel()
            sweeping.cancel()
            http.should_exit = True
            await asyncio.gather(serving, rpc.stop(GRACE_SECONDS))
        finally:
            await asyncio.to_thread(commits.close)
            await asyncio.gather(*(asyncio.to_thread(child.stop) for child in children))


def most_connections() -> int:
    """Return how many connections HTTP and gRPC may each hold; raises this process's limit of open files for them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * MOST_CONNECTIONS + _RESERVED_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(16, (soft - _RESERVED_FILES) // 2)
    return MOST_CONNECTIONS


def _stop_signal() -> asyncio.Event:
    """Return the event that SIGTERM and SIGINT set from now on."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def _until_stopped(stop: asyncio.Event, serving: asyncio.Task[None]) -> None:
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait((stopped, serving), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()


async def _measure(backlog: Backlog) -> None:
    while True:
        await asyncio.sleep(_MEASURE_SECONDS)
        try:
            await asyncio.to_thread(backlog.measure)
        except SourceError as error:
            _logger.warning("the inbox cannot be measured: %s", error)


def _routes(store: SqliteStore, commits: GroupCommit, backlog: Backlog, metrics: Metrics, token: str) -> list[Route]:
    async def health(_: Request) -> Response:
        if not store.is_in_place():
            return JSONResponse({"status": "moved"}, 503)
        status = "ok"
        if backlog.is_full:
            status = "behind"
        elif metrics.is_damaged:
            status = "damaged"
        elif not await commits.is_writable():
            status = "unwritable"
        return JSONResponse({"status": status, "inbox_bytes": backlog.bytes}, 200 if status == "ok" else 503)

    async def scrape(request: Request) -> Response:
        if not is_by_own_name(request, token):
            return not_by_this_name()
        metrics.inbox(backlog.bytes, backlog.bound, backlog.seconds)
        body, content_type = metrics.exposition(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    return [Route("/health", health), Route("/metrics", scrape)]


class _HttpServer(uvicorn.Server):
    """uvicorn with bounded connections, without handlers of signals."""

    def __init__(self, options: Options, app: object, connections: int) -> None:
        self.open_connections = Connections(connections)
        config = uvicorn.Config(
            app,  # pyright: ignore[reportArgumentType]
            http=self.open_connections,  # pyright: ignore[reportArgumentType]
            backlog=_BACKLOG,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
            ssl_certfile=options.certificate,
            ssl_keyfile=options.key,
        )
        super().__init__(config)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        # From Python 3.12 on, these wait for TLS handshakes; uvicorn itself waits for all other connections.
        self.servers = []
        # A client may leave the end of an encrypted connection unanswered.
        sweeping = asyncio.create_task(self.open_connections.sweep(_CLOSING_SECONDS, _FLUSH_SECONDS))
        await super().shutdown(sockets)
        sweeping.cancel()


def _bind(server: grpc.aio.Server, options: Options) -> int:
    host = f"[{options.host}]" if ":" in options.host else options.host
    address = f"{host}:{options.grpc_port}"
    listen(options.host, options.grpc_port).close()  # gRPC takes any free address of a name, and says nothing of others
    try:
        if options.certificate and options.key:
            pairs = [(options.key.read_bytes(), options.certificate.read_bytes())]
            return server.add_secure_port(address, grpc.ssl_server_credentials(pairs))
        return server.add_insecure_port(address)
    except RuntimeError:
        raise ServeError(f"cannot listen on {address}: it is in use, or not an address of this machine") from None
