"""Which spans hold an evaluation, whether it fails an answer, and which traces it is about."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memtrace_otel import semconv
from memtrace_otel.model import Event, Variable, has_evaluation, has_failing_evaluation, judged_traces, make_origin
from memtrace_otel.testing import contract_span

ANSWER = make_origin(f"{1:032x}", f"{1:016x}")


@pytest.mark.parametrize(
    ("attributes", "failing"),
    [
        ({semconv.EVALUATION_LABEL: "Not relevant"}, True),
        ({semconv.EVALUATION_LABEL: "pass", semconv.EVALUATION_SCORE: 0.1}, False),
        ({semconv.EVALUATION_SCORE: 0}, True),
        ({semconv.EVALUATION_SCORE: 0.5}, False),
        ({semconv.EVALUATION_SCORE: "low"}, False),
        ({}, False),
    ],
)
def test_the_label_decides_before_the_score_on_a_span_and_on_an_event(
    attributes: dict[str, str | float], failing: bool
) -> None:
    on_span = contract_span(1, 1, attributes=attributes)
    on_event = contract_span(1, 1, events=(Event(semconv.EVALUATION_EVENT, 1, attributes),))
    for span in (on_span, on_event):
        assert has_failing_evaluation(span, 0.5) is failing
        assert has_evaluation(span) is bool(attributes)
    assert not has_failing_evaluation(contract_span(1, 1, events=(Event("another", 1, attributes),)), 0.5)


def test_a_verdict_of_this_program_is_no_evaluation() -> None:
    span = contract_span(1, 1, attributes={semconv.EVALUATION_LABEL: "fail"})
    assert has_failing_evaluation(span, 0.5)
    assert not has_failing_evaluation(replace(span, instrumentation_scope=semconv.ATTRIBUTION_SCOPE), 0.5)


def test_a_judge_is_about_the_answer_that_it_names_else_about_its_own_trace() -> None:
    named = (Variable("answer:1", semconv.Role.ANSWER, ANSWER),)
    assert judged_traces(contract_span(7, 1, kind="judge", inputs=named)) == {ANSWER[:32]}
    assert judged_traces(contract_span(7, 1, kind="judge")) == {f"{7:032x}"}
