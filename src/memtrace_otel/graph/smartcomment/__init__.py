"""Graphs of the smartcomment tracer and of MemTraceBench, both ways."""

from memtrace_otel.graph.smartcomment.reading import to_spans
from memtrace_otel.graph.smartcomment.writing import to_smartcomment

__all__ = ["to_smartcomment", "to_spans"]
