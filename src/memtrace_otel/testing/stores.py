"""The contract of stores.

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self): ...      # an empty SpanStore

A source that is only read (a tracing backend) takes `SourceContract` and a fixture `fill` that delivers requests to it.
One that is kept small and clean takes `UpkeepContract` as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from memtrace_otel import semconv
from memtrace_otel.model import Event, Link, OperationSpan, Variable, make_origin, ref_kind
from memtrace_otel.otlp import encode_request
from memtrace_otel.store.protocols import SpanStore, TraceSource
from memtrace_otel.store.upkeep import Pruned, StoreUpkeep

Fill = Callable[..., TraceSource]
"""`fill(*requests)` delivers sequences of spans, one request each, in order, and returns the source."""

_SECOND = 1_000_000_000
_RESOURCE = {"service.name": "contract"}


def contract_span(trace: int, span: int, start: int = 1, **fields: Any) -> OperationSpan:
    """Return a small span; `trace` and `span` are numbers, `start` seconds."""
    return OperationSpan(
        trace_id=f"{trace:032x}",
        span_id=f"{span:016x}",
        start=start * _SECOND,
        end=start * _SECOND + 1000,
        resource=_RESOURCE,
        instrumentation_scope="contract",
        **fields,
    )


class SourceContract:
    """What every `TraceSource` promises."""

    def test_a_trace_comes_back_whole_and_by_start(self, fill: Fill) -> None:
        late = contract_span(1, 2, 5, name="late", parent_id=f"{1:016x}")
        early = contract_span(1, 1, 1, name="early")
        source = fill([late], [early, contract_span(2, 3)])
        assert source.trace(early.trace_id) == [early, late]

    def test_an_unknown_trace_is_empty(self, fill: Fill) -> None:
        assert fill([contract_span(1, 1)]).trace("f" * 32) == []

    def test_every_field_comes_back(self, fill: Fill) -> None:
        span = contract_span(
            1,
            1,
            kind="update",
            system="contract",
            scope="a" * 16,
            seq=7,
            part=1,
            status="error",
            status_message="why",
            inputs=(Variable("memory:1", "previous", make_origin("a" * 32, "b" * 16), "d" * 16),),
            outputs=(Variable("memory:1", action="UPDATE", size=3, content="abc"), Variable("fact:2")),
            flow=((0, 1),),
            evidence=("message:1",),
            incomplete=("content_off",),
            attributes={"text": "é", "flags": [True, False], "number": -1, "ratio": 0.5},
        )
        assert fill([span]).trace(span.trace_id) == [span]

    def test_a_span_delivered_twice_is_one(self, fill: Fill) -> None:
        span = contract_span(1, 1, inputs=(Variable("memory:1", origin=make_origin("a" * 32, "b" * 16)),))
        source = fill([span, span], [span])
        assert source.trace(span.trace_id) == [span]
        assert list(source.spans()) == [span]
        assert source.readers(make_origin("a" * 32, "b" * 16)) == [span]

    def test_the_first_of_two_contents_stays(self, fill: Fill) -> None:
        first = contract_span(
            1, 1, name="first", inputs=(Variable("memory:1", origin=make_origin("a" * 32, "b" * 16)),)
        )
        second = contract_span(
            1, 1, name="second", inputs=(Variable("memory:1", origin=make_origin("a" * 32, "c" * 16)),)
        )
        source = fill([first], [second])
        assert source.trace(first.trace_id) == [first]
        assert source.readers(make_origin("a" * 32, "c" * 16)) == []

    def test_spans_are_selected_by_scope_kind_and_time(self, fill: Fill) -> None:
        here, there = "a" * 16, "b" * 16
        create = contract_span(1, 1, 10, kind="create", scope=here)
        update = contract_span(2, 2, 20, kind="update", scope=here)
        other = contract_span(3, 3, 30, kind="create", scope=there)
        plain = contract_span(4, 4, 40)
        source = fill([plain, other], [update, create])
        assert list(source.spans()) == [create, update, other, plain]
        assert list(source.spans(scope=here)) == [create, update]
        assert list(source.spans(kinds=["create"])) == [create, other]
        assert list(source.spans(kinds=["create", "update"], scope=here)) == [create, update]
        assert list(source.spans(since=20 * _SECOND, until=40 * _SECOND)) == [update, other]
        assert list(source.spans(scope=here, kinds=["create"], since=11 * _SECOND)) == []

    def test_readers_are_found_by_the_origin_they_read(self, fill: Fill) -> None:
        writer = contract_span(1, 1, kind="create", outputs=(Variable("memory:1", action="ADD"),))
        both = (Variable("memory:1", origin=writer.origin), Variable("memory:2", origin=writer.origin))
        reader = contract_span(2, 2, 9, kind="retrieve", inputs=both)
        stranger = contract_span(3, 3, 9, kind="retrieve", inputs=(Variable("memory:1"),))
        source = fill([reader, stranger], [writer])
        assert source.readers(writer.origin) == [reader]
        assert source.readers(stranger.origin) == []

    def test_trace_ids_are_each_trace_once_by_time(self, fill: Fill) -> None:
        spans = [contract_span(3, 1, 1), contract_span(1, 2, 2), contract_span(3, 3, 3), contract_span(2, 4, 4)]
        source = fill(list(reversed(spans)))
        assert source.trace_ids() == [f"{n:032x}" for n in (3, 1, 2)]

    def test_more_spans_than_a_page_with_equal_times(self, fill: Fill) -> None:
        spans = [contract_span(n // 7 + 1, n + 1, 1) for n in range(1000)]
        assert list(fill(spans).spans()) == spans


class StoreContract(SourceContract):
    """What every `SpanStore` promises. The subclass has a fixture `store`: an empty one."""

    def fill_store(self, store: SpanStore, *requests: Sequence[OperationSpan]) -> SpanStore:
        """Deliver requests to `store`."""
        for spans in requests:
            store.add_request(encode_request(spans))
        return store

    def test_decode_counts_the_new_spans(self, store: SpanStore) -> None:
        spans = [contract_span(1, 1), contract_span(1, 2)]
        store.add_request(encode_request(spans))
        assert store.decode() == 2
        store.add_request(encode_request(spans))
        assert store.decode() == 0

    def test_what_cannot_be_read_does_not_hide_the_rest(self, store: SpanStore) -> None:
        span = contract_span(1, 1)
        store.add_request(b"\xff\xff no request")
        store.add_request(encode_request([span]))
        store.add_request(encode_request([contract_span(1, 2)])[:-1])
        assert store.trace(span.trace_id) == [span]
        assert store.decode() == 0

    def test_spans_added_while_reading_do_not_break_it(self, store: SpanStore) -> None:
        store.add_request(encode_request([contract_span(1, n + 1, n + 1) for n in range(600)]))
        seen: list[str] = []
        for index, span in enumerate(store.spans()):
            seen.append(span.span_id)
            if index % 100 == 0:
                store.add_request(encode_request([contract_span(2, 10_000 + index, 1)]))
        assert set(seen) >= {f"{n + 1:016x}" for n in range(600)}
        assert len(set(seen)) == len(seen)


class UpkeepContract:
    """What every `StoreUpkeep` promises. The subclass has a fixture `upkeep`: an empty store."""

    def test_prune_by_age_removes_whole_traces_whose_last_span_is_old(self, upkeep: StoreUpkeep) -> None:
        old = [contract_span(1, 1, 1), contract_span(1, 2, 9)]
        half = [contract_span(2, 3, 1), contract_span(2, 4, 10)]
        upkeep.add_request(encode_request([*old, *half]))
        assert upkeep.prune(before=10 * _SECOND) == Pruned(1, 2)
        assert list(upkeep.spans()) == half

    def test_prune_by_scope_leaves_other_memories(self, upkeep: StoreUpkeep) -> None:
        here, there = "a" * 16, "b" * 16
        spans = [
            contract_span(1, 1, 1, kind="create", scope=here),
            contract_span(1, 2, 2, name="without a scope"),
            contract_span(2, 3, 3, kind="create", scope=here),
            kept := contract_span(2, 4, 4, kind="create", scope=there),
            shared := contract_span(2, 5, 5, name="without a scope"),
        ]
        upkeep.add_request(encode_request(spans))
        assert upkeep.prune(scope=here) == Pruned(2, 3)
        assert list(upkeep.spans()) == [kept, shared]
        assert [stats.scope for stats in upkeep.scopes()] == [there]

    def test_prune_by_size_removes_the_oldest(self, upkeep: StoreUpkeep) -> None:
        text = {"text": "x" * 10_000}
        upkeep.add_request(encode_request([contract_span(n, n, n, attributes=text) for n in range(1, 101)]))
        upkeep.decode()
        limit = upkeep.size().used // 2
        assert upkeep.prune(max_bytes=2 * limit + 1) == Pruned(0, 0)
        pruned = upkeep.prune(max_bytes=limit)
        assert 0 < pruned.traces < 100
        assert upkeep.trace_ids() == [f"{n:032x}" for n in range(pruned.traces + 1, 101)]
        assert upkeep.size().used <= limit

    def test_prune_needs_a_limit(self, upkeep: StoreUpkeep) -> None:
        with pytest.raises(ValueError, match="scope"):
            upkeep.prune()

    def test_what_was_pruned_is_read_by_nobody_and_may_come_again(self, upkeep: StoreUpkeep) -> None:
        writer = contract_span(1, 1, 1, kind="create", outputs=(Variable("memory:1", action="ADD"),))
        reader = contract_span(2, 2, 2, kind="retrieve", inputs=(Variable("memory:1", origin=writer.origin),))
        upkeep.add_request(encode_request([writer, reader]))
        upkeep.prune(before=3 * _SECOND)
        assert upkeep.readers(writer.origin) == []
        assert upkeep.check() == []
        upkeep.add_request(encode_request([reader]))
        assert upkeep.readers(writer.origin) == [reader]

    def test_forget_erases_contents_and_keeps_the_shape(self, upkeep: StoreUpkeep) -> None:
        spans = _secret_life("a" * 16)
        upkeep.add_request(encode_request(spans))
        forgotten = upkeep.forget("a" * 16)
        assert (forgotten.spans, forgotten.references) == (len(spans), ("file:///contents/secret",))
        found = {span.origin: span for span in upkeep.spans()}
        assert "secret" not in repr(found)
        for before in spans:
            after = found[before.origin]
            assert _shape(after) == _shape(before)
            assert "forgotten" in after.incomplete
            assert not any(v.content or v.digest or v.store for v in (*after.inputs, *after.outputs))

    def test_forget_replaces_digests_in_refs_by_the_same_random_id(self, upkeep: StoreUpkeep) -> None:
        spans = _secret_life("a" * 16)
        upkeep.add_request(encode_request(spans))
        upkeep.forget("a" * 16)
        create, search, _ = upkeep.trace(spans[0].trace_id)
        ref = create.inputs[0].ref
        assert ref.startswith("message:")
        assert len(ref) == len(spans[0].inputs[0].ref)
        assert ref != spans[0].inputs[0].ref == spans[1].inputs[1].ref
        assert search.inputs[1].ref == ref
        assert create.outputs[0].ref == "memory:1"

    def test_forget_leaves_another_scope_as_it_is_but_for_what_it_read(self, upkeep: StoreUpkeep) -> None:
        spans = _secret_life("a" * 16)
        stranger = contract_span(7, 7, kind="create", scope="b" * 16, outputs=(Variable("memory:1", content="other"),))
        inputs = (Variable("memory:1", "hit", spans[0].origin, "d" * 16, "secret"), Variable("memory:2", content="own"))
        reader = contract_span(8, 8, 9, kind="retrieve", scope="b" * 16, inputs=inputs)
        upkeep.add_request(encode_request([*spans, stranger, reader]))
        assert upkeep.forget("a" * 16).readers == 1
        assert upkeep.trace(stranger.trace_id) == [stranger]
        (read,) = upkeep.trace(reader.trace_id)
        assert [(v.ref, v.origin, v.digest, v.content) for v in read.inputs] == [
            ("memory:1", spans[0].origin, "", ""),
            ("memory:2", "", "", "own"),
        ]

    def test_forget_follows_answers_into_traces_without_a_scope(self, upkeep: StoreUpkeep) -> None:
        spans = _secret_life("a" * 16)
        told = Variable("answer:1", "answer", spans[-1].origin, content="secret")
        retold = contract_span(5, 51, 9, kind="respond", inputs=(told,), attributes={"gen_ai.input.messages": "secret"})
        upkeep.add_request(encode_request([*spans, retold]))
        upkeep.forget("a" * 16)
        assert "secret" not in repr(list(upkeep.spans()))

    def test_forgetting_nobody_erases_nothing(self, upkeep: StoreUpkeep) -> None:
        spans = _secret_life("a" * 16)
        upkeep.add_request(encode_request(spans))
        assert upkeep.forget("b" * 16).spans == 0
        assert list(upkeep.spans()) == spans

    def test_compact_gives_back_what_was_removed_and_nothing_else(self, upkeep: StoreUpkeep) -> None:
        text = {"text": "x" * 10_000}
        spans = [contract_span(n, n, n, attributes=text) for n in range(1, 101)]
        upkeep.add_request(encode_request(spans))
        upkeep.decode()
        upkeep.prune(before=91 * _SECOND)
        before = upkeep.size()
        assert before.free > 500_000
        assert upkeep.compact().bytes >= before.free
        assert upkeep.size().free == 0
        assert list(upkeep.spans()) == spans[90:]

    def test_stats_count_by_scope(self, upkeep: StoreUpkeep) -> None:
        here = "a" * 16
        spans = [contract_span(1, 1, 1, kind="create", scope=here), contract_span(2, 2, 5, kind="update", scope=here)]
        upkeep.add_request(encode_request([*spans, contract_span(2, 3)]))
        (stats,) = upkeep.scopes()
        assert (stats.scope, stats.spans, stats.traces) == (here, 2, 2)
        assert (stats.first, stats.last) == (_SECOND, 5 * _SECOND)
        assert upkeep.stats().spans == 3

    def test_a_store_that_was_written_properly_is_sound(self, upkeep: StoreUpkeep) -> None:
        upkeep.add_request(b"\xff\xff no request")
        upkeep.add_request(encode_request(_secret_life("a" * 16)))
        assert upkeep.check() == []
        upkeep.forget("a" * 16)
        assert upkeep.check() == []

    def test_upkeep_goes_on_beside_a_reader(self, upkeep: StoreUpkeep) -> None:
        upkeep.add_request(encode_request([contract_span(n, n, n) for n in range(1, 601)]))
        reading = upkeep.spans()
        seen = [next(reading).span_id]
        upkeep.prune(before=100 * _SECOND)
        upkeep.compact()
        upkeep.add_request(encode_request([contract_span(9, 9999, 1000)]))
        seen += [span.span_id for span in reading]
        assert seen[-1] == f"{9999:016x}"
        assert set(seen) >= {f"{n:016x}" for n in range(100, 601)}


def _secret_life(scope: str) -> list[OperationSpan]:
    """A message is stored, found and answered from, in one trace; its contents say "secret"."""
    digest = "0123456789abcdef"
    message = Variable(f"message:{digest}", "message", digest=digest, content="secret message")
    stored = Variable("memory:1", digest="d" * 16, content="secret", action="ADD", size=6, event_time="2026-01-01")
    create = contract_span(
        1,
        1,
        1,
        name="create_memory",
        kind="create",
        scope=scope,
        seq=1,
        inputs=(message,),
        outputs=(stored,),
        flow=((0, 0),),
        attributes={"input.value": "secret", "gen_ai.usage.input_tokens": 5, "tags": ["secret"]},
        events=(Event("exception", 1, {"exception.message": "secret"}),),
        status="error",
        status_message="secret",
    )
    search = contract_span(
        1,
        2,
        2,
        name="search_memory",
        kind="retrieve",
        scope=scope,
        inputs=(Variable("memory:1", "hit", create.origin, "d" * 16, score=0.5), message),
        outputs=(Variable("context:2", action="DERIVE", store="file:///contents/secret", digest="e" * 16),),
        links=(Link(create.trace_id, create.span_id, {semconv.LINK_REFS: [message.ref]}),),
        attributes={"gen_ai.memory.query.text": "secret"},
    )
    answer = contract_span(
        1,
        3,
        3,
        name="chat",
        kind="respond",
        inputs=(Variable("context:2", "context", search.origin),),
        outputs=(Variable("answer:3", "answer", content="secret"),),
        attributes={"gen_ai.output.messages": "secret"},
    )
    return [create, search, answer]


def _shape(span: OperationSpan) -> tuple[object, ...]:
    """What of a span is no content; of a ref only its kind, as its id may be a digest."""
    read = [(ref_kind(v.ref), v.role, v.origin, v.score) for v in span.inputs]
    wrote = [(ref_kind(v.ref), v.role, v.action, v.size, v.event_time) for v in span.outputs]
    links = [(link.trace_id, link.span_id) for link in span.links]
    own = span.origin, span.parent_id, span.name, span.kind, span.scope, span.seq, span.start, span.end, span.status
    return *own, span.flow, read, wrote, links, [event.name for event in span.events]
