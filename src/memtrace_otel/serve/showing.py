"""The pages process of a server (`serve --ui`): the pages of `memtrace-otel ui` on a database that the server fills.

Started as `python -m memtrace_otel.serve.showing FILE HOST PORT ANNOTATORS`. The last one, perhaps empty, is a file.
A process of its own: what a page needs is not taken from the receiver.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from memtrace_otel.serve.background import set_up
from memtrace_otel.web.running import run

_NICE = 10


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
