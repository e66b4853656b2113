"""`diagnose`: a verdict does not depend on the traces beside it, and outlasts its evidence."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from sqlite3 import connect

import pytest

from memtrace_otel import semconv
from memtrace_otel.annotate import MemoryLog
from memtrace_otel.attribution import verdict_json
from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import encode_request
from memtrace_otel.pipeline.diagnose import diagnose, record
from memtrace_otel.semconv import Action, FailureType, OpKind, Role
from memtrace_otel.sources import SqliteStore
from tests.unit.graph.conftest import ALICE, BOB, origin_of, put, seen, span
from tests.unit.sources.listed_source import ListedSource

FLIGHT = "Alice flies to Lisbon on 17 April"


def failing(trace: int, scope: str = "", *, searched: bool = False) -> list[OperationSpan]:
    """A wrong answer, with or without a search, and its judgement."""
    query = seen("query:q", role=Role.QUERY, content="When does she fly?")
    context = seen(f"context:{1:016x}", origin_of(trace, 1), role=Role.CONTEXT)
    answer = seen(f"answer:{2:016x}", origin_of(trace, 2), role=Role.ANSWER)
    spans = [
        span(trace, 1, OpKind.RETRIEVE, at=trace, scope=scope, inputs=[query], outputs=[put(context.ref, "nothing")]),
        span(
            *(trace, 2, OpKind.RESPOND),
            at=trace + 1,
            scope=scope,
            inputs=[query, context] if searched else [query],
            outputs=[put(answer.ref, "I do not know")],
        ),
        span(
            *(trace, 3, OpKind.JUDGE),
            at=trace + 2,
            inputs=[query, answer, put("expected:e", "17 April", role=Role.EXPECTED)],
            attributes={semconv.EVALUATION_LABEL: "fail"},
        ),
    ]
    return spans if searched else spans[1:]


def test_all_verdicts_are_those_of_each_trace_alone(tmp_path: Path) -> None:
    told = [put("message:m", FLIGHT, role=Role.MESSAGE)]
    spans = [
        span(1, 1, OpKind.CREATE, scope=ALICE, inputs=told, outputs=[put("memory:a", FLIGHT, action=Action.ADD)]),
        *failing(10, ALICE, searched=True),
        *failing(20),  # no memory is behind it
        *failing(30, BOB, searched=True),
        *failing(40, ALICE, searched=True),
    ]
    with SqliteStore.open(tmp_path / "spans.db") as store:
        store.add_request(encode_request(spans))
        found = {v.failure.trace_id: v for diagnosis in diagnose(store, store) for v in diagnosis.verdicts}
        alone = [v for trace_id in found for d in diagnose(store, store, [trace_id]) for v in d.verdicts]
    assert sorted(int(trace_id, 16) for trace_id in found) == [10, 20, 30, 40]
    for verdict in alone:
        together = found[verdict.failure.trace_id]
        assert (verdict.failure_type, verdict.reason) == (together.failure_type, together.reason)
    types = {int(trace_id, 16): verdict.failure_type for trace_id, verdict in found.items()}
    assert set(types.values()) == {"retrieval"}
    assert "memory was not asked" in found[f"{20:032x}"].reason
    assert "a scope that was not searched" in found[f"{30:032x}"].reason
    assert [found[f"{trace:032x}"].complete for trace in (10, 20, 30, 40)] == [True, False, False, True]


def test_a_burst_of_failures_of_one_user_loads_its_memory_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    trace = SqliteStore.trace
    monkeypatch.setattr(SqliteStore, "trace", lambda self, trace_id: read.append(trace_id) or trace(self, trace_id))
    with closing(SqliteStore.open(tmp_path / "run.db")) as store:
        store.add_request(encode_request([span for number in range(1, 7) for span in failing(number, ALICE)]))
        burst = [verdict for found in diagnose(store, store) for verdict in found.verdicts]
    assert len(burst) == 6
    assert set(Counter(read).values()) == {2}  # with the memory of the user, and with all memories


def test_a_damaged_span_makes_the_verdicts_of_its_memory_incomplete(tmp_path: Path) -> None:
    path = tmp_path / "spans.db"
    written = span(1, 1, OpKind.CREATE, scope=ALICE, outputs=[put("memory:a", FLIGHT, action=Action.ADD)])
    spans = [written, *failing(10, ALICE, searched=True), *failing(20), *failing(30, BOB, searched=True)]
    with SqliteStore.open(path) as store:
        store.add_request(encode_request(spans))
        store.decode()
        with closing(connect(path)) as connection:
            connection.execute("UPDATE span SET body = x'ff' WHERE trace = ?", (bytes.fromhex(written.trace_id),))
            connection.commit()
        found = {int(id, 16): diagnosis.partial for diagnosis in diagnose(store, store) for id in diagnosis.trace_ids}
    assert found == {10: True, 20: False, 30: False}


def test_another_memory_is_looked_through_in_a_database_only(tmp_path: Path) -> None:
    message, record = put("message:m", FLIGHT, role=Role.MESSAGE), put("memory:a", FLIGHT)
    written = span(1, 1, OpKind.CREATE, scope=ALICE, inputs=[message], outputs=[record])
    spans = [written, *failing(30, BOB, searched=True)]
    with SqliteStore.open(tmp_path / "a.db") as store:
        store.add_request(encode_request(spans))
        sources = (store, ListedSource().tell(spans))
        found = [next(diagnose(source, MemoryLog(), [f"{30:032x}"])).verdicts[0].failure_type for source in sources]
    assert found == [FailureType.RETRIEVAL, FailureType.UNKNOWN]


def limited(requests: int) -> ListedSource:
    """A large memory with a failure, and a small one with two: one of them was judged in another trace."""
    told = {"inputs": [put("message:m", FLIGHT, role=Role.MESSAGE)], "outputs": [put("memory:a", FLIGHT)]}
    written = [span(n, 1, OpKind.CREATE, scope=ALICE if n > 100 else BOB, **told) for n in (1, *range(101, 200))]
    return ListedSource(requests=requests).tell(
        written,
        failing(20, ALICE, searched=True),
        failing(30, BOB, searched=True),
        judged_elsewhere(failing(40, BOB, searched=True), 45),
    )


def judged_elsewhere(spans: list[OperationSpan], trace: int) -> list[OperationSpan]:
    """A failure whose judgement, its last span, is in another trace."""
    return [*spans[:-1], replace(spans[-1], trace_id=f"{trace:032x}")]


def complete(source: ListedSource, *traces: int) -> dict[int, bool]:
    """The verdicts there are, by trace, and whether they are complete."""
    asked = [f"{trace:032x}" for trace in traces]
    verdicts = (verdict for found in diagnose(source, MemoryLog(), asked) for verdict in found.verdicts)
    return {int(verdict.failure.trace_id, 16): verdict.complete for verdict in verdicts}


def test_a_memory_past_what_reading_may_cost_leaves_the_others_whole() -> None:
    alone = {trace: complete(limited(10), trace)[trace] for trace in (20, 30, 40)}
    assert alone == {20: False, 30: True, 40: True}
    assert complete(limited(10), 20, 30, 40) == alone
    assert complete(limited(10), 30, 20, 40) == alone


def test_a_failure_that_another_trace_tells_of_is_one_with_a_memory_past_the_bound() -> None:
    source = limited(10).tell(judged_elsewhere(failing(50, ALICE, searched=True), 55))
    assert complete(source, 50) == {50: False}


def updated(trace: int) -> list[OperationSpan]:
    """A fact, its wrong update in a later trace, a question about it, and the judgement of the answer."""
    first = put("memory:a", FLIGHT, action=Action.ADD)
    later = put("memory:a", "Alice flies to Lisbon", action=Action.UPDATE)
    told = put("message:m", FLIGHT, role=Role.MESSAGE)
    before = seen("memory:a", origin_of(trace, 1), role=Role.PREVIOUS, content=FLIGHT)
    found = seen("memory:a", origin_of(trace + 1, 1), role=Role.HIT, content=later.content)
    search, answer, judge = failing(trace + 2, ALICE, searched=True)
    return [
        span(trace, 1, OpKind.CREATE, at=trace, scope=ALICE, inputs=[told], outputs=[first]),
        span(trace + 1, 1, OpKind.UPDATE, at=trace + 1, scope=ALICE, inputs=[told, before], outputs=[later]),
        replace(search, inputs=(*search.inputs, found)),
        answer,
        judge,
    ]


def test_a_verdict_outlasts_its_evidence(tmp_path: Path) -> None:
    with SqliteStore.open(tmp_path / "spans.db") as store:
        store.add_request(encode_request(updated(10)))
        (first,) = [annotation.verdict for found in diagnose(store, store) for annotation in record(store, found)]
        assert (first.failure_type, first.complete) == ("update", True)
        assert store.prune(before=12 * 10**9).traces == 2
        (again,) = [annotation for found in diagnose(store, store) for annotation in record(store, found)]
        kept = replace(again.verdict, failure=first.failure, reason=first.reason, evidence=first.evidence, when=0)
        assert kept == replace(first, when=0)
        assert (again.new, again.is_new) == (0, False)


def story(kind: str, trace: int) -> list[OperationSpan]:
    """A question about a fact of an earlier trace, wrongly answered, and its judgement: as `kind` of failure."""
    if kind == "update":
        return updated(trace)
    told = put("message:m", FLIGHT, role=Role.MESSAGE)
    record = put("memory:a", "Alice flies" if kind == "extraction" else FLIGHT, action=Action.ADD)
    found = seen("memory:a", origin_of(trace, 1), role=Role.HIT, content=FLIGHT)
    search, *others = failing(trace + 2, ALICE, searched=True)
    return [
        span(trace, 1, OpKind.CREATE, at=trace, scope=ALICE, inputs=[told], outputs=[record]),
        replace(search, inputs=(*search.inputs, found)) if kind == "response" else search,
        *others,
    ]


@pytest.mark.parametrize("kind", ["update", "extraction", "retrieval", "response"])
def test_a_verdict_outlasts_the_oldest_of_what_it_was_made_of(tmp_path: Path, kind: str) -> None:
    with SqliteStore.open(tmp_path / "spans.db") as store:
        store.add_request(encode_request(story(kind, 10)))
        (first,) = [annotation.verdict for found in diagnose(store, store) for annotation in record(store, found)]
        assert (first.failure_type, first.complete) == (kind, True)
        assert store.prune(before=11 * 10**9).traces == 1
        for _ in range(2):
            (again,) = [annotation for found in diagnose(store, store) for annotation in record(store, found)]
            assert verdict_json(again.verdict) == verdict_json(first)
            assert (again.new, again.is_new) == (0, False)


@pytest.mark.parametrize("kind", ["retrieval", "response"])
def test_a_verdict_names_the_writer_of_the_record_that_it_is_about(kind: str, tmp_path: Path) -> None:
    write, *others = story(kind, 20)
    told = put("message:other", "The concert is on 17 April", role=Role.MESSAGE)
    outputs = [put("memory:b", "Alice has a concert on 17 April", action=Action.ADD)]
    another = span(21, 1, OpKind.CREATE, at=20, scope=ALICE, inputs=[told], outputs=outputs)
    with SqliteStore.open(tmp_path / "spans.db") as store:
        store.add_request(encode_request([write, another, *others]))
        (verdict,) = [verdict for found in diagnose(store, store) for verdict in found.verdicts]
    assert verdict.failure_type == kind
    assert [step.origin for step in verdict.evidence if step.role == "record"] == [write.origin]


def test_what_comes_later_still_changes_a_verdict(tmp_path: Path) -> None:
    with SqliteStore.open(tmp_path / "spans.db") as store:
        *early, last = updated(10)
        store.add_request(encode_request([early[0], *early[2:], last]))  # without the update
        (first,) = [annotation.verdict for found in diagnose(store, store) for annotation in record(store, found)]
        store.add_request(encode_request([early[1]]))
        (again,) = [annotation.verdict for found in diagnose(store, store) for annotation in record(store, found)]
        assert (again.failure_type, again.replaces) == ("update", first.attribution_id)
        assert first.failure_type != "update"


def test_a_late_span_replaces_a_complete_verdict(tmp_path: Path) -> None:
    write, search, answer, judge = story("retrieval", 10)
    lost = seen("memory:b", origin_of(9, 1), role=Role.HIT, content=FLIGHT)  # its writer never arrives
    again_searched = replace(search, span_id=f"{9:016x}", inputs=(*search.inputs, lost))
    with SqliteStore.open(tmp_path / "spans.db") as store:
        store.add_request(encode_request([write, search, answer, judge]))
        (first,) = [annotation.verdict for found in diagnose(store, store) for annotation in record(store, found)]
        store.add_request(encode_request([again_searched]))
        (again,) = [annotation.verdict for found in diagnose(store, store) for annotation in record(store, found)]
        assert (first.failure_type, first.complete) == ("retrieval", True)
        assert (again.failure_type, again.complete, again.replaces) == ("response", False, first.attribution_id)


def test_a_verdict_is_not_kept_before_its_answering_span_is_there(tmp_path: Path) -> None:
    search, answer, judge = failing(10, ALICE, searched=True)
    with SqliteStore.open(tmp_path / "spans.db") as store:
        store.add_request(encode_request([search, judge]))
        (held,) = [one for found in diagnose(store, store) for one in record(store, found)]
        assert (held.is_held, held.is_new, list(store.verdicts(answer.trace_id))) == (True, False, [])
        store.add_request(encode_request([answer]))
        (made,) = [one for found in diagnose(store, store) for one in record(store, found)]
        assert (made.is_held, made.is_new, made.verdict.replaces) == (False, True, "")
        assert [verdict.answer for verdict in store.verdicts(answer.trace_id)] == [answer.origin]
