"""The contract of stores: sources that also take spans. `DurableContract`: stores that outlive their process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from memtrace_otel.model import OperationSpan, Variable, make_origin
from memtrace_otel.otlp import encode_request
from memtrace_otel.sources.protocols import TraceSource
from memtrace_otel.testing import Fill, SourceContract, contract_span


class SpanStore(TraceSource, Protocol):
    """A source that also takes spans. Of two spans with one id the first acknowledged span stays."""

    def add_request(self, body: bytes) -> None:
        """Store an OTLP trace request (protobuf). When this returns the body is on disk and survives kill -9.

        A body that cannot be decoded is set aside later, counted and never lost. Raises SourceError when the body was
        not stored.
        """
        ...

    def decode(self) -> int:
        """Turn waiting requests into spans; return how many spans are new. Reads also decode."""
        ...


class StoreContract(SourceContract):
    """The promises of a `SpanStore`. The subclass has a fixture `store`: an empty store."""

    def fill_store(self, store: SpanStore, *requests: Sequence[OperationSpan]) -> SpanStore:
        """Deliver requests to `store`."""
        for spans in requests:
            store.add_request(encode_request(spans))
        return store

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

    def test_equal_times_are_in_order_of_arrival(self, fill: Fill) -> None:
        origin = make_origin("a" * 32, "b" * 16)
        spans = [contract_span(1, n, 1, inputs=(Variable("memory:1", origin=origin),)) for n in (5, 2, 9, 1)]
        source = fill(spans[:1], spans[1:3], spans[3:])
        assert source.trace(spans[0].trace_id) == spans
        assert list(source.spans()) == spans
        assert source.readers(origin) == spans

    def test_equal_times_are_in_order_of_arrival_past_a_page(self, fill: Fill) -> None:
        spans = [contract_span(n // 7 + 1, n + 1, 1) for n in range(1000)]
        assert list(fill(spans).spans()) == spans

    def test_decode_counts_the_new_spans(self, store: SpanStore) -> None:
        spans = [contract_span(1, 1), contract_span(1, 2)]
        store.add_request(encode_request(spans))
        assert store.decode() == 2
        store.add_request(encode_request(spans))
        assert store.decode() == 0

    def test_an_unreadable_request_does_not_hide_others(self, store: SpanStore) -> None:
        span = contract_span(1, 1)
        store.add_request(b"\xff\xff no request")
        store.add_request(encode_request([span]))
        store.add_request(encode_request([contract_span(1, 2)])[:-1])
        assert store.trace(span.trace_id) == [span]
        assert store.decode() == 0

    def test_the_first_content_stays_within_one_request(self, store: SpanStore) -> None:
        spans = [contract_span(1, 1, name="first"), contract_span(1, 1, name="second")]
        store.add_request(encode_request(spans))
        assert store.decode() == 1
        assert store.trace(spans[0].trace_id) == spans[:1]

    def test_an_acknowledged_request_is_visible_to_every_query(self, store: SpanStore) -> None:
        writer = contract_span(1, 1, kind="create", scope="a" * 16, outputs=(Variable("memory:1", action="ADD"),))
        read = (Variable("memory:1", origin=writer.origin),)
        spans = [contract_span(n, n, n, kind="retrieve", scope=f"{n:016x}", inputs=read) for n in range(2, 5)]
        store.add_request(encode_request(spans[:1]))
        assert store.trace(spans[0].trace_id) == spans[:1]
        store.add_request(encode_request(spans[1:2]))
        assert list(store.spans(scope=spans[1].scope)) == spans[1:2]
        store.add_request(encode_request(spans[2:]))
        assert store.readers(writer.origin) == spans
        store.add_request(encode_request([contract_span(9, 9, 9)]))
        assert store.trace_ids()[-1] == f"{9:032x}"

    def test_spans_added_while_reading_do_not_break_it(self, store: SpanStore) -> None:
        store.add_request(encode_request([contract_span(1, n + 1, n + 1) for n in range(600)]))
        seen: list[str] = []
        for index, span in enumerate(store.spans()):
            seen.append(span.span_id)
            if index % 100 == 0:
                store.add_request(encode_request([contract_span(2, 10_000 + index, 1)]))
        assert set(seen) >= {f"{n + 1:016x}" for n in range(600)}
        assert len(set(seen)) == len(seen)


class DurableContract:
    """The promises of a `SpanStore` that outlives its process.

    The subclass has a fixture `open_store`: a function that opens the same store again, at first an empty one.
    """

    def test_an_acknowledged_request_is_visible_to_other_processes(self, open_store: Callable[[], SpanStore]) -> None:
        writing = open_store()
        for n in range(1, 4):
            span = contract_span(n, n)
            writing.add_request(encode_request([span]))
            assert open_store().trace(span.trace_id) == [span]

    def test_a_request_is_decoded_once_for_all(self, open_store: Callable[[], SpanStore]) -> None:
        one, other = open_store(), open_store()
        one.add_request(encode_request([contract_span(1, 1), contract_span(1, 2)]))
        assert one.decode() + other.decode() == 2
        assert list(other.spans()) == list(one.spans())

    def test_the_first_of_two_writers_counts(self, open_store: Callable[[], SpanStore]) -> None:
        one, other = open_store(), open_store()
        one.add_request(encode_request([contract_span(1, 1, name="first")]))
        other.add_request(encode_request([contract_span(1, 1, name="second")]))
        assert [span.name for span in open_store().spans()] == ["first"]
