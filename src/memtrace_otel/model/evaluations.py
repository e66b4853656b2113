"""What an evaluation says about an answer."""

from __future__ import annotations

import sys

from memtrace_otel.semconv import FAILING_LABELS, PASSING_LABELS


def is_failing(label: str, score: float | None, threshold: float) -> bool | None:
    """Return whether the answer failed, None when neither label nor score tells.

    A label of the contract decides, in any case and with spaces for underscores; else a score below `threshold` fails.
    """
    word = label.strip().casefold().replace(" ", "_")
    if word in PASSING_LABELS:
        return False
    if word in FAILING_LABELS:
        return True
    return None if score is None else score < threshold


def evaluation_problem(label: str, score: float | None) -> str:
    """Return why nothing can be concluded from an evaluation, '' when it says something."""
    if not label and score is None:
        return "a label or a score is needed"
    if label and is_failing(label, None, 0.0) is None:
        return f"the label must be one of {', '.join([*sorted(FAILING_LABELS), *sorted(PASSING_LABELS)])}"
    if score is not None and not abs(score) <= sys.float_info.max:
        return "the score must be a finite number"
    return ""
