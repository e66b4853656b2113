"""Annotation: a verdict becomes spans in the traces it is about, a trace of its own, an event and metrics."""

from memtrace_otel.annotate.backend import BackendLog, MemoryLog
from memtrace_otel.annotate.metrics import AttributionMetrics
from memtrace_otel.annotate.publish import (
    Annotation,
    Delivery,
    RejectedError,
    annotate,
    annotation_spans,
    deliver,
)
from memtrace_otel.annotate.send import SendError
from memtrace_otel.annotate.target import TargetError

__all__ = [
    "Annotation",
    "AttributionMetrics",
    "BackendLog",
    "Delivery",
    "MemoryLog",
    "RejectedError",
    "SendError",
    "TargetError",
    "annotate",
    "annotation_spans",
    "deliver",
]
