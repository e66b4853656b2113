"""Capture: what runs in the observed process. Never raises into it, never blocks it, never changes its results."""

from memtrace_otel.capture import turn as recall
from memtrace_otel.capture.config import CaptureConfig, config, configure, read_config, use_config, use_redaction
from memtrace_otel.capture.content import scope_id, variable_ref
from memtrace_otel.capture.decorator import operation
from memtrace_otel.capture.feedback import feedback
from memtrace_otel.capture.guard import drops, guard, guarded
from memtrace_otel.capture.operations import Operation, current_operation
from memtrace_otel.capture.origins import origins
from memtrace_otel.capture.tracing import get_tracer
from memtrace_otel.capture.values import as_text

__all__ = [
    "CaptureConfig",
    "Operation",
    "as_text",
    "config",
    "configure",
    "current_operation",
    "drops",
    "feedback",
    "get_tracer",
    "guard",
    "guarded",
    "operation",
    "origins",
    "read_config",
    "recall",
    "scope_id",
    "use_config",
    "use_redaction",
    "variable_ref",
]
