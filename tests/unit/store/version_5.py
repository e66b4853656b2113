"""A database file as schema version 5 wrote it, whose tables are those of version 4. Not to be changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from memtrace_otel.model import OperationSpan
from tests.unit.store import version_4


def write(path: Path, spans: Sequence[OperationSpan], waiting: Sequence[OperationSpan] = ()) -> None:
    """As `version_1.write`."""
    version_4.write(path, spans, waiting)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 5")
