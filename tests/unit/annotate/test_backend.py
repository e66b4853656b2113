"""Verdict logs over a backend: a verdict that the backend shows is not sent again, a changed verdict replaces it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from memtrace_otel.annotate import Annotation, BackendLog, MemoryLog, SendError, annotate, deliver, publish
from memtrace_otel.annotate.target import Target
from memtrace_otel.graph import EvolutionGraph
from memtrace_otel.model import Failure, OperationSpan, Verdict
from memtrace_otel.otlp import decode_request, encode_request
from memtrace_otel.pipeline.diagnose import Diagnosis, record
from memtrace_otel.semconv import ATTRIBUTION_ID, ATTRIBUTION_REPLACES
from memtrace_otel.sources import SqliteStore
from tests.unit.annotate.conftest import ANSWER as CHAT
from tests.unit.annotate.conftest import UPDATE, Receiver, verdict_on
from tests.unit.pipeline.fake_source import FakeSource

CAUSE = OperationSpan("c" * 32, "c" * 16, name="update_memory", kind="update", start=1, end=9000)
ANSWER = OperationSpan("a" * 32, "a" * 16, name="chat", kind="respond", start=10_000, end=20_000)
VERDICT = Verdict(
    Failure(ANSWER),
    "update",
    CAUSE.trace_id,
    CAUSE.span_id,
    CAUSE.name,
    CAUSE.kind,
    "memory:1",
    0.9,
    "It was replaced.",
)


class Backend:
    """Spans by trace; a request may get lost on its way, or its answer."""

    def __init__(self) -> None:
        self.spans: list[OperationSpan] = [CAUSE, ANSWER]
        self.requests = 0
        self.broken = False
        self.logs: list[bytes] = []
        self.takes_logs = self.logs_down = False

    def read(self, trace_id: str) -> list[OperationSpan]:
        return [span for span in self.spans if span.trace_id == trace_id]

    def take(self, target: Target, body: bytes) -> None:
        if target.signal == "logs" and self.takes_logs:
            if self.logs_down:
                raise SendError(target, "it is down")
            self.logs.append(body)
            return
        if target.signal == "logs":
            raise SendError(target, "no logs", unsupported=True)
        self.requests += 1
        self.spans += decode_request(body)
        if self.broken:
            raise SendError(target, "the answer was lost")

    @property
    def ids(self) -> list[str]:
        return [span.span_id for span in self.spans]


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    backend = Backend()
    monkeypatch.setattr(publish, "send", backend.take)
    yield backend
    assert sorted(backend.ids) == sorted(set(backend.ids))


def run(backend: Backend, verdict: Verdict = VERDICT, memory: MemoryLog | None = None) -> tuple[Annotation, int]:
    """Record and send a verdict; another process starts with no memory."""
    log = BackendLog(backend.read, memory or MemoryLog())
    return run_with(log, verdict)


def run_with(log: BackendLog, verdict: Verdict = VERDICT) -> tuple[Annotation, int]:
    diagnosis = Diagnosis(EvolutionGraph(), FakeSource([CAUSE, ANSWER]), (), (verdict,), (0.1,))
    (made,) = record(log, diagnosis)
    return made, deliver([made], log, "http://localhost:4317").spans


def test_a_verdict_is_sent_once_by_any_number_of_processes(backend: Backend) -> None:
    made, sent = run(backend)
    assert (made.is_new, sent) == (True, len(made.spans))
    made, sent = run(backend)
    assert (made.is_new, sent) == (False, 0)


def test_spans_that_a_crash_left_out_are_sent_alone(backend: Backend) -> None:
    _, sent = run(backend)
    lost = backend.spans.pop()
    _, again = run(backend)
    assert (again, backend.spans[-1].origin) == (1, lost.origin)
    assert len(backend.spans) == 2 + sent


def test_spans_whose_acknowledgement_was_lost_are_not_sent_again(backend: Backend) -> None:
    backend.broken = True
    with pytest.raises(SendError):
        run(backend)
    backend.broken = False
    assert run(backend)[1] == 0


def test_a_changed_verdict_replaces_the_verdict_that_the_backend_shows(backend: Backend) -> None:
    first, _ = run(backend)
    second, sent = run(backend, replace(VERDICT, failure_type="response", trace_id=ANSWER.trace_id, span_id="a" * 16))
    assert second.is_new
    assert sent == len(second.spans)
    newest = backend.read(ANSWER.trace_id)[-1].attributes
    assert newest[ATTRIBUTION_REPLACES] == first.verdict.attribution_id != newest[ATTRIBUTION_ID]


def test_spans_of_this_process_are_not_sent_again_while_the_backend_is_slow_to_show_them(backend: Backend) -> None:
    memory = MemoryLog()
    for expected in (True, False):
        log = BackendLog(lambda trace_id: [s for s in (CAUSE, ANSWER) if s.trace_id == trace_id], memory)
        made = annotate([VERDICT], log)
        assert (deliver(made, log, "http://localhost:4317").spans > 0) is expected


def test_a_verdict_that_another_process_sent_after_the_trace_was_read_is_not_sent_again(backend: Backend) -> None:
    other = replace(ANSWER, span_id="d" * 16)
    backend.spans.append(other)
    backend.takes_logs = True
    second = replace(VERDICT, failure=Failure(other))
    log = BackendLog(backend.read, MemoryLog())
    deliver(annotate([VERDICT], log), log, "http://localhost:4317")
    assert run(backend, second)[1] > 0
    made, sent = run_with(log, second)
    assert (made.is_new, made.new, sent, len(backend.logs)) == (False, 0, 0, 2)


def test_spans_that_a_backend_lost_are_sent_again_after_ten_minutes_without_their_event(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    memory = MemoryLog()
    backend.takes_logs = True
    made, count = run(backend, memory=memory)
    assert len(backend.logs) == 1
    backend.spans[:] = [CAUSE, ANSWER]  # the backend was killed before it had written them
    for later, expected in ((500, 0), (101, count), (500, 0)):
        now += later
        assert run(backend, memory=memory)[1] == expected
    assert sorted(backend.ids) == sorted([CAUSE.span_id, ANSWER.span_id, *(span.span_id for span in made.spans)])
    assert len(backend.logs) == 1


def test_the_event_is_sent_when_the_receiver_of_logs_is_up_again(backend: Backend) -> None:
    memory = MemoryLog()
    backend.takes_logs = backend.logs_down = True
    with pytest.raises(SendError):
        run(backend, memory=memory)
    backend.logs_down = False
    for _ in range(2):
        assert run(backend, memory=memory)[1] == 0  # the spans are there
        assert len(backend.logs) == 1
    run(backend)  # another process
    assert len(backend.logs) == 1


def test_spans_that_a_crash_left_out_bring_their_event(backend: Backend) -> None:
    run(backend)
    del backend.spans[-1]  # sent after the root
    backend.takes_logs = True
    assert run(backend)[1] == 1
    assert len(backend.logs) == 1


# --- a database that does not know what was sent -------------------------------------------------------------------
@pytest.fixture
def copy(tmp_path: Path) -> Iterator[SqliteStore]:
    """A database elsewhere that has imported the same spans."""
    with SqliteStore.open(tmp_path / "copy.db") as copy:
        copy.add_request(encode_request([UPDATE, CHAT]))
        yield copy


def shown(receiver: Receiver, trace_id: str) -> list[OperationSpan]:
    """Return what the receiver would show of a trace."""
    spans = [span for body in receiver.traces for span in decode_request(body)]
    return [span for span in [UPDATE, CHAT, *spans] if span.trace_id == trace_id]


def send_from(store: SqliteStore, receiver: Receiver, *types: str) -> list[int]:
    """Send verdicts of these types one after the other, looking first; return how many spans each sent."""
    sent: list[int] = []
    for failure_type in types:
        log = BackendLog(lambda trace_id: shown(receiver, trace_id), store)
        sent.append(deliver(annotate([verdict_on(UPDATE, failure_type=failure_type)], log), log).spans)
    return sent


def test_a_copy_sends_nothing_that_the_backend_shows(
    store: SqliteStore, copy: SqliteStore, http_receiver: Receiver
) -> None:
    (annotation,) = annotate([verdict_on(UPDATE)], store)
    assert deliver([annotation], store).spans == len(annotation.spans)
    assert send_from(copy, http_receiver, "update") == [0]
    assert len(http_receiver.span_ids()) == len(set(http_receiver.span_ids())) == len(annotation.spans)
    assert {span.span_id for span in annotation.spans} <= {span.span_id for span in copy.spans()}
    assert deliver(annotate([verdict_on(UPDATE)], copy), copy).spans == 0  # now the copy knows without looking


def test_a_copy_continues_from_the_newest_verdict_of_the_backend(
    store: SqliteStore, copy: SqliteStore, http_receiver: Receiver
) -> None:
    assert all(send_from(store, http_receiver, "update", "deletion", "update"))
    assert send_from(copy, http_receiver, "update") == [0]
    assert send_from(copy, http_receiver, "response")[0] > 0
    ids = http_receiver.span_ids()
    assert len(ids) == len(set(ids))


def test_spans_that_a_killed_run_had_not_sent_are_sent_with_their_event(
    store: SqliteStore, http_receiver: Receiver
) -> None:
    (annotation,) = annotate([verdict_on(UPDATE)], store)
    http_receiver.traces.append(encode_request(annotation.spans[:-1]))  # sent, and not remembered
    assert send_from(store, http_receiver, "update", "update") == [1, 0]
    assert sorted(http_receiver.span_ids()) == sorted(span.span_id for span in annotation.spans)
    assert len(http_receiver.logs) == 1


def test_a_backend_that_cannot_be_read_is_an_error(store: SqliteStore, http_receiver: Receiver) -> None:
    def read(trace_id: str) -> Iterable[OperationSpan]:
        raise ConnectionError("no answer")

    with pytest.raises(ConnectionError):
        annotate([verdict_on(UPDATE)], BackendLog(read, store))
    assert http_receiver.traces == []


def test_an_event_that_was_not_taken_is_sent_later_once(
    store: SqliteStore, copy: SqliteStore, http_receiver: Receiver
) -> None:
    http_receiver.status = {"/v1/logs": 503}
    with pytest.raises(SendError):
        send_from(store, http_receiver, "update")
    http_receiver.status = {}
    for database in (store, store, copy):
        assert send_from(database, http_receiver, "update") == [0]
    assert len(http_receiver.logs) == 1


@pytest.mark.parametrize("status", [413, 503])
def test_no_event_of_a_verdict_that_the_backend_shows_is_sent_after_an_error(
    status: int, store: SqliteStore, copy: SqliteStore, http_receiver: Receiver
) -> None:
    assert send_from(store, http_receiver, "update") == [6]
    later = replace(CHAT, span_id="c" * 16)
    verdicts = [verdict_on(UPDATE), verdict_on(UPDATE, failure=Failure(later))]

    def send_both() -> int:
        log = BackendLog(lambda trace_id: shown(http_receiver, trace_id), copy)
        return deliver(annotate(verdicts, log), log).spans

    http_receiver.first = [status]
    with pytest.raises(SendError, match=f"HTTP {status}"):
        send_both()
    assert len(http_receiver.logs) == 1
    assert (send_both(), send_both()) == (6, 0)
    ids = http_receiver.span_ids()
    assert len(ids) == len(set(ids)) == 12
    requests = map(ExportLogsServiceRequest.FromString, http_receiver.logs)
    judged = [one.scope_logs[0].log_records[0].span_id.hex() for request in requests for one in request.resource_logs]
    assert judged == [CHAT.span_id, later.span_id]
