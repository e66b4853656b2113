"""Graphs of the smartcomment tracer and of MemTraceBench, both ways."""

from memtrace_otel.graph.smartcomment.labels import Label, Score, read_labels, score
from memtrace_otel.graph.smartcomment.reading import to_spans
from memtrace_otel.graph.smartcomment.writing import to_smartcomment

__all__ = ["Label", "Score", "read_labels", "score", "to_smartcomment", "to_spans"]
