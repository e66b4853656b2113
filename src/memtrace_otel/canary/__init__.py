"""The canary: a known fault goes through the whole path, and its verdict has to come back."""

from memtrace_otel.canary.flight import CanaryMetrics, Outcome, Stage, fly
from memtrace_otel.canary.history import History, write_history

__all__ = ["CanaryMetrics", "History", "Outcome", "Stage", "fly", "write_history"]
