"""A database that does not know what was sent looks into the backend first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from memtrace_otel.annotate import LookingAnnotations, SendError, annotate, deliver
from memtrace_otel.model import Failure, OperationSpan
from memtrace_otel.otlp import decode_request, encode_request
from memtrace_otel.sources import SqliteStore
from tests.unit.annotate.conftest import ANSWER, UPDATE, Receiver, verdict_on


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[SqliteStore]:
    """A database elsewhere that has imported the same spans."""
    with SqliteStore.open(tmp_path / "copy.db") as copy:
        copy.add_request(encode_request([UPDATE, ANSWER]))
        yield copy


def shown(receiver: Receiver, trace_id: str) -> list[OperationSpan]:
    """What the receiver would show of a trace."""
    spans = [span for body in receiver.traces for span in decode_request(body)]
    return [span for span in [UPDATE, ANSWER, *spans] if span.trace_id == trace_id]


def send_from(store: SqliteStore, receiver: Receiver, *types: str) -> list[int]:
    """Send verdicts of these types one after the other, looking first; return how many spans each sent."""
    sent: list[int] = []
    for failure_type in types:
        looking = LookingAnnotations(store, lambda trace_id: shown(receiver, trace_id))
        annotations = annotate([verdict_on(UPDATE, failure_type=failure_type)], looking)
        sent.append(deliver(annotations, looking).spans)
    return sent


def test_a_copy_sends_nothing_that_the_backend_shows(
    store: SqliteStore, copy: SqliteStore, http_receiver: Receiver
) -> None:
    (annotation,) = annotate([verdict_on(UPDATE)], store)
    assert deliver([annotation], store).spans == len(annotation.spans)
    assert send_from(copy, http_receiver, "update") == [0]
    assert len(http_receiver.span_ids()) == len(set(http_receiver.span_ids())) == len(annotation.spans)
    assert {span.span_id for span in annotation.spans} <= {span.span_id for span in copy.spans()}
    # It knows now, without looking.
    assert deliver(annotate([verdict_on(UPDATE)], copy), copy).spans == 0


def test_a_copy_goes_on_from_the_newest_verdict_of_the_backend(
    store: SqliteStore, copy: SqliteStore, http_receiver: Receiver
) -> None:
    assert all(send_from(store, http_receiver, "update", "deletion", "update"))
    assert send_from(copy, http_receiver, "update") == [0]
    assert send_from(copy, http_receiver, "response")[0] > 0
    ids = http_receiver.span_ids()
    assert len(ids) == len(set(ids))


def test_what_a_killed_run_had_not_sent_is_sent(store: SqliteStore, http_receiver: Receiver) -> None:
    (annotation,) = annotate([verdict_on(UPDATE)], store)
    http_receiver.traces.append(encode_request(annotation.spans[:1]))  # sent, and not remembered
    assert send_from(store, http_receiver, "update") == [len(annotation.spans) - 1]
    assert sorted(http_receiver.span_ids()) == sorted(span.span_id for span in annotation.spans)


def test_a_backend_that_cannot_be_read_is_an_error(store: SqliteStore, http_receiver: Receiver) -> None:
    def read(trace_id: str) -> Iterable[OperationSpan]:
        raise ConnectionError("no answer")

    with pytest.raises(ConnectionError):
        annotate([verdict_on(UPDATE)], LookingAnnotations(store, read))
    assert http_receiver.traces == []


def test_an_event_that_the_receiver_of_logs_did_not_take_goes_out_later(
    store: SqliteStore, copy: SqliteStore, http_receiver: Receiver
) -> None:
    http_receiver.status = {"/v1/logs": 503}
    with pytest.raises(SendError):
        send_from(store, http_receiver, "update")
    http_receiver.status = {}
    assert send_from(store, http_receiver, "update") == [0]
    assert send_from(store, http_receiver, "update") == [0]
    assert send_from(copy, http_receiver, "update") == [0]
    assert len(http_receiver.logs) == 1


def test_the_event_of_a_verdict_that_a_killed_run_had_not_finished_is_sent(
    store: SqliteStore, http_receiver: Receiver
) -> None:
    (annotation,) = annotate([verdict_on(UPDATE)], store)
    http_receiver.traces.append(encode_request(annotation.spans[:-1]))  # the root among them
    assert send_from(store, http_receiver, "update", "update") == [1, 0]
    assert len(http_receiver.logs) == 1


@pytest.mark.parametrize("status", [413, 503])
def test_no_event_of_a_verdict_that_the_backend_shows_goes_out_after_an_error(
    status: int, store: SqliteStore, copy: SqliteStore, http_receiver: Receiver
) -> None:
    assert send_from(store, http_receiver, "update") == [6]
    later = replace(ANSWER, span_id="c" * 16)
    verdicts = [verdict_on(UPDATE), verdict_on(UPDATE, failure=Failure(later))]

    def send_both() -> int:
        looking = LookingAnnotations(copy, lambda trace_id: shown(http_receiver, trace_id))
        return deliver(annotate(verdicts, looking), looking).spans

    http_receiver.first = [status]
    with pytest.raises(SendError, match=f"HTTP {status}"):
        send_both()
    assert len(http_receiver.logs) == 1
    assert (send_both(), send_both()) == (6, 0)
    ids = http_receiver.span_ids()
    assert len(ids) == len(set(ids)) == 12
    requests = map(ExportLogsServiceRequest.FromString, http_receiver.logs)
    judged = [one.scope_logs[0].log_records[0].span_id.hex() for request in requests for one in request.resource_logs]
    assert judged == [ANSWER.span_id, later.span_id]
