"""A judgement of an answer as attributes of its judge span."""

from __future__ import annotations

from memtrace_otel import semconv
from memtrace_otel.capture.operations import Operation


def write_evaluation(operation: Operation, name: str, label: str, score: float | None, explanation: str) -> None:
    """Put the evaluation attributes of the GenAI conventions on a judge span."""
    operation.set(semconv.EVALUATION_NAME, name)
    if label:
        operation.set(semconv.EVALUATION_LABEL, label)
    if score is not None:
        operation.set(semconv.EVALUATION_SCORE, float(score))
    if explanation and operation.captures_content:
        operation.set(semconv.EVALUATION_EXPLANATION, explanation)
