"""The lossless span processor: bounded in memory, in waiting and on disk; every drop is counted and told."""

from memtrace_otel.capture.delivery.processor import LosslessSpanProcessor
from memtrace_otel.capture.delivery.replacement import replace_batch_processors

__all__ = ["LosslessSpanProcessor", "replace_batch_processors"]
