"""A running server attributes failing traces by itself, and again when late spans change the picture."""

from __future__ import annotations

import json
import time
from contextlib import closing
from functools import partial
from socket import create_server

from memtrace_otel.otlp.sdk import encode_sdk_spans
from memtrace_otel.semconv import ATTRIBUTION_SCOPE
from memtrace_otel.serve.progress import Process
from memtrace_otel.sources import SqliteStore
from tests.conftest import Recording
from tests.integration.serve.conftest import Server, Start
from tests.unit.annotate.conftest import Receiver, http_receiver_on
from tests.unit.test_cli import tell


def verdicts(server: Server) -> list[str]:
    """The failure type of the newest verdict on each answer."""
    with SqliteStore.open(server.database, create=False) as store:
        return [json.loads(verdict.document)["failure_type"] for verdict in store.verdicts()]


def has_verdicts(server: Server, number: int) -> bool:
    return server.metric("verdicts") == number


def markers(server: Server) -> int:
    with SqliteStore.open(server.database, create=False) as store:
        return sum(span.name.startswith("memtrace.attribution") for span in store.spans())


def test_a_failing_trace_is_attributed_after_a_quiet_period(
    start: Start, recording: Recording, content_on: None
) -> None:
    server = start(MEMTRACE_QUIET_SECONDS="0.5")
    tell(recording)
    assert server.post("/v1/traces", encode_sdk_spans(recording.spans()))[0] == 200
    server.until(lambda: server.metric("verdicts") == 1)
    assert verdicts(server) == ["update"]
    before = markers(server)
    assert server.post("/v1/traces", encode_sdk_spans(recording.spans()))[0] == 200  # nothing is new
    time.sleep(1.5)
    assert (server.metric("verdicts"), markers(server)) == (1, before)


def test_late_spans_replace_the_verdict(start: Start, recording: Recording, content_on: None) -> None:
    server = start(MEMTRACE_QUIET_SECONDS="0.3")
    tell(recording)
    turn = {"turn", "search_memory", "chat", "memtrace.judge"}
    on_time = [span for span in recording.spans() if span.name in turn]
    late = [span for span in recording.spans() if span.name not in turn]
    assert len(on_time) == 4
    server.post("/v1/traces", encode_sdk_spans(on_time))
    server.until(lambda: server.metric("verdicts") == 1)
    first = verdicts(server)
    assert first != ["update"]
    server.post("/v1/traces", encode_sdk_spans(late))
    server.until(lambda: server.metric("verdicts") == 2)
    assert verdicts(server) == ["update"]


def test_spans_that_another_process_decoded_are_noticed(start: Start, recording: Recording, content_on: None) -> None:
    server = start(MEMTRACE_QUIET_SECONDS="0.3")
    tell(recording)
    turn = {"turn", "search_memory", "chat", "memtrace.judge"}
    with server.paused(Process.DECODING), SqliteStore.open(server.database) as other:
        for number, late in ((1, False), (2, True)):  # the failing turn, then what led to it
            some = [span for span in recording.spans() if (span.name not in turn) is late]
            other.add_request(encode_sdk_spans(some))
            other.decode()
            server.until(partial(has_verdicts, server, number))
    assert verdicts(server) == ["update"]
    with SqliteStore.open(server.database) as store:
        attributions = [span for span in store.spans() if span.name == "memtrace.attribute"]
    replaced = [span.attributes.get("memtrace.attribution.replaces", "") for span in attributions]
    assert replaced == ["", attributions[0].attributes["memtrace.attribution.id"]]


def test_what_was_due_when_the_server_was_killed_is_attributed_by_the_next(
    start: Start, recording: Recording, content_on: None
) -> None:
    first = start(MEMTRACE_QUIET_SECONDS="3600")
    tell(recording)
    first.post("/v1/traces", encode_sdk_spans(recording.spans()))
    first.until(lambda: first.metric("inbox_bytes") == 0)
    first.kill()
    assert verdicts(first) == []
    second = start(MEMTRACE_QUIET_SECONDS="0.2")
    second.until(lambda: second.metric("verdicts") == 1)
    assert verdicts(second) == ["update"]


def test_a_verdict_made_while_the_receiver_is_down_arrives_once_it_is_up(
    start: Start, recording: Recording, content_on: None
) -> None:
    with closing(create_server(("127.0.0.1", 0))) as free:
        port: int = free.getsockname()[1]
    server = start(
        MEMTRACE_QUIET_SECONDS="0.3",
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{port}",
        OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
    )
    tell(recording)
    server.post("/v1/traces", encode_sdk_spans(recording.spans()))
    server.until(lambda: server.metric("verdicts") == 1 and server.metric("failed_sends") >= 1)
    received = Receiver()
    with http_receiver_on(port, received):
        server.until(lambda: len(received.logs) == 1)
        time.sleep(1.5)
    assert len(received.span_ids()) == len(set(received.span_ids())) == attribution_spans(server)
    assert len(received.logs) == server.metric("verdicts") == 1


def attribution_spans(server: Server) -> int:
    with SqliteStore.open(server.database, create=False) as store:
        return sum(span.instrumentation_scope == ATTRIBUTION_SCOPE for span in store.spans())


def test_a_judgement_waits_for_its_answer(start: Start, recording: Recording, content_on: None) -> None:
    server = start(MEMTRACE_QUIET_SECONDS="0.3")
    tell(recording)
    judge = [span for span in recording.spans() if span.name == "memtrace.judge"]
    assert len(judge) == 1
    server.post("/v1/traces", encode_sdk_spans(judge))
    server.until(lambda: server.metric("decoded_spans") == 1)
    time.sleep(1.5)
    assert (server.metric("verdicts"), attribution_spans(server)) == (0, 0)
    server.post("/v1/traces", encode_sdk_spans([span for span in recording.spans() if span not in judge]))
    server.until(lambda: server.metric("verdicts") == 1)
    assert verdicts(server) == ["update"]
