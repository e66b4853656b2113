"""Verdicts in the database and at the receiver: each span once, failures seen."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import grpc
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from memtrace_otel.annotate import RejectedError, SendError, annotate, annotation_spans, deliver, publish
from memtrace_otel.annotate.target import Target
from memtrace_otel.model import Alternative, Failure, OperationSpan, Step
from memtrace_otel.otlp import encode_request
from memtrace_otel.sources import SqliteStore
from tests.unit.annotate.conftest import ANSWER, ASKED, TOLD, UPDATE, Receiver, verdict_on


def test_a_verdict_lands_in_both_traces_and_in_one_of_its_own(store: SqliteStore) -> None:
    (annotation,) = annotate([verdict_on(UPDATE)], store)
    assert [span.name for span in store.trace(ASKED)] == ["chat gpt-4o", "memtrace.attribution update"]
    assert [span.name for span in store.trace(TOLD)] == ["update_memory", "memtrace.attribution update"]
    assert next(span.name for span in store.trace(annotation.root.trace_id)) == "memtrace.attribute"
    assert annotation.new == len(annotation.spans) == 6
    assert {span.origin: span for span in annotation.spans} == {
        span.origin: span
        for trace_id in (ASKED, TOLD, annotation.root.trace_id)
        for span in store.trace(trace_id)
        if span not in (ANSWER, UPDATE)
    }


def test_a_verdict_that_otlp_cannot_hold_is_named_and_stops_no_other(
    store: SqliteStore, http_receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    odd = verdict_on(None, trace_id="no trace id", span_id="c" * 16)
    annotations = annotate([odd, verdict_on(UPDATE)], store)
    assert [(annotation.new, len(annotation.spans)) for annotation in annotations] == [(0, 0), (6, 6)]
    assert ANSWER.origin in caplog.text
    sent = deliver(annotations, store)
    assert (sent.spans, sent.events) == (6, 1)


def test_the_same_verdict_adds_nothing_and_keeps_the_time_of_its_attribution(store: SqliteStore) -> None:
    (first,) = annotate([verdict_on(UPDATE)], store, started=5)
    (second,) = annotate([verdict_on(UPDATE, confidence=0.5)], store, started=6)
    assert second.new == 0
    assert second.spans == first.spans
    assert len(store.trace(ASKED)) == 2


def test_a_changed_verdict_names_the_one_it_replaces(store: SqliteStore) -> None:
    (first,) = annotate([verdict_on(UPDATE)], store)
    (second,) = annotate([verdict_on(ANSWER, failure_type="response")], store)
    markers = [span for span in store.trace(ASKED) if span.instrumentation_scope == "memtrace_otel.attribution"]
    assert {span.attributes.get("memtrace.attribution.replaces") for span in markers} == {
        None,
        first.verdict.attribution_id,
    }
    assert second.verdict.replaces == first.verdict.attribution_id


def test_a_verdict_made_of_a_part_replaces_no_complete_one(
    store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    annotate([verdict_on(UPDATE, complete=True)], store)
    another = verdict_on(ANSWER, failure_type="response", complete=False)
    (held,) = annotate([another], store, partial=True)
    assert (held.is_held, held.spans, held.new) == (True, (), 0)
    assert "does not replace the earlier verdict" in caplog.text
    (same,) = annotate([verdict_on(UPDATE, complete=False)], store, partial=True)
    assert (same.is_held, same.new) == (False, 0)
    (whole,) = annotate([another], store)
    assert whole.new > 0  # what is whole may be incomplete for other reasons
    (next_one,) = annotate([verdict_on(ANSWER, failure_type="unknown", complete=False)], store, partial=True)
    assert next_one.new > 0


@pytest.mark.parametrize(("complete", "replaces"), [(False, False), (True, True)])
def test_an_incomplete_verdict_replaces_no_complete_one_of_a_database_that_knew_more(
    complete: bool, replaces: bool, store: SqliteStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (whole,) = annotate([verdict_on(UPDATE, complete=True)], store)
    later = verdict_on(ANSWER, failure_type="retrieval", complete=complete)
    with SqliteStore.open(tmp_path / "less.db") as less:
        less.add_request(encode_request([ANSWER, whole.spans[0]]))  # as the backend shows it
        (other,) = annotate([later], less, has_operation=lambda origin: origin != UPDATE.origin)
        assert (not other.is_held, other.new > 0) == (replaces, replaces)
        assert ("made without the operations that the earlier verdict names" in caplog.text) is not replaces
        (knowing,) = annotate([later], less)
        assert not knowing.is_held


def test_a_verdict_of_a_person_is_replaced_by_a_person_only(store: SqliteStore) -> None:
    (first,) = annotate([verdict_on(ANSWER, failure_type="response", method="human")], store)
    (held,) = annotate([verdict_on(UPDATE)], store)
    (second,) = annotate([verdict_on(UPDATE, method="human")], store)
    assert held.is_held
    assert second.verdict.replaces == first.verdict.attribution_id


def test_an_upgrade_of_the_program_adds_and_sends_nothing(
    store: SqliteStore, http_receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(annotate([verdict_on(UPDATE)], store), store)
    for module in ("attributes", "attribution_trace", "evaluation"):
        monkeypatch.setattr(f"memtrace_otel.annotate.{module}.__version__", "99.0")
    (again,) = annotate([verdict_on(UPDATE, version="99.0")], store)
    assert again.new == 0
    assert deliver([again], store).spans == 0


def test_a_complete_verdict_that_blames_nothing_is_replaced(store: SqliteStore) -> None:
    annotate([verdict_on(None, failure_type="not_memory", complete=True)], store)
    (other,) = annotate([verdict_on(ANSWER, failure_type="retrieval", complete=False)], store)
    assert not other.is_held


def test_a_verdict_waits_for_the_answering_span(store: SqliteStore) -> None:
    lost = OperationSpan(ASKED, "f" * 16, kind="respond", start=5, end=5, incomplete=("missing",))
    held, written = annotate([verdict_on(UPDATE, failure=Failure(lost, lacks_answer=True)), verdict_on(UPDATE)], store)
    assert (held.is_held, held.spans, held.new) == (True, (), 0)
    assert (written.is_held, written.new) == (False, 6)
    assert len(store.trace(ASKED)) == 2


def test_a_decisive_span_that_is_not_stored_leaves_the_causing_trace_alone(store: SqliteStore) -> None:
    (annotation,) = annotate([verdict_on(UPDATE, span_id="d" * 16)], store)
    assert len(store.trace(TOLD)) == 1
    assert annotation.spans[0].parent_id == ANSWER.span_id


def test_nothing_is_sent_without_a_receiver(store: SqliteStore) -> None:
    delivery = deliver(annotate([verdict_on(UPDATE)], store), store)
    assert (delivery.traces, delivery.spans, delivery.logs, delivery.events) == (None, 0, None, 0)


def test_http_receiver_gets_every_span_and_event_once(store: SqliteStore, http_receiver: Receiver) -> None:
    annotations = annotate([verdict_on(UPDATE)], store)
    delivery = deliver(annotations, store)
    assert (delivery.spans, delivery.events) == (6, 1)
    again = deliver(annotate([verdict_on(UPDATE)], store), store)
    assert (again.spans, again.events) == (0, 0)
    assert sorted(http_receiver.span_ids()) == sorted(span.span_id for span in annotations[0].spans)
    assert len(http_receiver.logs) == 1


def test_headers_and_compression_are_those_of_the_environment(
    store: SqliteStore, http_receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_LOGS_EXPORTER", "none")
    deliver(annotate([verdict_on(UPDATE)], store), store)
    (headers,) = http_receiver.headers
    assert (headers["x-tenant"], headers["content-encoding"]) == ("blue", "gzip")
    assert headers["content-type"] == "application/x-protobuf"
    assert http_receiver.traces[0][:2] == b"\x1f\x8b"


def test_grpc_receiver_without_logs_gets_the_spans_and_no_error(
    store: SqliteStore, grpc_receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue")
    delivery = deliver(annotate([verdict_on(UPDATE)], store), store)
    assert (delivery.spans, delivery.logs, delivery.events) == (6, None, 0)
    assert len(grpc_receiver.span_ids()) == 6
    assert grpc_receiver.headers[0]["x-tenant"] == "blue"


@pytest.mark.parametrize("status", [404, 405, 501])
def test_http_receiver_without_logs_is_no_error_but_one_without_traces_is(
    status: int, store: SqliteStore, http_receiver: Receiver
) -> None:
    http_receiver.status = {"/v1/logs": status}
    delivery = deliver(annotate([verdict_on(UPDATE)], store), store)
    assert (delivery.spans, delivery.logs) == (6, None)
    http_receiver.status = {"/v1/traces": 404}
    with pytest.raises(SendError, match=r"cannot send traces to http://127\.0\.0\.1:\d+/v1/traces .*HTTP 404"):
        deliver(annotate([verdict_on(ANSWER, failure_type="response")], store), store)


def test_one_that_takes_spans_and_no_logs_is_told_with_the_setting(store: SqliteStore, http_receiver: Receiver) -> None:
    http_receiver.status = {"/v1/logs": 400}
    with pytest.raises(SendError, match=r"cannot send logs to .*HTTP 400 .* \(OTEL_LOGS_EXPORTER=none sends no"):
        deliver(annotate([verdict_on(UPDATE)], store), store)


_CREDENTIALS = "set a token or a tenant in OTEL_EXPORTER_OTLP_HEADERS"


@pytest.mark.parametrize(("code", "hint"), [("UNAUTHENTICATED", True), ("UNAVAILABLE", False)])
def test_a_grpc_error_has_the_words_of_the_receiver_and_names_the_setting_of_credentials(
    code: str, hint: bool, store: SqliteStore, grpc_receiver: Receiver
) -> None:
    grpc_receiver.refusal = grpc.StatusCode[code], "no org id"
    with pytest.raises(SendError, match=f"{code} no org id") as raised:
        deliver(annotate([verdict_on(UPDATE)], store), store)
    assert (_CREDENTIALS in str(raised.value)) is hint


@pytest.mark.parametrize(("status", "hint"), [(401, True), (403, True), (503, False)])
def test_an_http_error_has_the_words_of_the_receiver_and_names_the_setting_of_credentials(
    status: int, hint: bool, store: SqliteStore, http_receiver: Receiver
) -> None:
    http_receiver.status, http_receiver.reply = {"/v1/traces": status}, b"\x08\x0e\x12\x09no org id"
    with pytest.raises(SendError, match=f"HTTP {status} .*: no org id") as raised:
        deliver(annotate([verdict_on(UPDATE)], store), store)
    assert (_CREDENTIALS in str(raised.value)) is hint


@pytest.mark.parametrize("status", [302, 307])
def test_a_redirect_is_a_failure_and_no_header_goes_elsewhere(
    status: int, store: SqliteStore, http_receiver: Receiver
) -> None:
    http_receiver.status = {"/v1/traces": status}
    http_receiver.location = "/login"
    annotations = annotate([verdict_on(UPDATE)], store)
    with pytest.raises(SendError, match=f"HTTP {status} .*: the endpoint redirects"):
        deliver(annotations, store)
    assert len(http_receiver.headers) == 1
    http_receiver.status = {}
    assert deliver(annotations, store).spans == 6


def test_a_refused_request_is_seen_and_goes_out_with_the_next_call(store: SqliteStore, http_receiver: Receiver) -> None:
    http_receiver.status = {"/v1/traces": 503}
    annotations = annotate([verdict_on(UPDATE)], store)
    with pytest.raises(SendError, match="HTTP 503"):
        deliver(annotations, store)
    assert len(store.trace(ASKED)) == 2
    http_receiver.status = {}
    assert deliver(annotate([verdict_on(UPDATE)], store), store).spans == 6
    assert len(http_receiver.span_ids()) == 6


def test_an_absent_receiver_is_named(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    annotations = annotate([verdict_on(UPDATE)], store)
    for protocol, address in (("http/protobuf", "http://127.0.0.1:9/v1/traces"), ("grpc", "http://127.0.0.1:9")):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        with pytest.raises(SendError, match=f"cannot send traces to {address}"):
            deliver(annotations, store, "http://127.0.0.1:9")


def refusal(number: int, reason: str) -> bytes:
    reply = ExportTraceServiceResponse()
    reply.partial_success.rejected_spans = number
    reply.partial_success.error_message = reason
    return reply.SerializeToString()


def test_what_is_rejected_is_told_after_all_was_sent_and_not_sent_again(
    store: SqliteStore, http_receiver: Receiver
) -> None:
    """OTLP does not say which ones a partial success is about, and forbids to send them again."""
    http_receiver.status = {"/v1/logs": 404}
    http_receiver.reply = refusal(2, "too old")
    verdicts = [verdict_on(UPDATE, attribution_id=f"{n:032x}") for n in range(1, 41)]
    annotations = [annotation for verdict in verdicts for annotation in annotate([verdict], store)]
    with pytest.raises(RejectedError, match=r"cannot send traces to .*: 8 spans rejected: too old$") as told:
        deliver(annotations, store)
    assert (told.value.partial, told.value.delivery.spans) == (True, 40 * 6 - 8)
    assert len(http_receiver.span_ids()) == 40 * 6
    assert deliver(annotations, store).spans == 0
    assert len(http_receiver.span_ids()) == 40 * 6


def test_rejected_spans_do_not_keep_the_events_back(store: SqliteStore, http_receiver: Receiver) -> None:
    http_receiver.reply = refusal(1, "too old")
    with pytest.raises(RejectedError, match="1 spans rejected: too old; 1 events rejected: too old"):
        deliver(annotate([verdict_on(UPDATE)], store), store)
    assert len(http_receiver.logs) == 1


def test_a_receiver_that_fails_after_it_has_rejected_some_hides_none(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317")
    monkeypatch.setenv("OTEL_LOGS_EXPORTER", "none")
    requests = list[bytes]()

    def send(target: Target, body: bytes) -> None:
        requests.append(body)
        if len(requests) == 1:
            raise SendError(target, "too old", partial=True, rejected=3)
        raise SendError(target, "it is down")

    monkeypatch.setattr(publish, "send", send)
    verdicts = [verdict_on(UPDATE, attribution_id=f"{n:032x}") for n in range(1, 13)]
    annotations = [annotation for verdict in verdicts for annotation in annotate([verdict], store)]
    with pytest.raises(SendError, match="it is down"):
        deliver(annotations, store)
    assert "3 rejected: too old" in caplog.text


@pytest.mark.parametrize(
    "page", [b"\xff", b"<html>down for maintenance</html>", b"[]", b'"ok"', b'{"error": "down"}', b"[" * 100_000]
)
def test_a_reply_that_is_none_does_not_count_as_sent_nor_as_rejected(
    page: bytes, store: SqliteStore, http_receiver: Receiver
) -> None:
    http_receiver.reply = page
    annotations = annotate([verdict_on(UPDATE)], store)
    for _ in range(2):
        with pytest.raises(SendError, match="not an OTLP reply") as told:
            deliver(annotations, store)
        assert (told.value.partial, told.value.refused) == (False, False)
    http_receiver.reply = b'{"partialSuccess": {}}'  # of one that speaks JSON to everybody
    assert deliver(annotations, store).spans == 6


def test_what_is_rejected_may_be_told_in_json(
    store: SqliteStore, http_receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_LOGS_EXPORTER", "none")
    http_receiver.reply = b'{"partialSuccess": {"rejectedSpans": "2", "errorMessage": "too old"}}'
    with pytest.raises(RejectedError, match="2 spans rejected: too old"):
        deliver(annotate([verdict_on(UPDATE)], store), store)


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (b"\0\0\x12\x04\0\0\0\0\0\0\x03\0\0\0\x80", "RemoteProtocolError .*OTEL_EXPORTER_OTLP_PROTOCOL=grpc"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n", "the reply is incomplete$"),
        (b"", "Error .*OTEL_EXPORTER_OTLP_PROTOCOL=grpc"),
    ],
)
def test_what_is_no_whole_reply_of_http_is_an_error(
    reply: bytes, told: str, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer() -> None:
        with server.accept()[0] as connection:
            connection.recv(1 << 20 if reply else 1)
            if not reply:
                return
            connection.sendall(reply)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 20):  # closed with a part unread it would be reset
                pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        answering = threading.Thread(target=answer)
        answering.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        with pytest.raises(SendError, match=told):
            deliver(annotate([verdict_on(UPDATE)], store), store)
        answering.join()


def test_one_that_takes_no_logs_from_us_gets_the_spans_and_is_told_of_once(
    store: SqliteStore, http_receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    http_receiver.status = {"/v1/logs": 403}
    for number in (1, 2):
        delivery = deliver(annotate([verdict_on(UPDATE, attribution_id=f"{number:032x}")], store), store)
        assert (delivery.spans, delivery.logs) == (6, None)
    assert caplog.text.count("OTEL_LOGS_EXPORTER=none") == 1


def test_events_that_were_taken_before_a_receiver_takes_no_more_logs_are_counted(
    store: SqliteStore, http_receiver: Receiver
) -> None:
    verdicts = [verdict_on(UPDATE, attribution_id=f"{n:032x}") for n in range(1, 71)]
    annotations = [annotation for verdict in verdicts for annotation in annotate([verdict], store)]
    http_receiver.first = [200] * 8 + [403]  # 420 spans take seven requests, 64 events one
    delivery = deliver(annotations, store)
    assert (delivery.spans, delivery.logs, delivery.events) == (420, None, 64)


@pytest.mark.parametrize(("status", "refused"), [(400, True), (403, True), (413, True), (401, False), (503, False)])
def test_what_is_refused_is_told_from_a_receiver_that_takes_nothing(
    status: int, refused: bool, store: SqliteStore, http_receiver: Receiver
) -> None:
    http_receiver.status = {"/v1/traces": status}
    with pytest.raises(SendError, match=f"HTTP {status}") as told:
        deliver(annotate([verdict_on(UPDATE)], store), store)
    assert told.value.refused == refused


def test_many_verdicts_go_out_in_small_requests(store: SqliteStore, http_receiver: Receiver) -> None:
    verdicts = [verdict_on(UPDATE, attribution_id=f"{n:032x}", reason="x" * 1900) for n in range(1, 41)]
    annotations = [annotation for verdict in verdicts for annotation in annotate([verdict], store)]
    assert deliver(annotations, store).spans == 40 * 6
    assert len(http_receiver.traces) == 4
    assert max(map(len, http_receiver.traces)) < 64 * 8192
    assert len(set(http_receiver.span_ids())) == 40 * 6


def test_refused_requests_hold_up_no_other(store: SqliteStore, http_receiver: Receiver) -> None:
    verdicts = [verdict_on(UPDATE, attribution_id=f"{n:032x}") for n in range(1, 41)]
    annotations = [annotation for verdict in verdicts for annotation in annotate([verdict], store)]
    http_receiver.first = [413, 413]
    with pytest.raises(SendError, match="HTTP 413"):
        deliver(annotations, store)
    assert len(http_receiver.traces) == 2
    sent = {*http_receiver.span_ids()}
    (request,) = map(ExportLogsServiceRequest.FromString, http_receiver.logs)
    events = [event for one in request.resource_logs for logs in one.scope_logs for event in logs.log_records]
    assert len(events) == sum(sent.issuperset(span.span_id for span in one.spans) for one in annotations) < 40
    assert deliver(annotations, store).spans == 128
    assert len(set(http_receiver.span_ids())) == 40 * 6


def test_the_largest_verdict_keeps_every_span_within_its_budget() -> None:
    steps = tuple(Step("hit", f"memory:{n:036d}", UPDATE.origin, "é" * 5000) for n in range(200))
    others = tuple(Alternative("retrieval", TOLD, "b" * 16, 0.001 * n) for n in range(200))
    verdict = verdict_on(UPDATE, attribution_id="1" * 32, reason="é" * 5000, evidence=steps, alternatives=others)
    spans = annotation_spans(verdict, UPDATE, 1, 2)
    assert max(len(encode_request([span])) for span in spans) <= 8192
