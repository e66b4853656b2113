"""A classifier that sees counts, sizes and durations, and no content, does not tell the failure type."""

from __future__ import annotations

from statistics import mean
from typing import Any

import numpy as np

from memtrace_otel.bench.faults import CODES
from memtrace_otel.bench.generate import MEMORY_TYPES, Plan, make_case
from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import decode_request
from memtrace_otel.semconv import Action, OpKind

NO_SEARCH = "M1"
"""The fault is that a search is missing: the number of searches tells this fault, and no other."""
CASES, FOLDS, RIDGE = 240, 6, 10.0


def test_metadata_alone_does_not_tell_the_failure_type() -> None:
    plan = Plan(11, CASES, faults=tuple(code for code in CODES if code != NO_SEARCH), messages=(12, 16))
    cases = [make_case(plan, number) for number in range(CASES)]
    features = np.array([metadata(decode_request(case.request), case.truth) for case in cases])
    types = np.array([str(case.truth["failure_type"]) for case in cases])
    majority = max(np.mean(types == type) for type in set(types))
    chance = majority + 2 * np.sqrt(majority * (1 - majority) / CASES)
    assert accuracy(features, types) <= chance + 0.05
    assert accuracy(np.c_[features, types[:, None] == np.array(MEMORY_TYPES)], types) > 0.8, "it finds what is there"


def metadata(spans: list[OperationSpan], truth: dict[str, Any]) -> list[float]:
    """Counts of operations, actions and inputs, sizes of outputs, durations: of the case, and of the question."""
    asked = [span for span in spans if span.trace_id == truth["answer"][:32]]
    answer = next(span for span in asked if span.origin == truth["answer"])
    searches = [span for span in asked if span.kind == OpKind.RETRIEVE]
    outputs = [variable for span in spans if span.kind in (OpKind.DECIDE, OpKind.UPDATE) for variable in span.outputs]
    written = [v.size or 0 for span in spans if span.kind in (OpKind.CREATE, OpKind.UPDATE) for v in span.outputs]
    return [
        *(float(sum(span.kind == kind for span in spans)) for kind in OpKind),
        *(float(sum(variable.action == action for variable in outputs)) for action in Action),
        mean(len(span.outputs) for span in spans if span.kind == OpKind.EXTRACT),
        float(len(asked)),
        float(sum(len(span.inputs) for span in searches)),
        float(sum(variable.size or 0 for span in searches for variable in span.outputs)),
        float(len(answer.inputs)),
        float(sum(len(variable.content) for variable in answer.inputs)),
        float(sum(variable.size or 0 for variable in answer.outputs)),
        mean(written),
        mean(span.end - span.start for span in spans),
        float(answer.end - answer.start),
        float(len({span.scope for span in spans})),
    ]


def accuracy(features: Any, types: Any) -> float:
    """Share of types that a linear classifier gets right on folds that it was not fitted to."""
    known = sorted(set(types))
    wanted = (types[:, None] == np.array(known)).astype(float)
    scaled = (features - features.mean(0)) / (features.std(0) + 1e-9)
    scaled = np.c_[scaled, np.ones(len(scaled))]
    fold, right = np.arange(len(types)) % FOLDS, 0
    for held in range(FOLDS):
        seen = scaled[fold != held]
        weights = np.linalg.solve(seen.T @ seen + RIDGE * np.eye(seen.shape[1]), seen.T @ wanted[fold != held])
        said = np.array(known)[(scaled[fold == held] @ weights).argmax(1)]
        right += int((said == types[fold == held]).sum())
    return right / len(types)
