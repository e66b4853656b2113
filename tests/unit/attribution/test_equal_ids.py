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
def test_a_change_of_an_equal_id_in_another_memory_is_no_loss(ref: str, found: bool, deleted: bool) -> None:
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
def test_an_extraction_of_an_equal_id_in_another_memory_does_not_count(same: bool) -> None:
    porto = Variable("memory:1", content="Ann lives in Porto", action=Action.ADD)
    lives = told(1, ANN, "I moved to Lisbon in May.", porto, kind=OpKind.INGEST)
    message = Variable("message:1" if same else "message:2", Role.MESSAGE, content="I like green tea.")
    fact = Variable("fact:f", content="Bob likes green tea")
    extract = contract_span(2, 1, 2, kind=OpKind.EXTRACT, scope=BOB, inputs=(message,), outputs=(fact,))
    tea = Variable("memory:2", content="Bob likes green tea", action=Action.ADD)
    kept = contract_span(2, 2, 3, kind=OpKind.CREATE, scope=BOB, inputs=(read(extract, Role.EVIDENCE),), outputs=(tea,))
    spans = answered("Ann lives in Porto", searched(1, ANN, read(lives)), searched(2, BOB, read(kept)))
    assert of(verdict_on(lives, extract, kept, *spans)) == (FailureType.EXTRACTION, lives.origin, True)


def test_a_record_created_without_scope_belongs_to_the_memory_that_updates_the_record() -> None:
    lives = told(1, "", "I moved to Lisbon.", LISBON)
    porto = Variable("memory:1", content="Ann likes tea", action=Action.UPDATE)
    changed = told(2, ANN, "I like tea.", porto, kind=OpKind.UPDATE)
    spans = answered("I do not know where Ann lives", searched(1, ANN, read(changed)))
    assert of(verdict_on(lives, changed, *spans))[:2] == (FailureType.UPDATE, changed.origin)


@pytest.mark.parametrize("missing", ["first", "last"])
def test_a_missing_write_makes_the_verdict_incomplete(missing: str) -> None:
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


def test_a_hit_without_origin_is_the_only_record_of_its_id_in_any_scope() -> None:
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


def test_only_a_missing_answering_span_lacks_the_answer() -> None:
    lives = told(1, ANN, "I moved to Lisbon.", LISBON)
    spans = [replace(s, incomplete=("missing",)) for s in answered("I do not know", searched(1, ANN, read(lives)))]
    assert not verdict_on(lives, *spans).failure.lacks_answer
    assert verdict_on(lives, *(s for s in spans if s.kind != OpKind.RESPOND)).failure.lacks_answer


def test_a_lost_search_makes_the_verdict_incomplete() -> None:
    lives = told(1, ANN, "I moved to Lisbon.", LISBON)
    _, *spans = answered("I do not know where Ann lives", searched(1, ANN, read(lives)))
    assert not verdict_on(lives, *spans).complete


TEA = Variable("memory:1", content="Ann likes tea", action=Action.UPDATE)
PORTO = Variable("memory:3", content="Ann lived in Porto as a child", action=Action.ADD)


@pytest.mark.parametrize("answer", ["I do not know", "Ann lives in Porto"])
@pytest.mark.parametrize("kind", [OpKind.UPDATE, OpKind.DELETE])
def test_a_missing_write_before_a_loss_makes_the_verdict_incomplete(answer: str, kind: str) -> None:
    """Neither is a message then the only one that says something."""
    lives, porto = told(1, ANN, "I moved to Lisbon.", LISBON), told(3, ANN, "I lived in Porto as a child.", PORTO)
    gone = TEA if kind == OpKind.UPDATE else Variable("memory:1", action=Action.DELETE)
    lost = told(2, ANN, "I like tea.", gone, read(lives, Role.PREVIOUS), kind=kind)
    spans = answered(answer, searched(1, ANN, read(porto)))
    assert verdict_on(lives, lost, porto, *spans).complete
    part = verdict_on(lost, porto, *spans)
    assert not part.complete
    assert part.failure_type not in (FailureType.RESPONSE, FailureType.ANNOTATION)


def extracted(kind: str = OpKind.UPDATE) -> list[OperationSpan]:
    """What Ann told: taken from it, written, and replaced later or looked at by a decision."""
    message, fact = (
        Variable("message:1", Role.MESSAGE, content="I moved to Lisbon."),
        Variable("fact:f", content="Lisbon"),
    )
    took = contract_span(1, 1, 1, kind=OpKind.EXTRACT, scope=ANN, inputs=(message,), outputs=(fact,))
    wrote = contract_span(1, 2, 1, kind=OpKind.CREATE, scope=ANN, inputs=(_of(took),), outputs=(LISBON,))
    role = Role.PREVIOUS if kind == OpKind.UPDATE else Role.CANDIDATE
    made = TEA if kind == OpKind.UPDATE else Variable("fact:g", content="Ann likes tea")
    return [took, wrote, told(2, ANN, "I like tea.", made, _of(wrote, role), kind=kind)]


def _of(span: OperationSpan, role: str = Role.OTHER) -> Variable:
    """What was read of an operation, as others know it: by name."""
    return Variable(span.outputs[0].ref, role, span.origin)


@pytest.mark.parametrize("kind", [OpKind.UPDATE, OpKind.DECIDE])
def test_a_missing_write_leaves_open_whether_a_fact_was_stored(kind: str) -> None:
    took, wrote, after = extracted(kind)
    porto = told(3, ANN, "I lived in Porto as a child.", PORTO)
    spans = answered("I do not know", searched(1, ANN, read(porto)))
    assert verdict_on(took, wrote, after, porto, *spans).complete
    assert not verdict_on(took, after, porto, *spans).complete


def test_a_missing_extraction_leaves_open_whether_a_fact_was_extracted() -> None:
    took = extracted()[0]
    message = took.inputs[0]
    whole = contract_span(1, 3, 1, kind=OpKind.INGEST, scope=ANN, inputs=(message,))
    decided = contract_span(1, 4, 2, kind=OpKind.DECIDE, scope=ANN, parent_id=whole.span_id, inputs=(_of(took),))
    porto = told(3, ANN, "I lived in Porto as a child.", PORTO)
    verdict = verdict_on(whole, decided, porto, *answered("I do not know", searched(1, ANN, read(porto))))
    assert (verdict.failure_type, verdict.complete) == (FailureType.EXTRACTION, False)


@pytest.mark.parametrize("role", [Role.CANDIDATE, Role.PREVIOUS])
def test_a_missing_later_version_leaves_open_whether_a_record_survived(role: str) -> None:
    """Named by the search that looked at it, or by what replaced it after the answer."""
    lives = told(1, ANN, "I moved to Lisbon.", LISBON)
    changed = told(2, ANN, "I like tea.", TEA, read(lives, Role.PREVIOUS), kind=OpKind.UPDATE)
    again = told(50, ANN, "I like green tea.", TEA, read(changed, Role.PREVIOUS), kind=OpKind.UPDATE)
    spans = answered("I do not know", searched(1, ANN, *([read(changed, role)] if role == Role.CANDIDATE else [])))
    assert of(verdict_on(lives, changed, again, *spans)) == (FailureType.UPDATE, changed.origin, True)
    assert not verdict_on(lives, again, *spans).complete


def aged(trace: int) -> tuple[OperationSpan, OperationSpan]:
    """Another record that was written and renewed."""
    dog = Variable("memory:7", content="Ann has a dog", action=Action.ADD)
    had = told(trace, ANN, "I have a dog.", dog)
    old = replace(dog, content="Ann has an old dog", action=Action.UPDATE)
    return had, told(trace + 1, ANN, "My dog is old.", old, read(had, Role.PREVIOUS), kind=OpKind.UPDATE)
