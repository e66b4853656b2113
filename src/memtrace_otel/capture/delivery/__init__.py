"""The lossless span processor: bounded in memory, in waiting time and on disk; every dropped span is counted."""

from memtrace_otel.capture.delivery.processor import LosslessSpanProcessor
from memtrace_otel.capture.delivery.replacement import replace_batch_processors

__all__ = ["LosslessSpanProcessor", "replace_batch_processors"]
