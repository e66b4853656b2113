"""Where spans live: the protocols every store keeps, the embedded store (one SQLite file), tracing backends."""

from memtrace_otel.sources.errors import DamagedError, SourceLimitError, StoreError
from memtrace_otel.sources.nearby import NearbySources
from memtrace_otel.sources.opening import SourceError, open_source
from memtrace_otel.sources.protocols import RecordSource, SpanStore, StoredVerdict, StoreStats, TraceSource, VerdictLog
from memtrace_otel.sources.remote import RemoteSource
from memtrace_otel.sources.sqlite import SqliteStore

__all__ = [
    "DamagedError",
    "NearbySources",
    "RecordSource",
    "RemoteSource",
    "SourceError",
    "SourceLimitError",
    "SpanStore",
    "SqliteStore",
    "StoreError",
    "StoreStats",
    "StoredVerdict",
    "TraceSource",
    "VerdictLog",
    "open_source",
]
