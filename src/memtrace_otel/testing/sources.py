"""The contract of trace sources.

class TestMyBackend(SourceContract, RecordContract):
    @pytest.fixture
    def fill(self): ...      # a function that stores requests and returns the source
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memtrace_otel.model import OperationSpan, Variable, make_origin
from memtrace_otel.sources.protocols import TraceSource

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
    """The promises of every `TraceSource`. Takes the fixture `fill`."""

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

    def test_one_span_id_in_two_traces_is_two_spans(self, fill: Fill) -> None:
        spans = [contract_span(1, 1, 1), contract_span(2, 1, 2)]
        assert list(fill(spans).spans()) == spans

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

    def test_readers_are_found_by_origin(self, fill: Fill) -> None:
        writer = contract_span(1, 1, kind="create", outputs=(Variable("memory:1", action="ADD"),))
        both = (Variable("memory:1", origin=writer.origin), Variable("memory:2", origin=writer.origin))
        reader = contract_span(2, 2, 9, kind="retrieve", inputs=both)
        stranger = contract_span(3, 3, 9, kind="retrieve", inputs=(Variable("memory:1"),))
        source = fill([reader, stranger], [writer])
        assert source.readers(writer.origin) == [reader]
        assert source.readers(stranger.origin) == []

    def test_readers_are_selected_by_kind(self, fill: Fill) -> None:
        read = (Variable("answer:1", origin=make_origin("a" * 32, "b" * 16)),)
        judge = contract_span(1, 1, 1, kind="judge", inputs=read)
        ingest = contract_span(2, 2, 2, kind="ingest", inputs=read)
        source = fill([contract_span(3, 3, 3, kind="update", inputs=read), ingest, judge])
        assert source.readers(read[0].origin, kinds=["judge"]) == [judge]
        assert source.readers(read[0].origin, kinds=["ingest", "judge"]) == [judge, ingest]

    def test_a_trace_id_that_begins_with_zeros_is_found(self, fill: Fill) -> None:
        ids = (0xF << 120, 0xABCDEF, 1)
        spans = [contract_span(id, n, n, scope="a" * 16) for n, id in enumerate(ids, 1)]
        source = fill(spans)
        assert source.trace_ids(scope="a" * 16) == [span.trace_id for span in spans]
        assert [source.trace(span.trace_id) for span in spans] == [[span] for span in spans]

    def test_a_scope_with_query_characters_is_plain_text(self, fill: Fill) -> None:
        names = ['a" || true || "', "a'b", "a|b", ".*", "é\\n", "{}"]
        spans = [contract_span(n, n, n, scope=scope) for n, scope in enumerate(names, 1)]
        source = fill([*spans, contract_span(9, 9, 9, scope="other")])
        assert [source.trace_ids(scope=scope) for scope in names] == [[span.trace_id] for span in spans]

    def test_trace_ids_are_each_trace_once_by_time(self, fill: Fill) -> None:
        spans = [contract_span(3, 1, 1), contract_span(1, 2, 2), contract_span(3, 3, 3), contract_span(2, 4, 4)]
        source = fill(list(reversed(spans)))
        assert source.trace_ids() == [f"{n:032x}" for n in (3, 1, 2)]
        assert source.trace_ids(scope=spans[0].scope) == source.trace_ids()
        assert source.trace_ids(scope="f" * 16) == []

    def test_the_traces_of_a_scope_are_ordered_by_their_first_span_of_the_scope(self, fill: Fill) -> None:
        mine, others = "a" * 16, "b" * 16
        spans = [contract_span(1, 1, 1, scope=others), contract_span(2, 2, 2, scope=mine)]
        source = fill([*spans, contract_span(1, 3, 3, scope=mine), contract_span(3, 4, 4, scope=others)])
        assert source.trace_ids(scope=mine) == [f"{n:032x}" for n in (2, 1)]
        assert source.trace_ids(scope=others) == [f"{n:032x}" for n in (1, 3)]

    def test_readers_are_in_order_of_time(self, fill: Fill) -> None:
        origin = make_origin("a" * 32, "b" * 16)
        spans = [contract_span(n, n, 9 - n, inputs=(Variable("memory:1", origin=origin),)) for n in range(1, 5)]
        assert fill(spans).readers(origin) == spans[::-1]

    def test_spans_with_jumping_clocks_are_found(self, fill: Fill) -> None:
        spans = [contract_span(1, 1, 0), contract_span(1, 2, 1), contract_span(1, 3, 9_000_000_000)]
        source = fill([spans[2]], [spans[0]], [spans[1]])
        assert source.trace(spans[0].trace_id) == spans
        assert list(source.spans(since=_SECOND)) == spans[1:]

    def test_every_part_of_an_operation_comes_back(self, fill: Fill) -> None:
        whole = contract_span(1, 1, 1, kind="retrieve", inputs=(Variable("memory:1"),))
        rest = contract_span(1, 2, 2, kind="retrieve", part=1, parent_id=whole.span_id, inputs=(Variable("memory:2"),))
        assert fill([whole, rest]).trace(whole.trace_id) == [whole, rest]

    def test_more_spans_than_a_page_with_equal_times(self, fill: Fill) -> None:
        spans = [contract_span(n // 7 + 1, n + 1, 1) for n in range(1000)]
        found = list(fill(spans).spans())
        assert sorted(span.origin for span in found) == [span.origin for span in spans]


class RecordContract:
    """The promises of every `TraceSource` on changes and writers of records. Takes the fixture `fill`."""

    owner, other = "a" * 16, "b" * 16
    unique = "memory:0a0b0c0d-0000-4000-8000-000000000001"

    def written(self, trace: int, ref: str, **fields: Any) -> OperationSpan:
        """Return the span that wrote a record of the owner."""
        outputs = (Variable(ref, action="ADD"),)
        return contract_span(trace, trace, trace, kind="create", scope=self.owner, outputs=outputs, **fields)

    def test_changes_by_other_scopes_are_found(self, fill: Fill) -> None:
        plain, unique = self.written(1, "memory:1"), self.written(2, self.unique)
        read = (Variable("memory:1", "previous", plain.origin),)
        deleted = (Variable(self.unique, action="DELETE"),)
        changes = [
            contract_span(3, 3, 3, kind="update", scope=self.other, inputs=read),
            contract_span(4, 4, 4, kind="delete", inputs=read),
            contract_span(5, 5, 5, kind="delete", scope=self.other, outputs=deleted),
        ]
        others = [
            contract_span(6, 6, 6, kind="retrieve", scope=self.other, inputs=read),
            contract_span(7, 7, 7, kind="delete", scope=self.other, outputs=(Variable("memory:1", action="DELETE"),)),
        ]
        source = fill([*changes, *others], [plain, unique])
        found = source.changed_elsewhere([plain, unique])
        assert found - {plain.trace_id, unique.trace_id} == {span.trace_id for span in changes}
        assert source.changed_elsewhere([others[0]]) == set()
        assert source.changed_elsewhere([]) == set()

    def test_changes_of_a_record_without_a_scope_are_found(self, fill: Fill) -> None:
        made = contract_span(1, 1, 1, kind="create", outputs=(Variable("memory:1", action="ADD"),))
        change = contract_span(2, 2, 2, kind="update", inputs=(Variable("memory:1", "previous", made.origin),))
        assert fill([made], [change]).changed_elsewhere([made]) - {made.trace_id} == {change.trace_id}

    def test_every_writing_kind_may_change_a_record(self, fill: Fill) -> None:
        """An ingestion may update, an index may delete."""
        plain, unique = self.written(1, "memory:1"), self.written(2, self.unique)
        read = (Variable("memory:1", "previous", plain.origin),)
        deleted = (Variable(self.unique, action="DELETE"),)
        changes = [
            contract_span(n, n, n, kind=kind, scope=self.other, inputs=inputs, outputs=outputs)
            for n, (kind, inputs, outputs) in enumerate(
                (("ingest", read, ()), ("create", read, ()), ("index", (), deleted), ("ingest", (), deleted)), 3
            )
        ]
        found = fill([plain, unique], changes).changed_elsewhere([plain, unique])
        assert found - {plain.trace_id, unique.trace_id} == {span.trace_id for span in changes}

    def test_records_of_a_reading_span_count(self, fill: Fill) -> None:
        """A search may store a record or list a record; both are found."""
        writes, lists = (
            contract_span(1, 1, 1, kind="retrieve", scope=self.owner, outputs=(Variable("memory:1", action="ADD"),)),
            contract_span(2, 2, 2, kind="retrieve", scope=self.owner, outputs=(Variable(self.unique),)),
        )
        read = (Variable("memory:1", "previous", writes.origin), Variable("memory:2", "previous", lists.origin))
        changes = [
            contract_span(3, 3, 3, kind="delete", scope=self.other, inputs=read[:1]),
            contract_span(4, 4, 4, kind="delete", scope=self.other, outputs=(Variable(self.unique, action="DELETE"),)),
        ]
        other = contract_span(5, 5, 5, kind="consolidate", scope=self.other, inputs=read[1:])
        found = fill([writes, lists], [*changes, other]).changed_elsewhere([writes, lists])
        assert found == {span.trace_id for span in changes}

    def test_changes_of_many_records_are_found(self, fill: Fill) -> None:
        records = [self.written(n, f"memory:{n:08x}-0000-4000-8000-000000000000") for n in range(1, 231)]
        changes = [
            contract_span(1000 + n, 1, 500, kind="delete", scope=self.other, outputs=record.outputs)
            for n, record in enumerate(records)
            if n % 20 == 3
        ]
        found = fill(records, changes).changed_elsewhere(records)
        assert found - {record.trace_id for record in records} == {span.trace_id for span in changes}

    def test_readers_of_a_failed_write_are_found(self, fill: Fill) -> None:
        failed = self.written(1, "memory:1", status="error")
        read = (Variable("memory:1", "hit", failed.origin),)
        reader = contract_span(2, 2, 2, kind="retrieve", scope=self.other, inputs=read)
        assert fill([failed, reader]).changed_elsewhere([failed]) == {reader.trace_id}

    def test_writers_are_found_by_ref(self, fill: Fill) -> None:
        spans = [self.written(1, self.unique), self.written(2, self.unique), self.written(3, "memory:1")]
        source = fill(spans)
        assert sorted(source.writers(self.unique) or ()) == [span.trace_id for span in spans[:2]]
        assert source.writers("memory:none") == []
