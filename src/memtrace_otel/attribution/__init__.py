"""From an evolution graph to verdicts: which operation made an answer fail, and how."""

from memtrace_otel.attribution.apply_rules import (
    attribute,
    attribute_everywhere,
    attribute_trace,
    attribute_with_model,
    is_open,
)
from memtrace_otel.attribution.failures import find_failures
from memtrace_otel.attribution.verdict_json import read_verdict, verdict_document, verdict_json

__all__ = [
    "attribute",
    "attribute_everywhere",
    "attribute_trace",
    "attribute_with_model",
    "find_failures",
    "is_open",
    "read_verdict",
    "verdict_document",
    "verdict_json",
]
