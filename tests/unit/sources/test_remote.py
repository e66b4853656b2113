"""What every backend shares: searches in halves, nothing asked for twice, bounds."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from memtrace_otel import semconv
from memtrace_otel.graph import EvolutionGraph, load_graph, load_graphs
from memtrace_otel.model import OperationSpan, Variable
from memtrace_otel.semconv import OpKind
from memtrace_otel.sources import SourceLimitError, StoreError
from memtrace_otel.sources.ahead import read_ahead
from memtrace_otel.sources.http import Address, BackendApi, Bounds, FailedError, UnreachableError
from memtrace_otel.sources.kept import KeptTraces, Told
from memtrace_otel.sources.remote import Found
from memtrace_otel.sources.wanted import Wanted
from memtrace_otel.testing import Fill, FillRecords, RecordContract, SourceContract, contract_span
from tests.unit.sources.listed_source import ListedSource

SECOND = 10**9


class TestListedSource(SourceContract):
    @pytest.fixture(params=["at once", "in halves", "keeping"])
    def fill(self, request: pytest.FixtureRequest) -> Fill:
        source = ListedSource()
        source.most = 3 if request.param == "in halves" else source.most
        return source.keeping().tell if request.param == "keeping" else source.tell

    def test_clocks_that_jumped_stop_nothing(self, fill: Fill) -> None:
        spans = [contract_span(1, 1, 0), contract_span(1, 2, 1), contract_span(1, 3, 9_000_000_000)]
        assert fill([spans[2]], [spans[0]], [spans[1]]).trace(spans[0].trace_id) == spans

    def test_more_spans_than_a_page_with_equal_times(self, fill: Fill) -> None:
        """More than fit one answer within a second are an error: some would be missing."""
        source = fill([contract_span(n // 7 + 1, n + 1, 1) for n in range(1000)])
        assert isinstance(source, ListedSource)
        if source.most > 1000:
            assert len(list(source.spans())) == 1000
        else:
            with pytest.raises(StoreError, match="too many traces within 1 s"):
                list(source.spans())


class TestRecordsOfListedSource(RecordContract):
    @pytest.fixture(params=["at once", "in halves", "keeping"])
    def fill(self, request: pytest.FixtureRequest) -> FillRecords:
        source = ListedSource()
        source.most = 200 if request.param == "in halves" else source.most
        return source.keeping().tell if request.param == "keeping" else source.tell


class SearchesByKind(ListedSource):
    """A backend whose searches tell no elements of lists apart."""

    _finds_elements = False

    def _search(self, wanted: Wanted, since: int, until: int) -> Found:
        return super()._search(replace(wanted, names=frozenset()), since, until)


class TestRecordsBySearchOfKinds(RecordContract):
    @pytest.fixture(params=["at once", "in halves"])
    def fill(self, request: pytest.FixtureRequest) -> FillRecords:
        source = SearchesByKind()
        source.most = 200 if request.param == "in halves" else source.most
        return source.tell

    def test_who_read_what_a_failed_write_left_is_found(self, fill: FillRecords) -> None:
        """All spans would have to be looked through."""
        with pytest.raises(SourceLimitError):
            super().test_who_read_what_a_failed_write_left_is_found(fill)

    def test_writers_are_found_by_ref(self, fill: FillRecords) -> None:
        """All spans would have to be looked through."""
        assert fill([self.written(1, self.unique)]).writers(self.unique) == []


def test_changes_are_searched_in_so_many_parts_of_time_at_most() -> None:
    """What was found by then counts, and others of the run do not ask again."""
    source, record = SearchesByKind(), contract_span(1, 1, kind="create", outputs=(Variable("memory:1"),))
    change = contract_span(2, 2, 2, kind="delete", inputs=(Variable("memory:1", "previous", record.origin),))
    source.most = 3
    source.tell([record, change])
    assert source.changed_elsewhere([record]) == {change.trace_id}
    source.tell([contract_span(n, n, n, kind="delete") for n in range(20, 400)])
    keeping = source.keeping()
    for asked in (source, keeping, keeping):
        source.asked.clear()
        with pytest.raises(SourceLimitError, match="too many spans") as raised:
            asked.changed_elsewhere([record])
        assert (raised.value.is_reply, raised.value.found) == (True, {change.trace_id})
        assert source.asked["search"] < 120
    assert source.asked["search"] == 0
    [(_, graph)] = load_graphs(keeping, [record.trace_id])
    assert graph.incomplete == {"bounded": 1}
    assert graph.operation(change.origin) is not None


def test_changes_are_looked_for_as_far_back_as_a_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that said 1970 would make it decades of weeks."""
    source, now = ListedSource(hours=24), time.time_ns()
    searched: list[int] = []
    monkeypatch.setattr(ListedSource, "_search", lambda self, wanted, since, until: searched.append(since) or {})
    for start in (1, now // SECOND - 3600):
        source.changed_elsewhere([contract_span(1, 1, start, kind="create", outputs=(Variable("memory:1"),))])
    day, hour = 24 * 3600 * SECOND, 3600 * SECOND
    assert searched == [pytest.approx(now - ago, abs=60 * SECOND) for ago in (day, hour + 600 * SECOND)]


def test_what_cannot_be_read_may_hold_the_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph asks for it and says that it is bounded; a part of a trace may lack the very span."""
    record = contract_span(1, 1, kind="create", outputs=(Variable("memory:1"),))
    change = contract_span(2, 2, 2, kind="delete", inputs=(Variable("memory:1", "previous", record.origin),))
    source, read = ListedSource().tell([record, change]), ListedSource._read

    def refuse(self: ListedSource, trace_id: str) -> list[OperationSpan]:
        if trace_id == change.trace_id:
            raise SourceLimitError("listed", "too large", is_reply=True)
        return read(self, trace_id)

    def in_part(self: ListedSource, trace_id: str) -> list[OperationSpan]:
        if trace_id == change.trace_id:
            return [contract_span(2, 9, 2, kind="other", incomplete=("bounded",))]
        return read(self, trace_id)

    for broken in (refuse, in_part):
        with monkeypatch.context() as patched:
            patched.setattr(ListedSource, "_read", broken)
            assert source.changed_elsewhere([record]) == {change.trace_id}
            [(_, graph)] = load_graphs(source.keeping(), [record.trace_id])
            assert "bounded" in graph.incomplete


def test_what_was_found_before_it_cost_too_much_counts_and_is_kept() -> None:
    records = [contract_span(n, n, kind="create", outputs=(Variable(f"memory:{n}"),)) for n in range(1, 251)]
    read = (Variable("memory:1", "previous", records[0].origin),)
    change = contract_span(900, 1, 300, kind="delete", inputs=read)
    api = BackendApi(Address(False, "listed", 1), bounds=Bounds(requests=3))
    source = ListedSource(api).tell(records, [change]).keeping()
    with pytest.raises(SourceLimitError) as raised:
        source.changed_elsewhere(records)
    assert (raised.value.is_reply, raised.value.found) == (False, {change.trace_id})
    api.allow(1)
    assert source.changed_elsewhere(records) == {change.trace_id}
    assert api.spent.requests <= 5


def test_a_search_that_was_cut_is_of_its_names() -> None:
    source = SearchesByKind()
    source.most = 3
    old, new = (contract_span(n, 1, n, kind="create", outputs=(Variable("memory:1"),)) for n in (1, 1000))
    source.tell([old, new, *(contract_span(n, n, n, kind="delete") for n in range(20, 400))])
    keeping = source.keeping()
    assert keeping.changed_elsewhere([new]) == set()
    with pytest.raises(SourceLimitError):
        keeping.changed_elsewhere([old])
    assert keeping.changed_elsewhere([new]) == set()


def test_what_is_kept_of_a_name_is_as_old_as_its_search() -> None:
    """A unique id that two memories share is searched for anew where the other one is older."""
    out = (Variable(RecordContract.unique),)
    old, new = (contract_span(n, 1, n, kind="create", outputs=out) for n in (1000, 90_000))
    deleted = (Variable(RecordContract.unique, action="DELETE"),)
    changes = [contract_span(n, 1, n, kind="delete", scope="b", outputs=deleted) for n in (2000, 91_000)]
    source = ListedSource(hours=10**6).tell([old, new, *changes]).keeping()
    assert source.changed_elsewhere([new]) == {new.trace_id, changes[1].trace_id}
    for record in (old, old, new):
        assert source.changed_elsewhere([record]) == {span.trace_id for span in (old, new, *changes)}
    assert source.asked["search"] == 2


@pytest.mark.parametrize("spilled", [False, True])
def test_a_write_whose_outputs_are_on_a_continuation_is_known_by_its_own_origin(spilled: bool) -> None:
    out = (Variable("memory:1"),)
    record = contract_span(1, 1, 1, kind="create", outputs=() if spilled else out)
    rest = contract_span(1, 2, 2, kind="create", part=1, parent_id=record.span_id, outputs=out)
    change = contract_span(2, 2, 2, kind="delete", inputs=(Variable("memory:1", "previous", record.origin),))
    assert ListedSource().tell([record, rest, change]).changed_elsewhere([record, rest]) == {change.trace_id}


def loaded(source: ListedSource, trace_id: str) -> EvolutionGraph:
    with source.session() as reading:
        return load_graph(reading, trace_id)


@pytest.mark.parametrize("written", [False, True])
def test_who_wrote_a_unique_id_that_cannot_be_searched_for_is_missing(written: bool) -> None:
    reader = contract_span(2, 2, 2, kind="retrieve", scope="a" * 16, inputs=(Variable(RecordContract.unique, "hit"),))
    record = RecordContract().written(1, RecordContract.unique)
    graph = loaded(SearchesByKind().tell([reader], [record] if written else []), reader.trace_id)
    assert ("bounded" in graph.incomplete) == (not written)
    lists = replace(reader, outputs=(Variable(RecordContract.unique),))  # which is no write
    graph = loaded(SearchesByKind().tell([lists], [record] if written else []), reader.trace_id)
    assert ("bounded" in graph.incomplete) == (not written)
    told = replace(reader, inputs=(Variable(RecordContract.unique.replace("memory", "message"), "hit"),))
    graph = loaded(SearchesByKind().tell([told]), told.trace_id)
    assert "bounded" not in graph.incomplete  # what was said has no writer


def test_a_keeping_source_reads_and_searches_once() -> None:
    origin = contract_span(1, 1).origin
    spans = [contract_span(n, n, n, scope="a" * 16, inputs=(Variable("m:1", origin=origin),)) for n in range(1, 9)]
    source = ListedSource().tell(spans).keeping()
    for _ in range(2):
        assert len(source.trace_ids(scope="a" * 16)) == 8
        assert len(source.readers(origin)) == 8
        assert source.trace(spans[3].trace_id) == [spans[3]]
    assert source.asked == {"search": 2, **{span.trace_id: 1 for span in spans}}
    assert source.keeping() is source


def test_what_is_kept_is_bounded_and_the_longest_unused_goes() -> None:
    kept = KeptTraces(most_spans=4)
    for trace in (1, 2):
        kept.add(f"{trace:032x}", [contract_span(trace, 1), contract_span(trace, 2)])
    assert kept.trace(f"{1:032x}") is not None
    kept.add(f"{3:032x}", [contract_span(3, 1)])
    assert kept.trace(f"{2:032x}") is None
    assert kept.trace(f"{1:032x}") is not None


def test_what_searches_found_counts_too_and_goes_before_it_is_too_much() -> None:
    kept = KeptTraces(most_spans=6)
    kept.add("t", [contract_span(1, 1)])
    for n in range(4):
        kept.add_naming({f"origin {n}": Told(["t", "u"], 0)}, ())
    assert [kept.naming(f"origin {n}", (), 0) is None for n in range(4)] == [True, True, False, False]
    for n in range(4):
        kept.add_scopes({f"scope {n}": ["t"] * 2})
    assert [kept.traces_of(f"scope {n}") is None for n in range(4)] == [True, True, True, False]
    assert kept.naming("origin 3", (), 0) is not None
    assert kept.trace("t") is not None


def told_and_asked(owner: int) -> list[OperationSpan]:
    """A memory written in three traces and asked for in a fourth, judged in a fifth."""
    scope, first = f"{owner:016x}", 10 * owner
    writes = [
        contract_span(first + n, 1, first + n, kind="create", scope=scope, outputs=(Variable(f"memory:{n}"),))
        for n in range(3)
    ]
    read = tuple(Variable(f"memory:{n}", "hit", span.origin) for n, span in enumerate(writes))
    answer = contract_span(first + 3, 1, first + 3, kind="respond", inputs=read, outputs=(Variable("answer:a"),))
    judge = contract_span(
        first + 4,
        1,
        first + 4,
        kind="judge",
        inputs=(Variable("answer:a", "answer", answer.origin),),
        attributes={semconv.EVALUATION_LABEL: "fail"},
    )
    return [*writes, answer, judge]


def test_reading_ahead_costs_a_few_searches_for_all_and_each_trace_once() -> None:
    spans = [span for owner in range(1, 41) for span in told_and_asked(owner)]
    source = ListedSource().tell(spans).keeping()
    asked = [span.trace_id for span in spans if span.kind == "respond"]
    read_ahead(source, asked)
    assert source.asked == {"search": 4, **{span.trace_id: 1 for span in spans}}  # 120 records: two for their changes
    assert len(list(load_graphs(source, asked))) == 40
    assert source.asked["search"] == 4


def test_failing_traces_are_those_that_are_judged_and_known_ones_are_not_read_again() -> None:
    spans = [span for owner in (1, 2) for span in told_and_asked(owner)]
    source, known = ListedSource().tell(spans), dict[str, None]()
    assert source.failing(0, known) == [spans[3].trace_id, spans[8].trace_id]
    assert source.failing(25 * SECOND - SECOND, {}) == [spans[8].trace_id]
    source.asked.clear()
    assert source.failing(0, known) == []
    assert source.asked == {"search": 1}


def test_a_further_evaluation_is_found_that_a_search_shows_alone_and_no_other_one_is_told_again() -> None:
    first, second = (told_and_asked(owner) for owner in (1, 200))
    judges = [replace(spans[-1], trace_id="f" * 32, span_id=f"{spans[-1].start:016x}") for spans in (first, second)]
    source, known = ListedSource().tell(first[:-1], second[:-1], judges[:1]), dict[str, None]()
    assert source.failing(0, known, counted_since=0) == [first[3].trace_id]
    source.tell(judges[1:])
    assert source.failing(judges[1].start, known, counted_since=0) == [second[3].trace_id]
    source.asked.clear()
    assert source.failing(0, known, counted_since=0) == []
    assert source.asked == {"search": 1}


def test_an_evaluation_that_could_not_be_read_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = told_and_asked(1)
    source, known = ListedSource().tell(spans), dict[str, None]()
    with monkeypatch.context() as broken:

        def refuse(self: ListedSource, trace_id: str) -> list[OperationSpan]:
            raise UnreachableError("listed", "down")

        broken.setattr(ListedSource, "_read", refuse)
        with pytest.raises(StoreError):
            source.failing(0, known)
    assert source.failing(0, known) == [spans[3].trace_id]


@pytest.mark.parametrize(
    "error", [StoreError("listed", "damaged"), SourceLimitError("listed", "more than 9 bytes", is_reply=True)]
)
@pytest.mark.parametrize("keeping", [False, True])
def test_an_evaluation_that_cannot_be_read_hides_no_other_one(
    error: StoreError, keeping: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spans, other = told_and_asked(1), told_and_asked(2)
    source, known = ListedSource().tell(spans, other), dict[str, None]()
    source = source.keeping() if keeping else source
    read, damaged = ListedSource._read, spans[-1].trace_id

    def refuse(self: ListedSource, trace_id: str) -> list[OperationSpan]:
        if trace_id == damaged:
            raise error
        return read(self, trace_id)

    with monkeypatch.context() as broken:
        broken.setattr(ListedSource, "_read", refuse)
        for _ in range(2):
            assert source.failing(0, dict(known)) == [other[3].trace_id]
        assert source.failing(0, known) == [other[3].trace_id]
        assert source.readers(other[3].origin, kinds=(OpKind.JUDGE,)) == [other[-1]]
        assert source.readers(spans[3].origin, kinds=(OpKind.JUDGE,)) == []
    assert caplog.text.count(f"trace {damaged} is left out: listed: ") == 1
    known.pop(spans[-1].origin, None)
    assert source.failing(0, known) == [spans[3].trace_id]


@pytest.mark.parametrize(
    ("error", "reads"),
    [
        (SourceLimitError("listed", "more than 9 bytes", is_reply=True), [1, 1, 2]),
        (FailedError("listed", "HTTP 500"), [1, 2, 3]),
        (StoreError("listed", "damaged"), [1, 2, 3]),
    ],
)
def test_an_evaluation_that_can_never_be_read_is_tried_again_when_it_changes(
    error: StoreError, reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = told_and_asked(1)
    judge = spans[-1]
    source, known, tried = ListedSource().tell(spans), dict[str, None](), list[str]()

    def refuse(self: ListedSource, trace_id: str) -> list[OperationSpan]:
        if trace_id != judge.trace_id:
            return []
        tried.append(trace_id)
        raise error

    monkeypatch.setattr(ListedSource, "_read", refuse)
    seen: list[int] = []
    for changed in (False, False, True):
        if changed:
            source.tell([OperationSpan(**{**_fields(judge), "span_id": "9" * 16, "start": judge.start})])
        assert source.failing(0, known) == []
        seen.append(len(tried))
    assert seen == reads


def test_a_damaged_trace_of_a_memory_is_named_with_the_others_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    spans, other = told_and_asked(1), told_and_asked(2)
    source, read, damaged = ListedSource().tell(spans, other).keeping(), ListedSource._read, spans[1].trace_id

    def refuse(self: ListedSource, trace_id: str) -> list[OperationSpan]:
        if trace_id == damaged:
            raise FailedError("listed", "HTTP 500")
        return read(self, trace_id)

    monkeypatch.setattr(ListedSource, "_read", refuse)
    read_ahead(source, [spans[3].trace_id, other[3].trace_id])
    assert sorted(source.trace_ids(scope=spans[0].scope)) == [span.trace_id for span in spans[:3]]
    assert source.trace_ids(scope=other[0].scope) == [span.trace_id for span in other[:3]]


def test_an_evaluation_that_is_found_before_it_can_be_read_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = told_and_asked(1)
    source, known = ListedSource().tell(spans), dict[str, None]()
    for there in ([], [contract_span(14, 9, 14)]):
        with monkeypatch.context() as slow:
            slow.setattr(ListedSource, "_read", lambda self, trace_id, there=there: there)  # type: ignore[misc]
            assert source.failing(0, known) == []
    assert source.failing(0, known) == [spans[3].trace_id]


def test_a_judgement_that_passes_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = contract_span(1, 1, 1, kind="judge", attributes={semconv.EVALUATION_LABEL: "pass"})
    source, known = ListedSource().tell([judge]), dict[str, None]()
    # as Jaeger, whose searches find judge spans whatever they say
    monkeypatch.setattr(ListedSource, "_search", lambda self, wanted, since, until: {judge.trace_id: [judge.span_id]})
    for _ in range(3):
        assert source.failing(0, known) == []
    assert source.asked == {judge.trace_id: 1}


def test_a_search_for_failures_past_its_bound_goes_on_with_the_next_one(caplog: pytest.LogCaptureFixture) -> None:
    spans = [span for owner in (1, 2, 3) for span in told_and_asked(owner)]
    source = ListedSource(BackendApi(Address(False, "listed", 1), bounds=Bounds(requests=3))).tell(spans)
    known, found = dict[str, None](), list[str]()
    for _ in range(2):
        source.api.allow(1)
        found += source.failing(0, known)
    assert found == [spans[number].trace_id for number in (3, 8, 13)]
    assert "the rest is looked for with the next search" in caplog.text
    source.api.allow(1)
    with pytest.raises(SourceLimitError):  # who asks but once is told
        source.failing(0)


def test_failures_of_one_moment_that_no_search_tells_apart_stop_nothing(caplog: pytest.LogCaptureFixture) -> None:
    spans = [contract_span(n, n, 5, attributes={semconv.EVALUATION_LABEL: "fail"}) for n in range(1, 9)]
    source = ListedSource().tell(spans, told_and_asked(2))
    source.most = 4
    assert source.failing(0) == [*(span.trace_id for span in spans[:4]), told_and_asked(2)[3].trace_id]
    assert "too many traces within 1 s" in caplog.text
    with pytest.raises(SourceLimitError):  # a graph says that it is incomplete
        list(source.spans())


def test_past_the_bound_reading_ahead_leaves_the_rest_to_who_asks() -> None:
    spans = told_and_asked(1)
    source = ListedSource(BackendApi(Address(False, "listed", 1), bounds=Bounds(requests=2))).tell(spans).keeping()
    read_ahead(source, [spans[3].trace_id])
    with pytest.raises(SourceLimitError):
        source.trace_ids(scope=spans[0].scope)


def test_an_answer_that_failed_is_found_where_it_read_an_earlier_one() -> None:
    old = contract_span(1, 1, 1, kind="respond", outputs=(Variable("answer:1", content="Rome"),))
    for role in (semconv.Role.OTHER, semconv.Role.ANSWER):
        read = Variable("answer:1", role, old.origin)
        new = contract_span(2, 1, 5, kind="respond", inputs=(read,), attributes={semconv.EVALUATION_LABEL: "fail"})
        assert ListedSource().tell([old, new]).failing(0) == [new.trace_id]


def _fields(span: OperationSpan) -> dict[str, object]:
    return {"trace_id": span.trace_id, "span_id": span.span_id, "attributes": span.attributes}
