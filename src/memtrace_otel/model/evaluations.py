"""Labels and scores of an evaluation: does the answer fail?"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from memtrace_otel.model.refs import is_origin, ref_kind
from memtrace_otel.model.spans import OperationSpan, Variable
from memtrace_otel.semconv import (
    ATTRIBUTION_SCOPE,
    EVALUATION_EVENT,
    EVALUATION_LABEL,
    EVALUATION_SCORE,
    FAILING_LABELS,
    PASSING_LABELS,
    FailureType,
    OpKind,
    RefKind,
    Role,
)


def label_and_score(attributes: Mapping[str, object]) -> tuple[str, float | None]:
    """Return what an evaluation with these attributes says, '' and None for what it does not."""
    score = attributes.get(EVALUATION_SCORE)
    return str(attributes.get(EVALUATION_LABEL, "")), float(score) if isinstance(score, int | float) else None


def is_failing(label: str, score: float | None, threshold: float) -> bool | None:
    """Return whether the answer failed, None when neither label nor score tells.

    A label of the contract decides, in any case and with spaces for underscores; else a score below `threshold` fails.
    """
    word = _word(label)
    if word in PASSING_LABELS:
        return False
    if word in FAILING_LABELS:
        return True
    return None if score is None else score < threshold


def is_known_label(label: str) -> bool:
    """Return whether a label is a word of the contract, for an answer or of a verdict; any other may be a sentence."""
    return is_failing(label, None, 0.0) is not None or _word(label) in frozenset(FailureType)


def answers_named(span: OperationSpan) -> list[Variable]:
    """Return the variables by which an evaluation on a span names its answer: the inputs of that role, else those that
    are answers by their ref and were read in no role of their own. An answer names itself, whatever it read."""
    if span.kind == OpKind.RESPOND:
        return [Variable("", Role.ANSWER, span.origin)]
    in_role = [variable for variable in span.inputs if variable.role == Role.ANSWER]
    by_ref = (v for v in span.inputs if v.role in ("", Role.OTHER) and ref_kind(v.ref) == RefKind.ANSWER)
    return in_role or list(by_ref)


def has_evaluation(span: OperationSpan) -> bool:
    """Return whether a span holds an evaluation, whatever the evaluation says."""
    names = (EVALUATION_LABEL, EVALUATION_SCORE)
    return span.kind == OpKind.JUDGE or any(name in told for told in _evaluations(span) for name in names)


def has_failing_evaluation(span: OperationSpan, threshold: float) -> bool:
    """Return whether an evaluation on a span calls an answer a failure. Verdicts of this program are no evaluations."""
    if span.instrumentation_scope == ATTRIBUTION_SCOPE:
        return False
    return any(is_failing(*label_and_score(attributes), threshold) for attributes in _evaluations(span))


def judged_traces(span: OperationSpan) -> set[str]:
    """Return the ids of the traces whose answer an evaluation on this span may be about."""
    answers = answers_named(span)
    named = {variable.origin[:32] for variable in answers if is_origin(variable.origin)}
    in_role = any(variable.role == Role.ANSWER for variable in answers)
    return named if named and in_role else {span.trace_id, *named}


def evaluation_problem(label: str, score: float | None) -> str:
    """Return why nothing can be concluded from an evaluation, '' when it says something."""
    if not label and score is None:
        return "a label or a score is needed"
    if label and is_failing(label, None, 0.0) is None:
        return f"the label must be one of {', '.join([*sorted(FAILING_LABELS), *sorted(PASSING_LABELS)])}"
    if score is not None and not abs(score) <= sys.float_info.max:
        return "the score must be a finite number"
    return ""


def _evaluations(span: OperationSpan) -> list[Mapping[str, object]]:
    return [span.attributes, *(event.attributes for event in span.events if event.name == EVALUATION_EVENT)]


def _word(label: str) -> str:
    return label.strip().casefold().replace(" ", "_")
