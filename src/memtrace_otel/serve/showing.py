"""Serves the pages with uvicorn: for `memtrace-otel ui`, and as the pages process of a server (`serve --ui`).

The process is started as `python -m memtrace_otel.serve.showing FILE HOST PORT ANNOTATORS`. The last one, perhaps
empty, is a file. A process of its own: what a page needs is not taken from the receiver.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import uvicorn

from memtrace_otel.hosts import is_loopback
from memtrace_otel.pages import Page
from memtrace_otel.serve.background import set_up
from memtrace_otel.serve.options import ServeError, listen
from memtrace_otel.web.app import Pages
from memtrace_otel.web.security import read_annotators
from memtrace_otel.web.store import LivePageStore, PageStore

_NICE = 10
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


def main(path: str, host: str, port: str, annotators: str) -> None:
    """Serve the pages until standard input ends."""
    set_up(_NICE)
    threading.Thread(target=_end_with_server, daemon=True).start()
    people = Path(annotators) if annotators else None
    run(Path(path), host, int(port), people, None, lambda address: None, decodes=False)


def _end_with_server() -> None:
    while os.read(0, 65536):
        pass
    os.kill(os.getpid(), signal.SIGTERM)  # uvicorn then ends in order


if __name__ == "__main__":
    main(*sys.argv[1:])
