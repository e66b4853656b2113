"""The canary: a known fault goes through the whole path, and its verdict has to come back."""

from memtrace_otel.canary.history import History, write_history
from memtrace_otel.canary.probe import Outcome, Stage, probe

__all__ = ["History", "Outcome", "Stage", "probe", "write_history"]
