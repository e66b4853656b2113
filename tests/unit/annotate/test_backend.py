"""Annotation where only the backend remembers: looked for first, sent once, replaced when it changes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from memtrace_otel.annotate import Annotation, BackendAnnotations, SendError, annotate, deliver, publish
from memtrace_otel.annotate.backend import Sent
from memtrace_otel.annotate.target import Target
from memtrace_otel.graph import EvolutionGraph
from memtrace_otel.model import Failure, OperationSpan, Verdict
from memtrace_otel.otlp import decode_request
from memtrace_otel.pipeline.diagnose import Diagnosis, record
from memtrace_otel.semconv import ATTRIBUTION_ID, ATTRIBUTION_REPLACES

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


def run(backend: Backend, verdict: Verdict = VERDICT, sent: Sent | None = None) -> tuple[Annotation, int]:
    """What one run does; another process starts with nothing, the same has `sent`."""
    store = BackendAnnotations(backend.read, sent)
    (made,) = record(store, Diagnosis(EvolutionGraph(), (verdict,), (0.1,)))
    return made, deliver([made], store, "http://localhost:4317").spans


def test_a_verdict_is_sent_once_however_often_it_is_reached(backend: Backend) -> None:
    made, sent = run(backend)
    assert (made.is_new, sent) == (True, len(made.spans))
    made, sent = run(backend)
    assert (made.is_new, sent) == (False, 0)


def test_what_a_crash_left_out_is_sent_alone(backend: Backend) -> None:
    _, sent = run(backend)
    lost = backend.spans.pop()
    _, again = run(backend)
    assert (again, backend.spans[-1].origin) == (1, lost.origin)
    assert len(backend.spans) == 2 + sent


def test_what_arrived_without_an_answer_is_not_sent_again(backend: Backend) -> None:
    backend.broken = True
    with pytest.raises(SendError):
        run(backend)
    backend.broken = False
    assert run(backend)[1] == 0


def test_a_changed_verdict_replaces_the_one_that_the_backend_shows(backend: Backend) -> None:
    first, _ = run(backend)
    second, sent = run(backend, replace(VERDICT, failure_type="response", trace_id=ANSWER.trace_id, span_id="a" * 16))
    assert second.is_new
    assert sent == len(second.spans)
    newest = backend.read(ANSWER.trace_id)[-1].attributes
    assert newest[ATTRIBUTION_REPLACES] == first.verdict.attribution_id != newest[ATTRIBUTION_ID]


def test_what_this_process_has_sent_is_not_sent_again_while_the_backend_is_behind(backend: Backend) -> None:
    sent: Sent = {}
    for expected in (True, False):
        store = BackendAnnotations(lambda trace_id: [s for s in (CAUSE, ANSWER) if s.trace_id == trace_id], sent)
        made = annotate([VERDICT], store)
        assert (deliver(made, store, "http://localhost:4317").spans > 0) is expected


def test_what_another_one_sent_since_the_trace_was_read_is_not_sent_again(backend: Backend) -> None:
    other = replace(ANSWER, span_id="d" * 16)
    backend.spans.append(other)
    backend.takes_logs = True
    second = replace(VERDICT, failure=Failure(other))
    store = BackendAnnotations(backend.read)
    deliver(annotate([VERDICT], store), store, "http://localhost:4317")
    assert run(backend, second)[1] > 0
    (made,) = record(store, Diagnosis(EvolutionGraph(), (second,), (0.1,)))
    assert (made.is_new, made.new) == (False, 0)
    sent = deliver([made], store, "http://localhost:4317")
    assert (sent.spans, sent.events, len(backend.logs)) == (0, 0, 2)


def test_what_a_backend_lost_after_taking_it_is_sent_again_later_without_its_event(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    sent: Sent = {}
    backend.takes_logs = True
    made, count = run(backend, sent=sent)
    assert len(backend.logs) == 1
    backend.spans[:] = [CAUSE, ANSWER]  # killed before it had written them
    for later, expected in ((500, 0), (101, count), (500, 0)):
        now += later
        assert run(backend, sent=sent)[1] == expected
    assert sorted(backend.ids) == sorted([CAUSE.span_id, ANSWER.span_id, *(span.span_id for span in made.spans)])
    assert len(backend.logs) == 1


def test_the_event_goes_out_when_the_receiver_of_logs_is_up_again(backend: Backend) -> None:
    sent: Sent = {}
    backend.takes_logs = backend.logs_down = True
    with pytest.raises(SendError):
        run(backend, sent=sent)
    backend.logs_down = False
    for _ in range(2):
        assert run(backend, sent=sent)[1] == 0  # the spans are there
        assert len(backend.logs) == 1
    run(backend)  # another process
    assert len(backend.logs) == 1


def test_what_a_crash_left_out_brings_its_event(backend: Backend) -> None:
    run(backend)
    del backend.spans[-1]  # sent after the root
    backend.takes_logs = True
    assert run(backend)[1] == 1
    assert len(backend.logs) == 1
