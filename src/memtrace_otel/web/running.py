"""Serves the pages with uvicorn until SIGINT or SIGTERM."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import uvicorn

from memtrace_otel.hosts import is_loopback
from memtrace_otel.pages import Page
from memtrace_otel.serve.options import ServeError, listen
from memtrace_otel.web.app import Pages
from memtrace_otel.web.security import read_annotators
from memtrace_otel.web.store import LivePageStore, PageStore

_GRACE_SECONDS = 5
_MOST_CONNECTIONS = 64


def run(
    database: Path,
    host: str,
    port: int,
    annotators: Path | None,
    backend: Page | None,
    ready: Callable[[str], None],
    *,
    decodes: bool = True,
) -> None:
    """Serve the pages of a database; call `ready` with `host:port` once they can be opened.

    Without `decodes`, another process decodes the requests that arrive. Raises ServeError when it cannot listen or
    needs tokens, AnnotatorsError, SourceError.
    """
    if not is_loopback(host) and annotators is None:
        raise ServeError(
            f"{host} can be reached from other machines: name the annotators and their tokens (--annotators)"
        )
    people = read_annotators(annotators) if annotators else {}
    kind = PageStore if decodes else LivePageStore
    with kind.open(database, create=False) as store, listen(host, port) as socket:
        shown = f"[{host}]" if ":" in host else host
        config = uvicorn.Config(
            Pages(store, people, backend).app(),
            log_config=None,
            access_log=False,  # an address names answers and records
            lifespan="off",
            ws="none",
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        ready(f"{shown}:{socket.getsockname()[1]}")
        uvicorn.Server(config).run(sockets=[socket])
