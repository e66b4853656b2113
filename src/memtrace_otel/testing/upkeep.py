"""The contract of stores that are kept small and clean: see `memtrace_otel.testing.stores`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memtrace_otel import semconv
from memtrace_otel.model import (
    Event,
    Link,
    OperationSpan,
    Variable,
    content_digest,
    make_origin,
    ref_kind,
    split_origin,
)
from memtrace_otel.otlp import encode_request
from memtrace_otel.sources.errors import StoreError
from memtrace_otel.sources.protocols import StoreStats
from memtrace_otel.sources.upkeep import Pruned, StoreUpkeep
from memtrace_otel.testing.stores import contract_span

_SECOND = 1_000_000_000


class UpkeepContract:
    """What every `StoreUpkeep` promises. The subclass has a fixture `upkeep`: an empty store."""

    def test_an_empty_store_has_nothing(self, upkeep: StoreUpkeep) -> None:
        assert upkeep.stats() == StoreStats(0, 0, 0, 0, 0, 0, 0, 0)
        assert upkeep.scopes() == []
        assert upkeep.check() == []

    def test_what_cannot_be_read_is_counted_until_it_is_old(self, upkeep: StoreUpkeep) -> None:
        upkeep.add_request(b"\xff\xff no request")
        assert (upkeep.stats().waiting, upkeep.stats().quarantined) == (0, 1)
        upkeep.prune(before=2**62, scope="a" * 16)
        assert upkeep.stats().quarantined == 1
        upkeep.prune(before=1)
        assert upkeep.stats().quarantined == 1
        upkeep.prune(before=2**62)
        assert upkeep.stats().quarantined == 0

    def test_prune_by_age_and_scope_leaves_what_is_younger(self, upkeep: StoreUpkeep) -> None:
        here = "a" * 16
        old = contract_span(1, 1, 1, kind="create", scope=here)
        young = contract_span(2, 2, 9, kind="create", scope=here)
        other = contract_span(3, 3, 1, kind="create", scope="b" * 16)
        upkeep.add_request(encode_request([old, young, other]))
        assert upkeep.prune(before=5 * _SECOND, scope=here) == Pruned(1, 1)
        assert list(upkeep.spans()) == [other, young]

    def test_a_judgement_of_what_was_pruned_goes_with_it(self, upkeep: StoreUpkeep) -> None:
        answers = [contract_span(n, n, n, kind="respond") for n in (1, 2)]
        said = [Variable(f"answer:{n}", "answer", answer.origin) for n, answer in enumerate(answers)]
        judge = contract_span(3, 3, 50, kind="judge", inputs=(said[0],))
        comparison = contract_span(4, 4, 50, kind="judge", inputs=tuple(said))
        upkeep.add_request(encode_request([*answers, judge, comparison]))
        upkeep.prune(before=2 * _SECOND)
        assert list(upkeep.spans()) == [answers[1], comparison]
        upkeep.prune(before=3 * _SECOND)
        assert list(upkeep.spans()) == []

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

    def test_prune_by_size_removes_unreadable_requests_before_traces(self, upkeep: StoreUpkeep) -> None:
        upkeep.add_request(encode_request([contract_span(n, n, n) for n in range(1, 101)]))
        for _ in range(4):
            upkeep.add_request(b"\xff" * 1_000_000)
        upkeep.decode()
        limit = upkeep.size().used - 1_500_000
        assert upkeep.prune(max_bytes=limit) == Pruned(0, 0, 2)
        assert upkeep.stats().quarantined == 2
        assert upkeep.size().used <= limit

    def test_prune_by_size_removes_nothing_when_no_trace_is_large_enough(self, upkeep: StoreUpkeep) -> None:
        resource = {"service.name": "x" * 100_000}
        spans = [replace(contract_span(n, n, n), resource={**resource, "n": n}) for n in range(1, 21)]
        upkeep.add_request(encode_request(spans))
        upkeep.add_request(b"\xff\xff no request")
        upkeep.decode()
        with pytest.raises(StoreError, match="resources of spans 2"):
            upkeep.prune(max_bytes=1_000_000)
        with pytest.raises(StoreError, match="nothing removed"):
            upkeep.prune(max_bytes=1)
        assert (upkeep.stats().spans, upkeep.stats().quarantined) == (20, 1)

    def test_prune_of_a_scope_by_size_removes_nothing_for_unreadable_requests(self, upkeep: StoreUpkeep) -> None:
        upkeep.add_request(encode_request([contract_span(1, 1, 1, kind="create", scope="a" * 16)]))
        upkeep.add_request(b"\xff" * 1_000_000)
        upkeep.decode()
        with pytest.raises(StoreError, match="unreadable requests 1000000 bytes"):
            upkeep.prune(max_bytes=900_000, scope="a" * 16)
        assert upkeep.stats().spans == 1

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
            assert not any(v.content or v.store for v in (*after.inputs, *after.outputs))
            kept = {v.digest for v in (*before.inputs, *before.outputs)} - {""}
            assert kept.isdisjoint(v.digest for v in (*after.inputs, *after.outputs))

    def test_forget_takes_what_no_origin_can_be_for_nobodys(self, upkeep: StoreUpkeep) -> None:
        """Spans come from anybody."""
        inputs = tuple(Variable("memory:1", origin=origin, content="secret") for origin in ("0123", "-", "x" * 49))
        upkeep.add_request(encode_request([contract_span(1, 1, kind="update", scope="a" * 16, inputs=inputs)]))
        assert upkeep.forget("a" * 16).finished
        assert "secret" not in repr(list(upkeep.spans()))
        assert upkeep.check() == []

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
        assert [(v.ref, v.origin, v.content) for v in read.inputs] == [
            ("memory:1", spans[0].origin, ""),
            ("memory:2", "", "own"),
        ]
        assert read.inputs[0].digest != "d" * 16

    def test_forget_leaves_equal_digests_equal_and_others_different(self, upkeep: StoreUpkeep) -> None:
        rome, scope = content_digest("Rome"), "a" * 16
        digests = rome, content_digest("Oslo"), "x" * 64
        writes = [
            contract_span(n, n, n, kind="update", scope=scope, outputs=(Variable("memory:1", digest=digest),))
            for n, digest in enumerate(digests, 1)
        ]
        stale = contract_span(4, 4, 4, kind="retrieve", scope=scope, inputs=(Variable("memory:1", digest=rome),))
        upkeep.add_request(encode_request([*writes, stale]))
        upkeep.forget(scope)
        first, second, odd, read = upkeep.spans()
        assert read.inputs[0].digest == first.outputs[0].digest not in ("", rome, second.outputs[0].digest)
        assert odd.outputs[0].digest == ""

    def test_forget_still_names_what_was_read_from_another_scope(self, upkeep: StoreUpkeep) -> None:
        digest = content_digest("The warranty lasts two years")
        chunk = Variable(f"chunk:{digest}", digest=digest, action="ADD")
        index = contract_span(1, 1, 1, kind="index", scope="b" * 16, outputs=(chunk,))
        hit = Variable(chunk.ref, "hit", index.origin, digest)
        unknown = Variable(chunk.ref, "hit", make_origin(f"{9:032x}", f"{9:016x}"), digest)
        link = Link(*split_origin(index.origin), {semconv.LINK_REFS: [chunk.ref]})
        search = contract_span(2, 2, 2, kind="retrieve", scope="a" * 16, inputs=(hit, unknown), links=(link,))
        upkeep.add_request(encode_request([index, search]))
        upkeep.forget("a" * 16)
        (read,) = upkeep.trace(search.trace_id)
        assert (read.inputs[0].ref, read.inputs[0].digest, read.inputs[0].content) == (chunk.ref, digest, "")
        assert [one.attributes[semconv.LINK_REFS] for one in read.links] == [[chunk.ref]]
        assert digest not in (read.inputs[1].ref, read.inputs[1].digest)

    def test_forget_follows_answers_into_traces_without_a_scope(self, upkeep: StoreUpkeep) -> None:
        spans = _secret_life("a" * 16)
        told = Variable("answer:1", "answer", spans[-1].origin, content="secret")
        retold = contract_span(5, 51, 9, kind="respond", inputs=(told,), attributes={"gen_ai.input.messages": "secret"})
        upkeep.add_request(encode_request([*spans, retold]))
        upkeep.forget("a" * 16)
        assert "secret" not in repr(list(upkeep.spans()))

    def test_forget_empties_unreadable_requests_that_name_the_scope(self, upkeep: StoreUpkeep) -> None:
        upkeep.add_request(encode_request(_secret_life("a" * 16))[:-1])
        assert upkeep.forget("b" * 16).quarantined == 0
        assert upkeep.forget("a" * 16).quarantined == 1
        assert upkeep.stats().quarantined == 1

    def test_forget_leaves_copies_only_when_told_to(self, upkeep: StoreUpkeep) -> None:
        upkeep.add_request(encode_request(_secret_life("a" * 16)))
        assert not upkeep.forget("a" * 16, compact=False).finished
        assert "secret" not in repr(list(upkeep.spans()))
        assert upkeep.forget("a" * 16).finished

    def test_forget_needs_a_scope(self, upkeep: StoreUpkeep) -> None:
        upkeep.add_request(encode_request([contract_span(1, 1)]))
        with pytest.raises(ValueError, match="scope"):
            upkeep.forget("")

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

    def test_a_compacted_store_gives_the_same_answers(self, upkeep: StoreUpkeep) -> None:
        spans = [span for n in range(1, 60) for span in (_talk(n, "a" * 16), _talk(n + 100, "b" * 16), _talk(n + 200))]
        upkeep.add_request(encode_request(spans))
        before = list(upkeep.spans()), upkeep.readers(spans[0].origin), upkeep.trace_ids(), upkeep.stats()
        for _ in range(2):
            upkeep.compact()
            after = list(upkeep.spans()), upkeep.readers(spans[0].origin), upkeep.trace_ids(), upkeep.stats()
            assert after == before
        assert upkeep.check() == []
        upkeep.add_request(encode_request([spans[0], late := contract_span(900, 900, 900)]))
        assert upkeep.trace(late.trace_id) == [late]
        upkeep.forget("a" * 16)
        others = [span for span in spans if span.scope == "b" * 16 and not span.inputs]
        assert [span for span in upkeep.spans() if span.scope == "b" * 16 and not span.inputs] == others
        upkeep.prune(scope="b" * 16)
        assert upkeep.check() == []

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


def _talk(n: int, scope: str = "") -> OperationSpan:
    read = (Variable("memory:1", origin=make_origin(f"{1:032x}", f"{1:016x}")),) if n % 7 == 0 else ()
    said = Variable(f"memory:{n}", content=f"what was said the {n}th time about the harbour", action="ADD")
    return contract_span(n, n, n, kind="create", scope=scope, inputs=read, outputs=(said,))


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
