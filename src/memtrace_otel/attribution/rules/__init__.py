"""One rule per failure type: a pure function `Evidence -> Finding | None`. None: the rule does not apply."""

from memtrace_otel.attribution.rules.annotation import annotation
from memtrace_otel.attribution.rules.deletion import deletion
from memtrace_otel.attribution.rules.extraction import extraction
from memtrace_otel.attribution.rules.finding import Finding
from memtrace_otel.attribution.rules.judge import judge
from memtrace_otel.attribution.rules.response import response
from memtrace_otel.attribution.rules.retrieval import retrieval
from memtrace_otel.attribution.rules.update import update

RULES = (judge, annotation, extraction, update, deletion, retrieval, response)
"""In causal order; failures outside of memory come first."""

__all__ = ["RULES", "Finding", "annotation", "deletion", "extraction", "judge", "response", "retrieval", "update"]
