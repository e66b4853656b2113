"""Equal ids in two memories that one answer draws on are two records; what a missing write put there is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memtrace_otel.attribution import attribute_trace
from memtrace_otel.graph import build_graph
from memtrace_otel.model import OperationSpan, Variable, Verdict
from memtrace_otel.semconv import Action, FailureType, OpKind, Role
from memtrace_otel.testing import contract_span

ANN, BOB, ANSWER = "a" * 16, "b" * 16, 9
QUERY = Variable("query:q", Role.QUERY, content="Where does Ann live?")
LISBON = Variable("memory:1", content="Ann lives in Lisbon", action=Action.ADD)


def told(
    trace: int, scope: str, message: str, made: Variable, *read: Variable, kind: str = OpKind.CREATE
) -> OperationSpan:
    inputs = (Variable(f"message:{trace}", Role.MESSAGE, content=message), *read)
    return contract_span(trace, 1, trace, kind=kind, scope=scope, inputs=inputs, outputs=(made,))


def searched(number: int, scope: str, *hits: Variable) -> OperationSpan:
    text = "\n".join(hit.content for hit in hits)
    context = Variable(f"context:{number:016x}", content=text)
    return contract_span(
        ANSWER, number, 20, kind=OpKind.RETRIEVE, scope=scope, inputs=(QUERY, *hits), outputs=(context,)
    )


def read(span: OperationSpan, role: str = Role.HIT) -> Variable:
    [output] = span.outputs
    return Variable(output.ref, role, span.origin, output.content)


def answered(text: str, *searches: OperationSpan) -> list[OperationSpan]:
    answer = Variable("answer:a", content=text)
    inputs = (QUERY, *(read(search, Role.CONTEXT) for search in searches))
    respond = contract_span(ANSWER, 8, 30, kind=OpKind.RESPOND, inputs=inputs, outputs=(answer,))
    judged = (
        QUERY,
        Variable("answer:a", Role.ANSWER, respond.origin),
        Variable("expected:e", Role.EXPECTED, content="Lisbon"),
    )
    label = {"gen_ai.evaluation.score.label": "fail"}
    return [*searches, respond, contract_span(10, 1, 40, kind=OpKind.JUDGE, inputs=judged, attributes=label)]


def verdict_on(*spans: OperationSpan) -> Verdict:
    [verdict] = attribute_trace(build_graph(spans), f"{ANSWER:032x}")
    return verdict


def of(verdict: Verdict) -> tuple[str, str, bool]:
    return verdict.failure_type, f"{verdict.trace_id}-{verdict.span_id}", verdict.complete


@pytest.mark.parametrize("ref", ["memory:1", "memory:2"], ids=["the same id", "another id"])
@pytest.mark.parametrize("found", [False, True], ids=["not found", "found and ignored"])
@pytest.mark.parametrize("deleted", [False, True], ids=["kept there", "deleted there"])
def test_what_another_memory_does_to_its_record_of_that_id_is_no_loss(ref: str, found: bool, deleted: bool) -> None:
    """Which of the two was written last tells nothing."""
    lives = told(1, ANN, "I moved to Lisbon.", LISBON)
    tea = told(2, BOB, "I like green tea.", Variable(ref, content="Bob likes green tea", action=Action.ADD))
    gone = told(3, BOB, "Forget it.", Variable(ref, action=Action.DELETE), read(tea, Role.PREVIOUS), kind=OpKind.DELETE)
    own = searched(1, ANN, *([read(lives)] if found else []))
    other = searched(2, BOB, *([] if deleted else [read(tea)]))
    spans = answered("I do not know where Ann lives", own, other)
    verdict = verdict_on(lives, tea, *([gone] if deleted else []), *spans)
    to_blame = (FailureType.RESPONSE, spans[2]) if found else (FailureType.RETRIEVAL, own)
    assert of(verdict) == (to_blame[0], to_blame[1].origin, True)


@pytest.mark.parametrize("same", [True, False], ids=["the same id", "another id"])
def test_what_another_memory_extracts_from_a_message_of_that_id_is_not_what_this_one_did(same: bool) -> None:
    porto = Variable("memory:1", content="Ann lives in Porto", action=Action.ADD)
    lives = told(1, ANN, "I moved to Lisbon in May.", porto, kind=OpKind.INGEST)
    message = Variable("message:1" if same else "message:2", Role.MESSAGE, content="I like green tea.")
    fact = Variable("fact:f", content="Bob likes green tea")
    extract = contract_span(2, 1, 2, kind=OpKind.EXTRACT, scope=BOB, inputs=(message,), outputs=(fact,))
    tea = Variable("memory:2", content="Bob likes green tea", action=Action.ADD)
    kept = contract_span(2, 2, 3, kind=OpKind.CREATE, scope=BOB, inputs=(read(extract, Role.EVIDENCE),), outputs=(tea,))
    spans = answered("Ann lives in Porto", searched(1, ANN, read(lives)), searched(2, BOB, read(kept)))
    assert of(verdict_on(lives, extract, kept, *spans)) == (FailureType.EXTRACTION, lives.origin, True)


def test_a_record_that_a_write_without_a_scope_began_is_of_the_memory_that_goes_on() -> None:
    lives = told(1, "", "I moved to Lisbon.", LISBON)
    porto = Variable("memory:1", content="Ann likes tea", action=Action.UPDATE)
    changed = told(2, ANN, "I like tea.", porto, kind=OpKind.UPDATE)
    spans = answered("I do not know where Ann lives", searched(1, ANN, read(changed)))
    assert of(verdict_on(lives, changed, *spans))[:2] == (FailureType.UPDATE, changed.origin)


@pytest.mark.parametrize("missing", ["first", "last"])
def test_where_a_write_is_missing_the_verdict_is_incomplete_and_takes_no_other_version_for_it(missing: str) -> None:
    lives = told(1, ANN, "I moved to Lisbon.", LISBON)
    tea = Variable("memory:1", content="Ann likes tea", action=Action.UPDATE)
    changed = told(2, ANN, "I like tea.", tea, read(lives, Role.PREVIOUS), kind=OpKind.UPDATE)
    hit = Variable("memory:1", Role.HIT, changed.origin)
    spans = answered("I do not know where Ann lives", searched(1, ANN, hit))
    assert of(verdict_on(lives, changed, *spans)) == (FailureType.UPDATE, changed.origin, True)
    verdict = verdict_on(changed if missing == "first" else lives, *spans)
    assert not verdict.complete
    assert verdict.failure_type not in (FailureType.RESPONSE, FailureType.ANNOTATION)


def test_a_write_without_a_scope_joins_no_two_memories() -> None:
    """Ann's record was changed by somebody who says no scope, before Bob wrote one of that id."""
    tea = Variable("memory:1", content="Bob likes green tea", action=Action.ADD)
    lives, bobs = told(1, ANN, "I moved to Lisbon.", LISBON), told(3, BOB, "I like green tea.", tea)
    again = told(2, "", "I moved to Lisbon.", replace(LISBON, action=Action.UPDATE), kind=OpKind.UPDATE)
    spans = answered("I do not know where Ann lives", searched(1, ANN), searched(2, BOB, read(bobs)))
    assert verdict_on(lives, again, bobs, *spans).failure_type == FailureType.RETRIEVAL


@pytest.mark.parametrize("first", [ANN, BOB])
def test_of_which_memory_a_deletion_without_a_scope_is_does_not_go_by_who_was_first(first: str) -> None:
    tea = Variable("memory:1", content="Bob likes green tea", action=Action.ADD)
    anns = told(1 if first == ANN else 2, ANN, "I moved to Lisbon.", LISBON)
    bobs = told(2 if first == ANN else 1, BOB, "I like green tea.", tea)
    gone = told(3, "", "Forget it.", Variable("memory:1", action=Action.DELETE), kind=OpKind.DELETE)
    spans = answered("I do not know where Ann lives", searched(1, ANN), searched(2, BOB))
    assert verdict_on(anns, bobs, gone, *spans).failure_type == FailureType.RETRIEVAL


def test_a_hit_whose_origin_nobody_recorded_is_the_only_record_of_that_id_whatever_the_scope() -> None:
    lives = told(1, ANN, "I moved to Lisbon.", LISBON)
    hit = Variable("memory:1", Role.HIT)
    verdict = verdict_on(lives, *answered("I do not know where Ann lives", searched(1, "c" * 16, hit)))
    assert verdict.failure_type == FailureType.RESPONSE


def test_a_missing_write_of_a_record_that_did_not_reach_the_model_changes_nothing() -> None:
    """Retention takes the old writes of every record that lives long."""
    dog = Variable("memory:7", content="Ann has a dog", action=Action.ADD)
    had = told(1, ANN, "I have a dog.", dog)
    old = replace(dog, content="Ann has an old dog", action=Action.UPDATE)
    aged = told(2, ANN, "My dog is old.", old, read(had, Role.PREVIOUS), kind=OpKind.UPDATE)
    lives = told(3, ANN, "I moved to Lisbon.", LISBON)
    spans = answered("I do not know where Ann lives", searched(1, ANN, read(lives)))
    whole, part = verdict_on(had, aged, lives, *spans), verdict_on(aged, lives, *spans)
    assert of(whole) == of(part) == (FailureType.RESPONSE, spans[1].origin, True)


def test_nobody_says_from_outside_that_an_answer_is_not_there() -> None:
    lives = told(1, ANN, "I moved to Lisbon.", LISBON)
    spans = [replace(s, incomplete=("missing",)) for s in answered("I do not know", searched(1, ANN, read(lives)))]
    assert not verdict_on(lives, *spans).failure.lacks_answer
    assert verdict_on(lives, *(s for s in spans if s.kind != OpKind.RESPOND)).failure.lacks_answer
