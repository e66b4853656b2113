"""Which traces are attributed, and when."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from memtrace_otel.annotate import AttributionMetrics
from memtrace_otel.graph import EvolutionGraph
from memtrace_otel.model import Failure, OperationSpan, Variable, Verdict
from memtrace_otel.otlp import encode_request
from memtrace_otel.otlp.decode import IndexedFields
from memtrace_otel.pipeline import diagnose as diagnosis
from memtrace_otel.semconv import ATTRIBUTION_SCOPE
from memtrace_otel.serve import attribution
from memtrace_otel.serve.arrivals import WatchedStore
from memtrace_otel.serve.attribution import Attribution, Outcome
from memtrace_otel.serve.progress import Progress
from memtrace_otel.sources import NewSpan, SqliteStore, StoreError
from tests.leaves import break_leaf

A, B = "a" * 32, "b" * 32
UNIQUE = "memory:0a0b0c0d-0000-4000-8000-000000000001"
APP = {"service.name": "assistant"}


def span(
    trace_id: str,
    start: int,
    *,
    kind: str = "",
    scope: str = "",
    evaluated: bool = False,
    label: str = "fail",
    origins: Iterable[str] = (),
    written: Iterable[str] = (),
    by: str = "app",
) -> NewSpan:
    told = ((label, None),) if evaluated else ()
    fields = IndexedFields(kind, scope, set(origins), told, frozenset(written), "mem0")
    return NewSpan(trace_id, "1" * 16, "span", start, by, fields, "assistant")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


@pytest.fixture
def attributed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The traces that were attributed."""
    traces: list[str] = []

    def attribute(store: object, trace_ids: Iterable[str], backend: object) -> tuple[Iterable[str], Outcome]:
        traces.extend(trace_ids)
        return trace_ids, Outcome(Progress(verdicts=1))

    monkeypatch.setattr(attribution, "_attribute", attribute)
    return traces


class Receiver:
    """Takes the verdicts on traces, once each, unless it is `down`."""

    def __init__(self) -> None:
        self.down = True
        self.tries = 0
        self.taken: list[str] = []

    def attribute(self, store: object, trace_ids: Iterable[str], backend: object) -> tuple[Iterable[str], Outcome]:
        self.tries += 1
        if self.down:
            return trace_ids, Outcome(Progress(failed_sends=1), unsent=True)
        self.taken.extend(trace_ids)
        return trace_ids, Outcome(Progress(verdicts=1), sent=True)


class Stored:
    """A store in which every trace works on Ana's memory, but for those that are `missing`."""

    oldest = 0.0
    """Seconds that the oldest request waits."""

    def __init__(
        self, *missing: str, kind: str = "", scope: str = "ana", others: bool = False, together: bool = False
    ) -> None:
        self.together = together
        self.missing = missing
        self.scope = scope
        self.kind = kind
        self.others = others

    def behind(self) -> float:
        return self.oldest

    def turn(self, *, wait: bool) -> AbstractContextManager[bool]:
        assert not wait
        return nullcontext(not self.others)

    def trace(self, trace_id: str) -> list[OperationSpan]:
        if trace_id in self.missing:
            return []
        made = OperationSpan(trace_id, "1" * 16, kind=self.kind, system="mem0", scope=self.scope, start=4, resource=APP)
        return [made]

    def scopes_of(self, trace_id: str) -> list[str]:
        return [span.scope for span in self.trace(trace_id)] if self.together else []


def run(watching: Attribution, store: Stored | WatchedStore = Stored()) -> list[Progress]:  # noqa: B008
    done: list[Progress] = []
    while progress := watching.attribute_next(store):  # type: ignore[arg-type]
        done.append(progress)
    return done


def test_a_trace_without_evaluation_is_left_alone(clock: Clock, attributed: list[str]) -> None:
    watching = Attribution(10)
    watching.notice([span(A, 1)])
    assert watching.wait() == float("inf")


def test_an_evaluated_trace_is_due_when_it_is_quiet(clock: Clock, attributed: list[str]) -> None:
    watching = Attribution(10)
    watching.notice([span(A, 1, evaluated=True)])
    clock.now += 9
    watching.notice([span(A, 2)])
    clock.now += 9
    run(watching)
    assert (attributed, watching.wait()) == ([], 1)
    clock.now += 1
    run(watching)
    assert (attributed, watching.wait()) == ([A], float("inf"))


class Kept:
    """A store with a verdict on each of these traces."""

    def __init__(self, *trace_ids: str) -> None:
        self.trace_ids = trace_ids

    def verdicts(self, trace_id: str) -> list[str]:
        return [trace_id] if trace_id in self.trace_ids else []

    def scopes_of(self, trace_id: str) -> list[str]:
        return []

    def changed_by(self, span: NewSpan) -> set[str]:
        return set()


def test_an_answer_that_passes_costs_nothing(clock: Clock, attributed: list[str]) -> None:
    watching = Attribution(10)
    watching.notice([span(A, 1, evaluated=True, label="pass")], Kept())
    assert watching.wait() == float("inf")


def test_an_answer_that_passes_now_is_looked_at_where_it_failed_before(clock: Clock, attributed: list[str]) -> None:
    watching = Attribution(10)
    watching.notice([span(A, 1, evaluated=True)], Kept())
    clock.now += 10
    run(watching)
    watching.notice([span(A, 2, evaluated=True, label="pass")], Kept())
    watching.notice([span(B, 2, evaluated=True, label="pass")], Kept(B))  # its failure was told long ago
    clock.now += 10
    run(watching)
    assert sorted(attributed) == [A, A, B]


def test_what_waits_of_the_same_memories_is_attributed_together(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []

    def attribute(store: object, trace_ids: Iterable[str], backend: object) -> tuple[Iterable[str], Outcome]:
        calls.append([*trace_ids])
        if "c" * 32 in calls[-1] and len(calls[-1]) > 1:
            raise ValueError("odd beside others")
        return trace_ids, Outcome(Progress(verdicts=1))

    monkeypatch.setattr(attribution, "_attribute", attribute)
    watching = Attribution(10)
    watching.notice([span(A, 5, evaluated=True), span(B, 5, evaluated=True)])
    clock.now += 10
    run(watching, Stored(together=True))
    assert calls == [[A, B]]
    assert watching.wait() == float("inf")
    watching.notice([span(A, 6), span(B, 6), span("c" * 32, 5, evaluated=True)])
    clock.now += 5
    watching.notice([span("d" * 32, 5, evaluated=True)])  # not yet quiet
    clock.now += 5
    while watching.wait() == 0:
        watching.attribute_next(Stored(together=True))  # type: ignore[arg-type]
    first, *rest = calls[1:]
    assert (sorted(first), sorted(rest)) == ([A, B, "c" * 32], [[A], [B], ["c" * 32]])
    assert watching.wait() == 5


def test_while_another_has_the_turn_no_trace_is_tried(clock: Clock, attributed: list[str]) -> None:
    watching = Attribution(10)
    watching.notice([span(A, 5, evaluated=True), span(B, 5, evaluated=True)])
    clock.now += 10
    watching.attribute_next(Stored(others=True))  # type: ignore[arg-type]
    assert 0 < watching.wait() < 1
    run(watching)
    assert attributed == []
    clock.now += watching.wait()
    run(watching)
    assert sorted(attributed) == [A, B]


def test_nothing_is_attributed_past_what_waits_since_before_it_was_quiet(clock: Clock, attributed: list[str]) -> None:
    watching = Attribution(10)
    watching.notice([span(A, 5, evaluated=True)])
    clock.now += 10
    stored = Stored()
    stored.oldest = 10.1
    run(watching, stored)
    assert attributed == []
    assert 0 < watching.wait() < 1
    clock.now += watching.wait()
    stored.oldest = 9.9
    run(watching, stored)
    assert attributed == [A]


def test_without_a_quiet_period_what_came_this_moment_holds_nothing_up(clock: Clock, attributed: list[str]) -> None:
    watching = Attribution(0)
    watching.notice([span(A, 5, evaluated=True)])
    clock.now += watching.wait()
    stored = Stored()
    stored.oldest = 0.1
    run(watching, stored)
    assert attributed == [A]


def test_an_error_beside_others_counts_once_and_hides_no_verdict(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """B works on the memory of A, but its answer came from another one, too: it has a graph of its own."""
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    failing = {"gen_ai.evaluation.score.label": "fail"}
    written = OperationSpan(
        "c" * 32, "1" * 16, kind="create", scope="bo", start=1, end=2, outputs=(Variable("fact:1"),)
    )
    hit = Variable("fact:1", "hit", written.origin)
    answers = [
        OperationSpan(
            trace_id, "2" * 16, kind="respond", scope="ana", start=3, end=4, inputs=inputs, attributes=failing
        )
        for trace_id, inputs in ((A, ()), (B, (hit,)))
    ]
    real = diagnosis.attribute

    def attribute(graph: EvolutionGraph, failure: Failure) -> Verdict:
        if failure.trace_id == B:
            raise ValueError("odd")
        return real(graph, failure)

    monkeypatch.setattr(diagnosis, "attribute", attribute)
    failed: list[float] = []
    monkeypatch.setattr(AttributionMetrics, "failed", lambda self, seconds: failed.append(seconds))
    watching = Attribution(10)
    done: list[Progress] = []
    with WatchedStore.open(tmp_path / "a.db") as store:
        store.add_request(encode_request([written, *answers]))
        batch = store.decode_batch()
        assert batch
        watching.notice(batch.spans, store)
        while watching.answering():
            pass
        clock.now += 10
        while watching.wait() == 0:
            done.append(watching.attribute_next(store))
    assert (sum(one.verdicts for one in done), sum(one.errors for one in done), len(failed)) == (1, 1, 1)


def test_a_trace_that_never_gets_quiet_is_not_forgotten(clock: Clock, attributed: list[str]) -> None:
    watching = Attribution(10)
    watching.notice([span(A, 1, evaluated=True)])
    for _ in range(21):
        run(watching)
        clock.now += 5
        watching.notice([span(A, 2)])
    run(watching)
    assert attributed == [A]


def test_the_trace_of_a_judged_answer_is_watched_too(clock: Clock, attributed: list[str]) -> None:
    watching = Attribution(10)
    watching.notice([span(B, 5, evaluated=True, origins=[f"{A}-{'1' * 16}"])])
    clock.now += 10
    run(watching)
    assert sorted(attributed) == [A, B]


@pytest.mark.parametrize("resumed", [False, True])
def test_what_an_evaluated_answer_read_is_no_judged_answer(
    clock: Clock, attributed: list[str], resumed: bool, tmp_path: Path
) -> None:
    watching = Attribution(10)
    with WatchedStore.open(tmp_path / "a.db") as store:
        wrote = OperationSpan(A, "1" * 16, kind="create", start=time.time_ns())
        hit = Variable("memory:1", "hit", origin=wrote.origin)
        said = {"gen_ai.evaluation.score.label": "fail"}
        answer = OperationSpan(B, "2" * 16, kind="respond", start=time.time_ns(), inputs=(hit,), attributes=said)
        store.add_request(encode_request([wrote, answer]))
        batch = store.decode_batch()
        assert batch
        if resumed:
            watching.resume(store)
        else:
            watching.notice(batch.spans)
        watching.answering()
        clock.now += 10
        run(watching, store)
    assert attributed == [B]


@pytest.mark.parametrize(
    ("late", "again"),
    [
        (span(B, 3, scope="ana"), True),
        (span(B, 9, scope="ana"), False),  # after the answer
        (span(B, 3, scope="bo"), False),  # another memory
        (span(B, 3), False),
        (span(A, 9), True),  # the trace itself
        (span(A, 9, evaluated=True, by=ATTRIBUTION_SCOPE), False),  # our own verdict
    ],
)
def test_a_late_span_that_may_matter_makes_it_due_again(
    clock: Clock, attributed: list[str], late: NewSpan, again: bool
) -> None:
    watching = Attribution(10)
    watching.notice([span(A, 4, scope="ana")])
    watching.notice([span(A, 5, evaluated=True)])
    clock.now += 10
    run(watching)
    watching.notice([late])
    clock.now += 10
    run(watching)
    assert attributed == [A, A] if again else [A]


def test_an_evaluation_may_come_before_its_trace(clock: Clock, attributed: list[str]) -> None:
    watching = Attribution(10)
    watching.notice([span(A, 5, evaluated=True)])
    clock.now += 10
    run(watching, Stored(A))
    assert (attributed, watching.wait()) == ([], float("inf"))
    watching.notice([span(A, 4)])
    clock.now += 10
    run(watching)
    assert attributed == [A]


def test_feedback_waits_a_day_for_the_answer(clock: Clock, attributed: list[str]) -> None:
    watching = Attribution(10)
    watching.notice([span(A, 5, evaluated=True)])
    clock.now += 10
    run(watching)
    clock.now += 20 * 3600
    watching.notice([span(B, 9)])
    watching.notice([span(A, 4)])
    clock.now += 10
    run(watching)
    assert attributed == [A, A]


def test_who_answers_is_told_a_quiet_period_before_a_verdict(clock: Clock, attributed: list[str]) -> None:
    """Also of an answer of long ago, which is nowhere but in the store."""
    watching, told = Attribution(10), Progress(answering=frozenset({("mem0", "assistant")}))
    watching.notice([span(B, 5, evaluated=True, origins=[f"{A}-{'1' * 16}"])])
    clock.now += 10
    assert run(watching, Stored(B, kind="respond"))[:1] == [told]
    assert attributed == []
    assert watching.wait() == 10
    clock.now += 10
    run(watching, Stored(B, kind="respond"))
    assert attributed == [A]
    watching.notice([span(A, 9, kind="respond", evaluated=True)])
    assert not watching.answering()
    clock.now += 10
    run(watching, Stored(kind="respond"))
    assert attributed == [A, A]


@pytest.mark.parametrize("decoded", ["here", "by another", "before the start"])
def test_who_answers_is_told_whoever_decoded_it(clock: Clock, decoded: str, tmp_path: Path) -> None:
    answer = OperationSpan(A, "1" * 16, kind="respond", system="mem0", start=time.time_ns(), resource=APP)
    watching = Attribution(10)
    with WatchedStore.open(tmp_path / "a.db") as store, SqliteStore.open(tmp_path / "a.db") as other:
        if decoded != "before the start":
            store.skip()
            watching.resume(store)
        other.add_request(encode_request([answer]))
        if decoded == "here":
            batch = store.decode_batch()
            assert batch
            watching.notice(batch.spans)
        else:
            other.decode()
        if decoded == "before the start":
            store.skip()
            watching.resume(store)
        for spans in store.arrived():
            watching.notice(spans)
        assert watching.attribute_next(store).answering == {("mem0", "assistant")}
        assert not watching.attribute_next(store)


def test_what_others_decoded_arrives_once_and_nothing_of_the_own(tmp_path: Path) -> None:
    by_another: list[str] = []
    with WatchedStore.open(tmp_path / "a.db") as store, SqliteStore.open(tmp_path / "a.db") as other:
        store.skip()
        for number, who in enumerate(["own", "own", "other", "own", "other", "other", "own"], 1):
            spans = [OperationSpan(A, f"{number}{n}".rjust(16, "0"), kind="respond", start=5) for n in range(3)]
            other.add_request(encode_request(spans))
            if who == "own":
                assert store.decode_batch()
            else:
                other.decode()
                by_another += [span.span_id for span in spans]
        assert [span.span_id for page in store.arrived() for span in page] == by_another
        assert not list(store.arrived())


def test_after_an_error_the_rest_of_what_arrived_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with WatchedStore.open(tmp_path / "a.db") as store, SqliteStore.open(tmp_path / "a.db") as other:
        store.skip()
        spans = [OperationSpan(A, f"{n + 1:016x}", kind="respond", start=5) for n in range(600)]
        other.add_request(encode_request(spans))
        other.decode()
        seen: list[str] = []
        reading = store._indexed

        def break_off(*asked: object) -> tuple[list[tuple[object, ...]], list[NewSpan]]:
            if len(seen) == 256:
                monkeypatch.undo()
                raise StoreError(tmp_path, "the disk was away")
            return reading(*asked)  # type: ignore[arg-type]

        def look() -> None:
            for page in store.arrived():
                seen.extend(span.span_id for span in page)

        monkeypatch.setattr(store, "_indexed", break_off)
        with pytest.raises(StoreError):
            look()
        assert len(seen) == 256
        look()
        assert {*seen} == {span.span_id for span in spans}


@pytest.mark.parametrize("resumed", [False, True])
def test_a_damaged_page_keeps_the_traces_that_need_it_alone_from_being_attributed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, resumed: bool
) -> None:
    failing = {"gen_ai.evaluation.score.label": "fail"}
    spans = [OperationSpan(A, "1" * 16, kind="create", scope="ana", start=1, attributes={"long": "x" * 3000})]
    spans += [replace(spans[0], trace_id=f"{n:032x}", scope="eve") for n in range(1, 9)]
    spans += [OperationSpan(id, "2" * 16, kind="respond", start=5, attributes=failing) for id in (A, B)]
    with SqliteStore.open(tmp_path / "a.db") as store:
        store.add_request(encode_request(spans))
        store.decode()
        failures = [span for span in store.indexed() if span.fields.evaluations]
    break_leaf(tmp_path / "a.db", "span", 0)
    watching = Attribution(0)
    with WatchedStore.open(tmp_path / "a.db") as store:
        if resumed:
            watching.resume(store)
        else:
            watching.notice(failures, store)
        time.sleep(watching.wait())
        done = run(watching, store)
        assert (sum(one.verdicts for one in done), sum(one.errors for one in done)) == (1, 1)
        assert store.verdicts(B)
    assert watching.wait() == float("inf")
    assert [record.message[:38] for record in caplog.records if "attributed" in record.message] == [f"trace {A}"]


def test_a_verdict_whose_marker_is_not_yet_decoded_is_not_replaced(tmp_path: Path) -> None:
    """It would not be found, so that the next one would stand beside it."""
    failing = {"gen_ai.evaluation.score.label": "fail"}
    answer = OperationSpan(A, "1" * 16, kind="respond", start=5, end=6, attributes=failing)
    with WatchedStore.open(tmp_path / "a.db") as store:
        watching = Attribution(0)
        watching.resume(store)
        store.add_request(encode_request([answer]))
        batch = store.decode_batch()
        assert batch
        watching.notice(batch.spans, store)
        time.sleep(watching.wait())
        assert [progress.verdicts for progress in run(watching, store) if progress.verdicts] == [1]
        watching.notice(batch.spans, store)
        assert store.waiting_bytes()
        time.sleep(watching.wait())
        assert not run(watching, store)
        assert watching.wait() > 0
        assert store.decode_batch()
        time.sleep(watching.wait())
        run(watching, store)
        assert watching.wait() == float("inf")


@pytest.mark.parametrize("compact", [False, True])
def test_what_others_decoded_after_a_prune_arrives_too(tmp_path: Path, compact: bool) -> None:
    def add(trace_id: str, start: int, spans: int) -> list[str]:
        made = [OperationSpan(trace_id, f"{n + 1:016x}", kind="respond", start=start) for n in range(spans)]
        other.add_request(encode_request(made))
        other.decode()
        return [span.origin for span in made]

    def arrived() -> list[str]:
        return [f"{span.trace_id}-{span.span_id}" for page in store.arrived() for span in page]

    with WatchedStore.open(tmp_path / "a.db") as store, SqliteStore.open(tmp_path / "a.db") as other:
        store.skip()
        for start in (5, 7, 9):
            first = add(A, start, 3)
            assert arrived() == first
            assert other.prune(before=start + 1)
            if compact:
                other.compact()
            second = add(B, start + 1, 5)
            assert arrived() == second
            add(A, start + 1, 3)
            assert other.prune(before=start + 2).spans == 8
            assert arrived() == []


def test_while_another_process_attributes_the_trace_stays_due(clock: Clock, attributed: list[str]) -> None:
    watching = Attribution(10)
    watching.notice([span(A, 5, evaluated=True)])
    clock.now += 10
    run(watching, Stored(others=True))
    assert attributed == []
    assert 0 < watching.wait() < 1
    clock.now += watching.wait()
    run(watching)
    assert (attributed, watching.wait()) == ([A], float("inf"))


@dataclass
class Known:
    """Memories of traces, and those whose records every span changes."""

    of: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    changed: set[str] = field(default_factory=set[str])

    def scopes_of(self, trace_id: str) -> set[str]:
        return self.of.get(trace_id, set())

    def changed_by(self, span: NewSpan) -> set[str]:
        return self.changed


@pytest.mark.parametrize("together", [True, False], ids=["with the trace", "after it"])
def test_a_late_step_without_a_scope_is_of_the_memory_of_its_trace(
    clock: Clock, attributed: list[str], together: bool
) -> None:
    watching = Attribution(10)
    watching.notice([span(A, 5, scope="ana", evaluated=True)])
    clock.now += 10
    run(watching)
    watching.notice([span(B, 1)], Known({B: {"ana"}}))  # lends its place only
    assert watching.wait() == float("inf")
    step = span(B, 1, kind="extract")
    if together:
        watching.notice([step, span(B, 9, scope="ana")])
    else:
        watching.notice([step], Known({B: {"", "ana"}}))
    assert watching.wait() == 10


def test_a_late_change_by_another_memory_makes_those_due_whose_records_it_names(
    clock: Clock, attributed: list[str]
) -> None:
    watching = Attribution(10)
    watching.notice([span(A, 5, scope="ana", evaluated=True)])
    clock.now += 10
    run(watching)
    watching.notice([span(B, 1, kind="delete", scope="bo")], Known(changed={"cy"}))
    assert watching.wait() == float("inf")
    watching.notice([span(B, 1, kind="delete", scope="bo")], Known(changed={"ana"}))
    assert watching.wait() == 10


@pytest.mark.parametrize(("kind", "changed"), [("delete", {"ana"}), ("ingest", {"ana"}), ("retrieve", set[str]())])
@pytest.mark.parametrize("ref", ["memory:1", UNIQUE])
def test_a_change_names_the_memory_of_a_record_by_origin_or_by_a_unique_id(
    tmp_path: Path, ref: str, kind: str, changed: set[str]
) -> None:
    with WatchedStore.open(tmp_path / "a.db") as store:
        write = OperationSpan(A, "1" * 16, kind="create", scope="ana", outputs=(Variable(ref, action="ADD"),))
        store.add_request(encode_request([write]))
        store.decode_batch()
        origins = [] if ref == UNIQUE else [write.origin]
        assert store.changed_by(span(B, 9, kind=kind, scope="bo", origins=origins, written=[ref])) == changed


def test_a_change_in_the_trace_of_the_record_names_its_memory_too(tmp_path: Path) -> None:
    with WatchedStore.open(tmp_path / "a.db") as store:
        write = OperationSpan(A, "1" * 16, kind="create", scope="ana", outputs=(Variable("memory:1", action="ADD"),))
        store.add_request(encode_request([write]))
        store.decode_batch()
        change = span(A, 9, kind="delete", scope="bo", origins=[write.origin], written=["memory:1"])
        assert store.changed_by(change) == {"ana"}


def test_the_memory_that_made_a_record_is_named_however_often_others_wrote_it(tmp_path: Path) -> None:
    with WatchedStore.open(tmp_path / "a.db") as store:
        outputs = (Variable(UNIQUE, action="ADD"),)
        writes = [
            OperationSpan(f"{n:032x}", "1" * 16, kind="update", scope="bo" if n > 1 else "ana", outputs=outputs)
            for n in range(1, 50)
        ]
        store.add_request(encode_request(writes))
        store.decode_batch()
        assert store.changed_by(span(B, 9, kind="delete", written=[UNIQUE])) == {"ana", "bo"}


def test_a_late_writer_of_a_unique_id_makes_who_read_it_due(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = Outcome(Progress(1), read=frozenset({UNIQUE}))
    monkeypatch.setattr(attribution, "_attribute", lambda store, trace_ids, backend: (trace_ids, outcome))
    watching = Attribution(10)
    watching.notice([span(A, 5, scope="ana", evaluated=True)])
    clock.now += 10
    run(watching)
    watching.notice([span(B, 1, kind="create", scope="bo", written=["memory:1"])])
    assert watching.wait() == float("inf")
    watching.notice([span(B, 1, kind="create", scope="bo", written=[UNIQUE])])
    assert watching.wait() == 10


@pytest.mark.parametrize("kind", ["respond", ""])
def test_a_trace_is_not_watched_for_ever(clock: Clock, attributed: list[str], kind: str) -> None:
    watching = Attribution(10)
    watching.notice([span(A, 5, kind=kind, scope="ana", evaluated=True)])
    clock.now += 10
    run(watching, Stored(kind=kind))
    clock.now += 24 * 3601
    watching.notice([span(B, 9)])
    watching.notice([span(B, 1, scope="ana")])
    assert watching.wait() == float("inf")


def test_of_too_many_traces_that_wait_the_first_is_dropped_and_counted(
    clock: Clock, attributed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attribution, "_MOST_TRACES", 2)
    watching = Attribution(10)
    for trace_id in (A, B, "c" * 32):
        watching.notice([span(trace_id, 5, scope="ana", evaluated=True)])
    assert watching.attribute_next(Stored()) == Progress(errors=1)  # type: ignore[arg-type]
    clock.now += 10
    run(watching)
    assert attributed == [B, "c" * 32]
    watching.notice([span(A, 6, evaluated=True)])  # the one that was done goes, uncounted
    assert not watching.attribute_next(Stored())  # type: ignore[arg-type]


def test_what_the_receiver_did_not_take_is_tried_again_ever_less_often(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = Receiver()
    monkeypatch.setattr(attribution, "_attribute", receiver.attribute)
    watching = Attribution(10)
    watching.notice([span(A, 5, kind="respond", evaluated=True)])
    waits: list[float] = []
    for _ in range(8):
        waits.append(watching.wait())
        clock.now += watching.wait()
        run(watching, Stored(kind="respond"))
        watching.notice([span(B, 9)])  # forgets what is done
    assert waits == [10, 10, 20, 40, 80, 160, 300, 300]
    receiver.down = False
    clock.now += watching.wait()
    run(watching)
    assert (receiver.taken, watching.wait()) == ([A], float("inf"))


def test_one_try_tells_for_all_traces_that_the_receiver_is_down(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = Receiver()
    monkeypatch.setattr(attribution, "_attribute", receiver.attribute)
    watching = Attribution(10)
    watching.notice([span(A, 5, evaluated=True), span(B, 5, evaluated=True)])
    clock.now += 10
    run(watching)
    assert receiver.tries == 2
    clock.now += watching.wait()
    run(watching)
    assert receiver.tries == 3
    receiver.down = False
    clock.now += watching.wait()
    run(watching)
    assert (sorted(receiver.taken), watching.wait()) == ([A, B], float("inf"))


def test_a_verdict_that_is_never_taken_keeps_no_other_one_back(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def attribute(store: object, trace_ids: Iterable[str], backend: object) -> tuple[Iterable[str], Outcome]:
        (trace_id,) = trace_ids
        tried.append(trace_id)
        return [trace_id], Outcome(
            Progress(verdicts=1), unsent=trace_id == A or tried.count(trace_id) < 2, sent=trace_id == B
        )

    monkeypatch.setattr(attribution, "_attribute", attribute)
    watching = Attribution(10)
    watching.notice([span(A, 5, evaluated=True), span(B, 5, evaluated=True)])
    clock.now += 10
    run(watching)
    while tried.count(B) < 2:
        clock.now += watching.wait()
        watching.attribute_next(Stored())  # type: ignore[arg-type]
        assert len(tried) < 6, tried


def test_what_the_graph_names_and_lacks_makes_it_due_again_whatever_memory_it_worked_on(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = [frozenset({B, "c" * 32}), frozenset({"c" * 32}), frozenset[str]()]
    monkeypatch.setattr(
        attribution,
        "_attribute",
        lambda store, trace_ids, backend: (trace_ids, Outcome(Progress(1), missing=missing.pop(0))),
    )
    watching = Attribution(10)
    watching.notice([span(A, 5, scope="ana", evaluated=True)])
    for late, left in (
        (None, 2),
        (span(B, 9, scope="bo"), 1),
        (span(B, 3), 1),
        (span("c" * 32, 9), 0),
        (span("c" * 32, 3), 0),
    ):
        watching.notice([late] if late else [])
        clock.now += 10
        run(watching)
        assert len(missing) == left, late


def test_a_late_span_of_a_memory_behind_the_answer_makes_it_due_again(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = Outcome(Progress(1), scopes=frozenset({"ana"}))
    monkeypatch.setattr(attribution, "_attribute", lambda store, trace_ids, backend: (trace_ids, outcome))
    watching = Attribution(10)
    watching.notice([span(A, 5, evaluated=True)])  # search and answer in traces of their own
    clock.now += 10
    run(watching, Stored(scope=""))
    assert watching.wait() == float("inf")
    watching.notice([span(B, 3, scope="ana")])
    assert watching.wait() == 10


def test_what_arrived_last_is_due_again_however_old_it_is(clock: Clock, tmp_path: Path) -> None:
    asked = OperationSpan(
        A, "1" * 16, name="turn", start=1, end=2, attributes={"gen_ai.evaluation.score.label": "fail"}
    )
    with WatchedStore.open(tmp_path / "a.db") as store:
        store.add_request(encode_request([asked]))
        assert store.decode_batch()
        store.skip()
        watching = Attribution(10)
        watching.resume(store)
        assert watching.wait() == 10


def test_a_late_span_without_a_memory_is_waited_for_where_its_trace_is_named(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    early = OperationSpan(
        A, "1" * 16, kind="extract", start=1, end=2, outputs=(Variable("fact:1", "fact", content="x"),)
    )
    fact = Variable("fact:1", "fact", origin=early.origin, content="x")
    written = OperationSpan(
        B,
        "2" * 16,
        kind="create",
        scope="ana",
        start=3,
        end=4,
        inputs=(fact,),
        outputs=(Variable("memory:1", "memory", content="x"),),
    )
    hit = Variable("memory:1", "hit", origin=written.origin, content="x")
    answer = OperationSpan(
        B, "3" * 16, kind="respond", scope="ana", start=5, end=6, inputs=(hit,),
        outputs=(Variable("answer:1", "answer", content="x"),), attributes={"gen_ai.evaluation.score.label": "fail"},
    )  # fmt: skip
    watching = Attribution(10)
    with WatchedStore.open(tmp_path / "a.db") as store:
        for spans in ((written, answer), (early,)):
            store.add_request(encode_request(spans))
            batch = store.decode_batch()
            assert batch
            watching.notice(batch.spans)
            assert watching.wait() == 10
            clock.now += 10
            run(watching, store)
            assert watching.wait() == float("inf")


def test_no_graph_is_held_when_nothing_is_due(clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    failing = {"gen_ai.evaluation.score.label": "fail"}
    answers = [
        OperationSpan(trace_id, "1" * 16, kind="respond", scope=trace_id[:16], start=1, end=2, attributes=failing)
        for trace_id in (A, B)
    ]
    watching = Attribution(10)
    gc.collect()
    held = sum(isinstance(one, EvolutionGraph) for one in gc.get_objects())
    with WatchedStore.open(tmp_path / "a.db") as store:
        store.add_request(encode_request(answers))
        batch = store.decode_batch()
        assert batch
        watching.notice(batch.spans)
        clock.now += 10
        run(watching, store)
        assert len(store.verdicts()) == 2
    assert sum(isinstance(one, EvolutionGraph) for one in gc.get_objects()) == held


@pytest.mark.parametrize("named", ["memory:1", UNIQUE])
def test_a_late_change_of_a_record_without_a_memory_makes_it_due_again(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named: str
) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    written = OperationSpan(
        A, "1" * 16, kind="create", start=1, end=2, outputs=(Variable(named, "memory", action="ADD", content="x"),)
    )
    hit = Variable(named, "hit", origin=written.origin, content="x")
    answer = OperationSpan(
        B, "2" * 16, kind="respond", start=5, end=6, inputs=(hit,),
        outputs=(Variable("answer:1", "answer", content="x"),), attributes={"gen_ai.evaluation.score.label": "fail"},
    )  # fmt: skip
    previous = (Variable(named, "previous", origin=written.origin),) if named != UNIQUE else ()
    change = Variable(named, "memory", action="UPDATE", content="y")
    update, later = [
        OperationSpan(c * 32, "3" * 16, kind="update", start=at, end=at + 1, inputs=previous, outputs=(change,))
        for c, at in (("c", 3), ("d", 7))
    ]
    watching = Attribution(10)
    with WatchedStore.open(tmp_path / "a.db") as store:
        for spans, wait in (((written, answer), 10), ((update,), 10), ((later,), float("inf"))):
            store.add_request(encode_request(spans))
            batch = store.decode_batch()
            assert batch
            watching.notice(batch.spans, store)
            assert watching.wait() == wait, spans
            clock.now += 10
            run(watching, store)
            assert watching.wait() == float("inf")
