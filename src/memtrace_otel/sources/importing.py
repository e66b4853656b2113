"""Import that changes the database either wholly or not at all."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from memtrace_otel.sources.sqlite import SqliteStore

_LENGTH_BYTES = 8


def import_requests(path: str | Path, bodies: Iterable[bytes]) -> int:
    """Add OTLP requests to the database at `path`, all or none; return how many spans are new to it.

    `bodies` is read to its end first, into an unnamed temporary file: when it raises, the database is untouched (and
    not created), and other processes can write meanwhile. Raises StoreError, and what `bodies` raises.
    """
    if Path(path).exists():
        SqliteStore.open(path, create=False).close()  # refuse a database of another version before the long work
    with tempfile.TemporaryFile() as staged:
        for body in bodies:
            staged.write(len(body).to_bytes(_LENGTH_BYTES, "big") + body)
        with SqliteStore.open(path) as store:
            store.add_requests(_staged(staged))
            return store.decode()


def _staged(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while length := file.read(_LENGTH_BYTES):
        yield file.read(int.from_bytes(length, "big"))
