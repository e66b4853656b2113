"""A flight ends at the stage that lost it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from memtrace_otel import semconv
from memtrace_otel.annotate import SendError, annotate
from memtrace_otel.annotate.target import Target
from memtrace_otel.attribution import attribute_trace
from memtrace_otel.canary import CanaryMetrics, History, Outcome, Stage, fly, write_history
from memtrace_otel.graph import build_graph
from memtrace_otel.model import OperationSpan, Verdict
from memtrace_otel.otlp import encode_request
from memtrace_otel.sources import SqliteStore, StoreError

TARGET = Target("traces", "grpc", "http://127.0.0.1:9")
Spans = list[OperationSpan]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What is sent; nobody is there to take it."""
    bodies: list[bytes] = []
    monkeypatch.setattr("memtrace_otel.canary.flight.send", lambda target, body: bodies.append(body))
    return bodies


class Way:
    """A path from application to backend: the spans of the history and of its verdict, less what it loses."""

    def __init__(self, folder: Path, history: History, change: Callable[[Verdict], Verdict] = lambda verdict: verdict):
        (verdict,) = attribute_trace(build_graph(history.spans))
        with SqliteStore.open(folder / "serve.db") as store:
            store.add_request(encode_request(history.spans))
            store.decode()
            (made,) = annotate([change(verdict)], store)
        self.spans = [*history.spans, *made.spans]

    def without(self, loses: Callable[[OperationSpan], bool]) -> Way:
        self.spans = [span for span in self.spans if not loses(span)]
        return self

    def trace(self, trace_id: str) -> Spans:
        return [span for span in self.spans if span.trace_id == trace_id]


def flown(history: History, path: object) -> Outcome:
    return fly(history, TARGET, path, timeout=0.0)  # type: ignore[arg-type]


@pytest.fixture
def history() -> History:
    return write_history(time.time_ns())


def is_verdict(span: OperationSpan) -> bool:
    return span.instrumentation_scope == "memtrace_otel.attribution"


def test_a_verdict_that_is_there_and_right_is_no_loss(sent: list[bytes], history: History, tmp_path: Path) -> None:
    outcome = flown(history, Way(tmp_path, history))
    assert (outcome.lost, outcome.trace_id) == (None, history.answer.trace_id)
    assert sent == [encode_request(history.spans)]


def test_each_loss_is_named_by_its_stage(sent: list[bytes], history: History, tmp_path: Path) -> None:
    fault, answer = history.fault, history.answer
    losses: dict[Stage, list[Callable[[OperationSpan], bool]]] = {
        Stage.STORE: [lambda span: True, lambda span: span.span_id == fault.span_id],
        Stage.VERDICT: [is_verdict],
        Stage.MARKER: [
            lambda span: is_verdict(span) and span.trace_id == answer.trace_id,
            lambda span: is_verdict(span) and span.trace_id == fault.trace_id,
        ],
    }
    for number, (stage, kinds) in enumerate(losses.items()):
        for place, loses in enumerate(kinds):
            folder = tmp_path / f"{number}-{place}"
            folder.mkdir()
            outcome = flown(history, Way(folder, history).without(loses))
            assert outcome.lost == stage
            assert answer.trace_id in outcome.told or fault.trace_id in outcome.told or stage == Stage.STORE


def test_another_verdict_is_no_match(sent: list[bytes], history: History, tmp_path: Path) -> None:
    outcome = flown(history, Way(tmp_path, history, lambda verdict: replace(verdict, failure_type="response")))
    assert outcome.lost == Stage.MATCH
    assert "response" in outcome.told


def test_what_a_marker_says_steers_no_terminal(sent: list[bytes], history: History, tmp_path: Path) -> None:
    path = Way(tmp_path, history)
    path.spans = [
        replace(span, attributes={**span.attributes, semconv.FAILURE_TYPE: "a\n\x1b[31m" + "b" * 500})
        if is_verdict(span)
        else span
        for span in path.spans
    ]
    outcome = flown(history, path)
    assert outcome.lost == Stage.MATCH
    assert "the verdict is a bbb" in outcome.told
    assert outcome.told.isprintable()
    assert len(outcome.told) < 300


def test_a_receiver_that_takes_nothing(monkeypatch: pytest.MonkeyPatch, history: History) -> None:
    def refuse(target: Target, body: bytes) -> None:
        raise SendError(target, "connection refused")

    monkeypatch.setattr("memtrace_otel.canary.flight.send", refuse)
    outcome = flown(history, object())
    assert outcome.lost == Stage.SEND
    assert "cannot send traces to http://127.0.0.1:9" in outcome.told


def test_a_backend_that_cannot_be_read(sent: list[bytes], history: History) -> None:
    class Dead:
        def trace(self, trace_id: str) -> Spans:
            raise StoreError("http://backend", "connection refused")

    outcome = flown(history, Dead())
    assert outcome.lost == Stage.STORE
    assert "connection refused" in outcome.told


def test_the_textfile_tells_the_last_flight_and_remembers_the_last_success(tmp_path: Path) -> None:
    file = tmp_path / "canary.prom"
    CanaryMetrics(file).flown(Outcome(None, "", "", 2.5), 1_000.5)
    CanaryMetrics(file).flown(Outcome(Stage.VERDICT, "", "", 180.0), 2_000.0)
    lines = [line.rsplit(" ", 1) for line in file.read_text().splitlines() if not line.startswith("#")]
    values = {name: float(value) for name, value in lines}
    assert values.pop("memtrace_canary_last_success_seconds") == 1_000.5
    assert values.pop("memtrace_canary_duration_seconds") == 180
    assert values == {
        f'memtrace_canary_lost{{memtrace_canary_stage="{stage}"}}': int(stage == "verdict") for stage in Stage
    }
    assert list(tmp_path.iterdir()) == [file]
