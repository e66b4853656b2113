"""The health of each memory: faults that show before an answer fails, without any expected answer."""

from memtrace_otel.health.examine import Finding, ThresholdError, examine, read_thresholds, record_health
from memtrace_otel.health.measures import MEASURES, Measure
from memtrace_otel.health.memory import Example, Memory

__all__ = [
    "MEASURES",
    "Example",
    "Finding",
    "Measure",
    "Memory",
    "ThresholdError",
    "examine",
    "read_thresholds",
    "record_health",
]
