"""Import and export of smartcomment and MemTraceBench graphs."""

from memtrace_otel.graph.smartcomment.reading import to_spans
from memtrace_otel.graph.smartcomment.writing import to_smartcomment

__all__ = ["to_smartcomment", "to_spans"]
