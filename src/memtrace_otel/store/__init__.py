"""Where spans live: the protocols every store keeps, and the embedded store (one SQLite file)."""

from memtrace_otel.store.errors import StoreError
from memtrace_otel.store.protocols import SpanStore, StoredVerdict, StoreStats, TraceSource
from memtrace_otel.store.rows import NewSpan
from memtrace_otel.store.sqlite import SqliteStore
from memtrace_otel.store.upkeep import StoreUpkeep

__all__ = [
    "NewSpan",
    "SpanStore",
    "SqliteStore",
    "StoreError",
    "StoreStats",
    "StoreUpkeep",
    "StoredVerdict",
    "TraceSource",
]
