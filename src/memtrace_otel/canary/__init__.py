"""Canary: send a known memory history with a known fault, and read its verdict back from the backend."""

from memtrace_otel.canary.flight import CanaryMetrics, Outcome, Stage, fly
from memtrace_otel.canary.history import History, write_history

__all__ = ["CanaryMetrics", "History", "Outcome", "Stage", "fly", "write_history"]
