"""Values of one attribution for the metrics."""

from __future__ import annotations

from dataclasses import dataclass

from memtrace_otel.model.verdicts import Verdict
from memtrace_otel.semconv import FailureType

_NOT_THE_SYSTEM = frozenset({FailureType.JUDGE, FailureType.ANNOTATION})
OUTCOMES = ("attributed", "abstained", "non_system", "error")
DURATION_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""Bounds (s) of the histogram of how long attributing took."""


@dataclass(frozen=True, slots=True)
class Attributed:
    """One finished attribution: of which failing span (ids in hex), of which service, in how many seconds.

    A verdict is not `complete` when it is a guess, or when spans, contents or origins were missing. It comes `again`
    when an earlier verdict on the same answer named the same failure type: the answer is counted there already.
    """

    failure_type: str
    system: str
    service: str
    complete: bool
    seconds: float
    trace_id: str
    span_id: str
    again: bool = False

    @classmethod
    def of(cls, verdict: Verdict, seconds: float) -> Attributed:
        """Return what metrics tell of a verdict."""
        answer = verdict.failure.answer_span
        ids = answer.trace_id, answer.span_id
        again = verdict.failure_type in verdict.earlier_types
        return cls(verdict.failure_type, answer.system, answer.service, verdict.complete, seconds, *ids, again)

    @property
    def outcome(self) -> str:
        """One of `OUTCOMES`; an error of ours has no verdict."""
        if self.failure_type == FailureType.UNKNOWN:
            return "abstained"
        return "non_system" if self.failure_type in _NOT_THE_SYSTEM else "attributed"
