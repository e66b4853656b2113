"""Where spans live: the protocols every store keeps, the embedded store (one SQLite file), tracing backends."""

from memtrace_otel.store.errors import DamagedError, SourceLimitError, StoreError
from memtrace_otel.store.nearby import NearbySources
from memtrace_otel.store.opening import SourceError, open_source
from memtrace_otel.store.protocols import RecordSource, SpanStore, StoredVerdict, StoreStats, TraceSource
from memtrace_otel.store.remote import RemoteSource
from memtrace_otel.store.rows import NewSpan
from memtrace_otel.store.sqlite import SqliteStore
from memtrace_otel.store.upkeep import StoreUpkeep

__all__ = [
    "DamagedError",
    "NearbySources",
    "NewSpan",
    "RecordSource",
    "RemoteSource",
    "SourceError",
    "SourceLimitError",
    "SpanStore",
    "SqliteStore",
    "StoreError",
    "StoreStats",
    "StoreUpkeep",
    "StoredVerdict",
    "TraceSource",
    "open_source",
]
