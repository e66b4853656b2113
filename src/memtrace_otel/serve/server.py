"""The server: endpoints, group commit, health and metrics, two background processes, and an orderly end."""

from __future__ import annotations

import asyncio
import logging
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
from memtrace_otel.capture.outside import outside
from memtrace_otel.otlp.receiver import Limits
from memtrace_otel.otlp.receiver.grpc_server import grpc_server
from memtrace_otel.otlp.receiver.http import http_app
from memtrace_otel.otlp.receiver.room import Room
from memtrace_otel.serve.child import Child
from memtrace_otel.serve.connections import Connection
from memtrace_otel.serve.group_commit import GroupCommit
from memtrace_otel.serve.intake import Backlog, StoreIntake
from memtrace_otel.serve.metrics import Metrics
from memtrace_otel.serve.options import Options, ServeError, listen
from memtrace_otel.serve.progress import Process
from memtrace_otel.serve.reports import Reports, is_by_own_name, not_by_this_name
from memtrace_otel.sources import SqliteStore, StoreError

_logger = logging.getLogger(__name__)
_MEASURE_SECONDS = 0.5
_GRACE_SECONDS = 10
_LOG_PAGES = 32768
"""The log is left to the decoding process, but for a log of 128 MiB: that one is dead, or cannot follow."""


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a server that runs can be reached."""

    host: str
    grpc_port: int
    http_port: int


def serve(options: Options, ready: Callable[[Listening], None]) -> None:
    """Serve until SIGTERM or SIGINT; everything acknowledged is on disk then. Calls `ready` once it listens.

    Raises ServeError when it cannot listen, StoreError when the database cannot be opened, SourceError for what cannot
    be a backend to look into.
    """
    options.check()
    with SqliteStore.open(options.database) as store:
        store.copy_log_every(_LOG_PAGES)
        asyncio.run(_serve(options, store, ready))


async def _serve(options: Options, store: SqliteStore, ready: Callable[[Listening], None]) -> None:
    metrics = Metrics()
    backlog = Backlog(settings.INBOX_BYTES.read(), store.waiting)
    metrics.inbox_limit = backlog.bound
    limits = Limits.from_settings()
    with listen(options.host, options.http_port) as http_socket:
        database = str(options.database)
        decoding = Child(Process.DECODING, (database,), metrics)
        attributing = Child(Process.ATTRIBUTING, (database, options.look_in), metrics)

        def commit(bodies: Sequence[bytes]) -> None:
            store.add_requests(bodies)
            decoding.wake()

        commits = GroupCommit(commit)
        try:
            intake = StoreIntake(commits, backlog, limits, metrics)
            room = Room(limits.in_flight_bytes)
            routes = _routes(store, commits, backlog, metrics, options.token)
            routes.append(Reports(options.database, options.token).route())
            app = http_app(intake, limits, room, metrics.refused, options.token, routes, outside())
            http = _http_server(options, app)
            rpc = grpc_server(intake, limits, room, metrics.refused, options.token)
            grpc_port = _bind(rpc, options)
            await rpc.start()
            serving = asyncio.create_task(http.serve(sockets=[http_socket]))
            measuring = asyncio.create_task(_measure(backlog))
            stop = _asked_to_stop()  # before anybody knows that there is something to stop
            ready(Listening(options.host, grpc_port, http_socket.getsockname()[1]))
            await _until_stopped(stop, serving)
            measuring.cancel()
            http.should_exit = True
            await asyncio.gather(serving, rpc.stop(_GRACE_SECONDS))
        finally:
            await asyncio.to_thread(commits.close)
            await asyncio.gather(*(asyncio.to_thread(child.stop) for child in (decoding, attributing)))


def _asked_to_stop() -> asyncio.Event:
    """Return what SIGTERM and SIGINT set from now on."""
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
        except StoreError as error:
            _logger.warning("the inbox cannot be measured: %s", error)


def _routes(store: SqliteStore, commits: GroupCommit, backlog: Backlog, metrics: Metrics, token: str) -> list[Route]:
    async def health(_: Request) -> Response:
        if not store.is_in_place():
            return JSONResponse({"status": "moved"}, 503)
        if commits.is_failing:
            return JSONResponse({"status": "unwritable", "inbox_bytes": backlog.bytes}, 503)
        if backlog.is_full:
            return JSONResponse({"status": "behind", "inbox_bytes": backlog.bytes}, 503)
        if metrics.is_damaged:
            return JSONResponse({"status": "damaged", "inbox_bytes": backlog.bytes}, 503)
        return JSONResponse({"status": "ok", "inbox_bytes": backlog.bytes})

    async def scrape(request: Request) -> Response:
        if not is_by_own_name(request, token):
            return not_by_this_name()
        metrics.inbox_bytes = backlog.bytes
        metrics.inbox_seconds = backlog.seconds
        body, content_type = metrics.exposition(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    return [Route("/health", health), Route("/metrics", scrape)]


class _HttpServer(uvicorn.Server):
    """Leaves signals to `serve`, and waits for nobody who has not said a word of TLS."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        # From Python 3.12 on, these wait for connections amid their handshake; uvicorn itself knows all others.
        self.servers = []
        await super().shutdown(sockets)


def _http_server(options: Options, app: object) -> uvicorn.Server:
    config = uvicorn.Config(
        app,  # pyright: ignore[reportArgumentType]
        http=Connection,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
    )
    return _HttpServer(config)


def _bind(server: grpc.aio.Server, options: Options) -> int:
    host = f"[{options.host}]" if ":" in options.host else options.host
    address = f"{host}:{options.grpc_port}"
    listen(options.host, options.grpc_port).close()  # of a name's addresses gRPC takes those that are free
    try:
        if options.certificate and options.key:
            pairs = [(options.key.read_bytes(), options.certificate.read_bytes())]
            return server.add_secure_port(address, grpc.ssl_server_credentials(pairs))
        return server.add_insecure_port(address)
    except RuntimeError:
        raise ServeError(f"cannot listen on {address}: it is in use, or not an address of this machine") from None
