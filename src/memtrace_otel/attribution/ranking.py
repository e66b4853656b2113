"""Order the findings and compute confidence: the first loss in causal order is decisive."""

from __future__ import annotations

from collections.abc import Sequence

from memtrace_otel.attribution.rules import Finding
from memtrace_otel.semconv import FailureType

DECISIVE = 0.5
"""A finding of at least this strength is decisive; weaker findings count only without a decisive finding."""

_ON_INCOMPLETE = 0.75
_PER_RIVAL = 0.8


def rank(findings: Sequence[Finding]) -> list[Finding]:
    """Order findings, given in causal order, best first.

    Decisive ones come first in causal order: what was lost earlier could not be found later. The others follow by
    strength. An `annotation` comes after findings that are as strong.
    """
    decisive = [finding for finding in findings if finding.strength >= DECISIVE]
    most = max((f.strength for f in decisive if f.failure_type != FailureType.ANNOTATION), default=0.0)
    decisive.sort(key=lambda f: f.failure_type == FailureType.ANNOTATION and f.strength <= most)
    rest = sorted((f for f in findings if f.strength < DECISIVE), key=lambda f: -f.strength)
    return [*decisive, *rest]


def confidence(finding: Finding, rivals: Sequence[Finding], complete: bool) -> float:
    """Return how far to trust `finding`: its strength, less for every rival as strong and for a trace with gaps."""
    strong = sum(rival.strength >= finding.strength for rival in rivals if rival is not finding)
    value = finding.strength * _PER_RIVAL**strong * (1.0 if complete else _ON_INCOMPLETE)
    return round(value, 3)
