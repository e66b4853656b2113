"""What an evaluation says about an answer."""

from __future__ import annotations

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
