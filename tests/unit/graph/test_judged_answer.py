"""Which answer an evaluation of a whole trace is about: the newest reply to the user, no other model call."""

from __future__ import annotations

import pytest

from memtrace_otel.graph import build_graph
from memtrace_otel.model import OperationSpan
from memtrace_otel.semconv import EVALUATION_LABEL, OP_PURPOSE, UPKEEP, OpKind
from tests.unit.graph.conftest import origin_of, put, span


def answer(number: int, output: str = "answer", purpose: str = "") -> OperationSpan:
    fields = {"attributes": {OP_PURPOSE: purpose}} if purpose else {}
    return span(1, number, OpKind.RESPOND, at=2 * number, outputs=[put(f"{output}:{number:016x}", "Paris")], **fields)


@pytest.mark.parametrize(
    ("later", "judged"),
    [
        ((answer(3),), 3),
        ((answer(3, purpose=UPKEEP),), 2),
        ((answer(3, purpose=UPKEEP), answer(4, purpose=UPKEEP)), 2),
        ((answer(3, purpose=UPKEEP), answer(4)), 4),
        ((answer(3, output="completion"),), 2),
    ],
    ids=["second turn", "title", "title and notes", "title and second turn", "call of a tool"],
)
def test_the_newest_reply_to_the_user_is_judged(later: tuple[OperationSpan, ...], judged: int) -> None:
    feedback = span(1, 9, OpKind.JUDGE, at=30, attributes={EVALUATION_LABEL: "fail"})
    graph = build_graph([answer(2), *later, feedback])
    assert graph.judged(feedback.origin) == origin_of(1, judged)


def test_a_trace_of_upkeep_alone_is_judged_by_its_newest_call() -> None:
    feedback = span(1, 9, OpKind.JUDGE, at=30, attributes={EVALUATION_LABEL: "fail"})
    graph = build_graph([answer(2, purpose=UPKEEP), answer(3, purpose=UPKEEP), feedback])
    assert graph.judged(feedback.origin) == origin_of(1, 3)
