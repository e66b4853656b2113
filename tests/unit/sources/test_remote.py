"""What every backend shares: searches in halves of the time, a cache and bounds for each session."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from memtrace_otel import semconv
from memtrace_otel.graph import EvolutionGraph, load_graph, load_graphs
from memtrace_otel.model import OperationSpan, Variable
from memtrace_otel.otlp import DecodeError
from memtrace_otel.sources import SourceError
from memtrace_otel.sources.cache import Cache, CachedTrace
from memtrace_otel.sources.http import Budget, LimitError, ReplyError
from memtrace_otel.sources.query import SpanQuery
from memtrace_otel.sources.reader import Found
from memtrace_otel.testing import Fill, RecordContract, SourceContract, contract_span
from tests.unit.sources.listed_source import ListedSource

SECOND = 10**9


class SearchesByKind(ListedSource):
    """A backend that cannot search for an element of a list."""

    _finds_names = False

    def _search(self, query: SpanQuery, since: int, until: int) -> Found:
        return super()._search(replace(query, names=frozenset()), since, until)


@pytest.fixture(params=["at once", "in halves", "in a session"])
def listed(request: pytest.FixtureRequest) -> Iterator[ListedSource]:
    source = ListedSource()
    source.most = 3 if request.param == "in halves" else source.most
    if request.param == "in a session":
        with source.session(cases=10) as reader:
            yield reader
    else:
        yield source


class TestListedSource(SourceContract):
    @pytest.fixture
    def fill(self, listed: ListedSource) -> Fill:
        return listed.tell

    def test_spans_with_jumping_clocks_are_found(self, fill: Fill) -> None:
        spans = [contract_span(1, 1, 0), contract_span(1, 2, 1), contract_span(1, 3, 9_000_000_000)]
        assert fill([spans[2]], [spans[0]], [spans[1]]).trace(spans[0].trace_id) == spans

    def test_more_spans_than_a_page_with_equal_times(self, fill: Fill) -> None:
        source = fill([contract_span(n // 7 + 1, n + 1, 1) for n in range(1000)])
        assert isinstance(source, ListedSource)
        found = list(source.spans())
        if source.most > 1000:
            assert (len(found), source.incomplete) == (1000, [])
        else:
            assert len({span.trace_id for span in found}) == source.most
            assert "too many within 1 s" in source.incomplete[0]


class TestRecordsOfListedSource(RecordContract):
    @pytest.fixture
    def fill(self, listed: ListedSource) -> Fill:
        listed.most = max(listed.most, 200)
        return listed.tell


class TestRecordsBySearchOfKinds(RecordContract):
    @pytest.fixture(params=[10**6, 200])
    def fill(self, request: pytest.FixtureRequest) -> Fill:
        source = SearchesByKind()
        source.most = request.param
        return source.tell

    def test_readers_of_a_failed_write_are_found(self, fill: Fill) -> None:
        source = fill([])
        with pytest.raises(AssertionError):
            super().test_readers_of_a_failed_write_are_found(fill)
        assert "changes by other memories are not all known" in source.incomplete[0]

    def test_writers_are_found_by_ref(self, fill: Fill) -> None:
        source = fill([self.written(1, self.unique)])
        assert source.writers(self.unique) == []
        assert "the writer of a record" in source.incomplete[0]


def loaded(source: ListedSource, trace_id: str) -> EvolutionGraph:
    with source.session() as reader:
        return load_graph(reader, trace_id)


# --- sessions ----------------------------------------------------------------------------------------------------
def test_a_session_reads_and_searches_once() -> None:
    origin = contract_span(1, 1).origin
    spans = [contract_span(n, n, n, scope="a" * 16, inputs=(Variable("m:1", origin=origin),)) for n in range(1, 9)]
    source = ListedSource().tell(spans)
    with source.session() as reader:
        for _ in range(2):
            assert len(reader.trace_ids(scope="a" * 16)) == 8
            assert len(reader.readers(origin)) == 8
            assert reader.trace(spans[3].trace_id) == [spans[3]]
    assert source.asked == {"search": 2, **{span.trace_id: 1 for span in spans}}
    assert (reader.incomplete, source.incomplete) == ([], [])


def test_a_session_past_its_bound_of_requests_returns_what_it_has() -> None:
    spans = [contract_span(n, n, n, scope="a" * 16) for n in range(1, 9)]
    reader = ListedSource(requests=4).tell(spans).within(1)
    assert reader.trace_ids(scope="a" * 16) == [span.trace_id for span in spans[:3]]
    assert set(reader.incomplete) == {"the bound of 4 requests is reached (MEMTRACE_SOURCE_REQUESTS)"}
    assert reader.trace(spans[7].trace_id) == []
    assert reader.trace(spans[0].trace_id) == [spans[0]]
    assert list(reader.spans()) == []


def test_the_bounds_of_a_session_grow_with_its_cases() -> None:
    source = ListedSource(requests=1).tell([contract_span(n, n) for n in (1, 2, 3)])
    with source.session(cases=3) as reader:
        assert all(reader.trace(f"{n:032x}") for n in (1, 2, 3))
        assert reader.trace(f"{4:032x}") == []
    assert len(reader.incomplete) == 1


def test_time_and_spans_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = Budget(requests=9, seconds=60, spans=2)
    budget.take_request()
    budget.take_spans(2)
    with pytest.raises(LimitError, match="2 spans"):
        budget.take_spans(1)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    with pytest.raises(LimitError, match="60 seconds"):
        budget.take_request()


@pytest.mark.parametrize("error", [ReplyError("HTTP 500", 500), DecodeError("no trace")])
def test_a_trace_that_cannot_be_read_leaves_the_others(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    spans = told_and_asked(1)
    source = ListedSource().tell(spans)
    source.broken[spans[1].trace_id] = error
    with source.session() as reader:
        for _ in range(2):
            assert reader.trace_ids(scope=spans[0].scope) == [spans[n].trace_id for n in (0, 2)]
            assert reader.trace(spans[1].trace_id) == []
    assert set(reader.incomplete) == {f"trace {spans[1].trace_id} cannot be read: {error}"}
    assert caplog.text.count("cannot be read") == 1
    assert source.asked[spans[1].trace_id] == 1
    assert loaded(source, spans[3].trace_id).incomplete["bounded"] == 1


def test_a_graph_is_bounded_only_by_what_it_lacks_itself() -> None:
    spans = told_and_asked(1), told_and_asked(2)
    source = ListedSource().tell(*spans)
    source.broken[spans[1][1].trace_id] = ReplyError("HTTP 500", 500)
    with source.session(cases=2) as reader:
        reader.prefetch([told[3].trace_id for told in spans])
        graphs = {ids[0]: graph for ids, graph in load_graphs(reader, [told[3].trace_id for told in spans])}
    assert [graphs[told[3].trace_id].incomplete.get("bounded", 0) for told in spans] == [0, 1]


def test_a_backend_that_fails_at_every_trace_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: ListedSource, trace_id: str) -> list[OperationSpan]:
        raise ReplyError("HTTP 500", 500)

    monkeypatch.setattr(ListedSource, "_read", fail)
    with pytest.raises(SourceError, match="http://listed: HTTP 500"):
        ListedSource().trace("a" * 32)


def test_a_trace_that_the_backend_returns_in_part_is_noted() -> None:
    part = contract_span(1, 1, incomplete=("bounded",))
    source = ListedSource().tell([part])
    assert source.trace(part.trace_id) == [part]
    assert source.incomplete == [f"trace {part.trace_id} is too large: the backend returns a part"]


def test_the_cache_drops_the_least_recently_used_traces() -> None:
    cache = Cache(spans=4)
    for trace in (1, 2):
        cache.add(f"{trace:032x}", CachedTrace([contract_span(trace, 1), contract_span(trace, 2)]))
    assert cache.trace(f"{1:032x}")
    cache.add(f"{3:032x}", CachedTrace([contract_span(3, 1)]))
    assert [cache.trace(f"{n:032x}") is None for n in (1, 2, 3)] == [False, True, False]


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


def test_a_prefetch_costs_a_few_searches_for_all_cases_and_each_trace_once() -> None:
    spans = [span for owner in range(1, 41) for span in told_and_asked(owner)]
    source = ListedSource().tell(spans)
    asked = [span.trace_id for span in spans if span.kind == "respond"]
    with source.session(cases=40) as reader:
        reader.prefetch(asked)
        assert source.asked == {"search": 4, **{span.trace_id: 1 for span in spans}}  # 120 records: two for changes
        assert len(list(load_graphs(reader, asked))) == 40
    assert (source.asked["search"], reader.incomplete) == (4, [])


def test_a_prefetch_past_the_bound_leaves_a_graph_of_what_was_read() -> None:
    spans = told_and_asked(1)
    reader = ListedSource(requests=2).tell(spans).within(1)
    reader.prefetch([spans[3].trace_id])
    graph = load_graph(reader, spans[3].trace_id)
    assert graph.incomplete["bounded"] == 1
    assert graph.operation(spans[3].origin) is not None


# --- changes and writers -----------------------------------------------------------------------------------------
def test_all_changes_are_read_in_so_many_parts_of_time_at_most() -> None:
    source, record = SearchesByKind(), contract_span(1, 1, kind="create", outputs=(Variable("memory:1"),))
    change = contract_span(2, 2, 2, kind="delete", inputs=(Variable("memory:1", "previous", record.origin),))
    source.most = 3
    source.tell([record, change])
    assert source.changed_elsewhere([record]) == {change.trace_id}
    source.tell([contract_span(n, n, n, kind="delete") for n in range(20, 400)])
    with source.session() as reader:
        for searches in (120, 1):
            source.asked.clear()
            noted = len(reader.incomplete)
            assert reader.changed_elsewhere([record]) == {change.trace_id}
            assert "too many spans" in reader.incomplete[noted]
            assert source.asked["search"] < searches
        graph = load_graph(reader, record.trace_id)
    assert graph.incomplete == {"bounded": 1}
    assert graph.operation(change.origin) is not None


def test_changes_are_searched_as_far_back_as_the_setting_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that said 1970 would make it decades of weeks."""
    source, now = ListedSource(hours=24), time.time_ns()
    searched: list[int] = []
    monkeypatch.setattr(ListedSource, "_search", lambda self, query, since, until: searched.append(since) or {})
    for start in (1, now // SECOND - 3600):
        source.changed_elsewhere([contract_span(1, 1, start, kind="create", outputs=(Variable("memory:1"),))])
    day, hour = 24 * 3600 * SECOND, 3600 * SECOND
    assert searched == [pytest.approx(now - ago, abs=60 * SECOND) for ago in (day, hour + 600 * SECOND)]


def test_changes_that_were_found_before_the_bound_are_returned() -> None:
    records = [contract_span(n, n, kind="create", outputs=(Variable(f"memory:{n}"),)) for n in range(1, 251)]
    read = (Variable("memory:1", "previous", records[0].origin),)
    change = contract_span(900, 1, 300, kind="delete", inputs=read)
    reader = ListedSource(requests=3).tell(records, [change]).within(1)
    assert reader.changed_elsewhere(records) == {change.trace_id}
    assert reader.incomplete


def test_a_cached_search_does_not_look_further_back_than_it_did() -> None:
    out = (Variable(RecordContract.unique),)
    old, new = (contract_span(n, 1, n, kind="create", outputs=out) for n in (1000, 90_000))
    deleted = (Variable(RecordContract.unique, action="DELETE"),)
    changes = [contract_span(n, 1, n, kind="delete", scope="b", outputs=deleted) for n in (2000, 91_000)]
    source = ListedSource().tell([old, new, *changes])
    with source.session() as reader:
        assert reader.changed_elsewhere([new]) == {new.trace_id, changes[1].trace_id}
        for record in (old, old, new):
            assert reader.changed_elsewhere([record]) == {span.trace_id for span in (old, new, *changes)}
    assert source.asked["search"] == 2


@pytest.mark.parametrize("spilled", [False, True])
def test_a_write_with_outputs_on_a_continuation_is_changed_by_its_own_origin(spilled: bool) -> None:
    out = (Variable("memory:1"),)
    record = contract_span(1, 1, 1, kind="create", outputs=() if spilled else out)
    rest = contract_span(1, 2, 2, kind="create", part=1, parent_id=record.span_id, outputs=out)
    change = contract_span(2, 2, 2, kind="delete", inputs=(Variable("memory:1", "previous", record.origin),))
    assert ListedSource().tell([record, rest, change]).changed_elsewhere([record, rest]) == {change.trace_id}


@pytest.mark.parametrize("written", [False, True])
def test_a_graph_without_the_writer_of_a_unique_id_is_bounded(written: bool) -> None:
    reader = contract_span(2, 2, 2, kind="retrieve", scope="a" * 16, inputs=(Variable(RecordContract.unique, "hit"),))
    record = RecordContract().written(1, RecordContract.unique)
    graph = loaded(SearchesByKind().tell([reader], [record] if written else []), reader.trace_id)
    assert ("bounded" in graph.incomplete) == (not written)
    lists = replace(reader, outputs=(Variable(RecordContract.unique),))  # no write
    graph = loaded(SearchesByKind().tell([lists], [record] if written else []), reader.trace_id)
    assert ("bounded" in graph.incomplete) == (not written)
    message = replace(reader, inputs=(Variable(RecordContract.unique.replace("memory", "message"), "hit"),))
    graph = loaded(SearchesByKind().tell([message]), message.trace_id)
    assert "bounded" not in graph.incomplete  # a message has no writer


# --- failing traces ----------------------------------------------------------------------------------------------
def test_failing_traces_are_those_that_a_judge_names_and_known_evaluations_are_not_read_again() -> None:
    spans = [span for owner in (1, 2) for span in told_and_asked(owner)]
    source, known = ListedSource().tell(spans), dict[str, None]()
    assert source.failing(0, known) == [spans[3].trace_id, spans[8].trace_id]
    assert source.failing(25 * SECOND - SECOND, {}) == [spans[8].trace_id]
    source.asked.clear()
    assert source.failing(0, known) == []
    assert source.asked == {"search": 1}


def test_an_earlier_evaluation_in_the_trace_of_a_later_one_is_found_by_a_search_further_back() -> None:
    first, second = (told_and_asked(owner) for owner in (1, 200))
    judges = [replace(spans[-1], trace_id="f" * 32, span_id=f"{spans[-1].start:016x}") for spans in (first, second)]
    source, known = ListedSource().tell(first[:-1], second[:-1], judges), dict[str, None]()
    assert source.failing(judges[1].start, known) == [second[3].trace_id]
    assert source.failing(0, known) == [first[3].trace_id]
    source.asked.clear()
    assert source.failing(0, known) == []
    assert source.asked == {"search": 1}


def test_an_evaluation_that_cannot_be_read_is_read_by_the_next_search() -> None:
    spans = told_and_asked(1)
    source, known = ListedSource().tell(spans), dict[str, None]()
    source.broken[spans[-1].trace_id] = ReplyError("HTTP 500", 500)
    assert source.failing(0, known) == []
    assert known == {}
    source.broken[spans[-1].trace_id] = SourceError("listed", "down")
    with pytest.raises(SourceError):
        source.failing(0, known)
    source.broken.clear()
    assert source.failing(0, known) == [spans[3].trace_id]


def test_an_evaluation_that_passes_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = contract_span(1, 1, 1, kind="judge", attributes={semconv.EVALUATION_LABEL: "pass"})
    source, known = ListedSource().tell([judge]), dict[str, None]()
    # as Jaeger, whose searches find judge spans whatever they say
    monkeypatch.setattr(ListedSource, "_search", lambda self, query, since, until: {judge.trace_id: [judge.span_id]})
    for _ in range(3):
        assert source.failing(0, known) == []
    assert source.asked == {judge.trace_id: 1}


def test_a_search_for_failures_past_its_bound_goes_on_with_the_next_session() -> None:
    spans = [span for owner in (1, 2, 3) for span in told_and_asked(owner)]
    source, known, found = ListedSource(requests=3).tell(spans), dict[str, None](), list[str]()
    for _ in range(2):
        with source.session() as reader:
            found += reader.failing(0, known)
    assert found == [spans[number].trace_id for number in (3, 8, 13)]


def test_an_answer_that_failed_is_found_where_it_read_an_earlier_one() -> None:
    old = contract_span(1, 1, 1, kind="respond", outputs=(Variable("answer:1", content="Rome"),))
    for role in (semconv.Role.OTHER, semconv.Role.ANSWER):
        read = Variable("answer:1", role, old.origin)
        new = contract_span(2, 1, 5, kind="respond", inputs=(read,), attributes={semconv.EVALUATION_LABEL: "fail"})
        assert ListedSource().tell([old, new]).failing(0) == [new.trace_id]
