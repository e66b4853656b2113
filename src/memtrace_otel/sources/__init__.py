"""Sources of spans: the two protocols, the database file (SQLite), the tracing backends (Jaeger, Tempo)."""

from memtrace_otel.sources.errors import AddressError, DamagedError, SourceError
from memtrace_otel.sources.maintenance import StoreStats
from memtrace_otel.sources.opening import open_source
from memtrace_otel.sources.protocols import TraceSource, VerdictLog
from memtrace_otel.sources.remote import RemoteSource
from memtrace_otel.sources.sqlite import SqliteStore

__all__ = [
    "AddressError",
    "DamagedError",
    "RemoteSource",
    "SourceError",
    "SqliteStore",
    "StoreStats",
    "TraceSource",
    "VerdictLog",
    "open_source",
]
