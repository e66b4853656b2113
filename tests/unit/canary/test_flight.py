"""A flight names the stage that lost the verdict."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from memtrace_otel import semconv
from memtrace_otel.annotate import SendError, annotate
from memtrace_otel.annotate.target import Target
from memtrace_otel.attribution import attribute_trace
from memtrace_otel.canary import CanaryMetrics, History, Outcome, Stage, fly, write_history
from memtrace_otel.graph import build_graph
from memtrace_otel.model import OperationSpan, Verdict
from memtrace_otel.otlp import encode_request
from memtrace_otel.sources import SourceError, SqliteStore

TARGET = Target("traces", "grpc", "http://127.0.0.1:9")
Spans = list[OperationSpan]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The sent request bodies; no receiver runs."""
    bodies: list[bytes] = []
    monkeypatch.setattr("memtrace_otel.canary.flight.send", lambda target, body: bodies.append(body))
    return bodies


class Backend:
    """A path from application to backend: the spans of the history and of its verdict, without the lost spans."""

    def __init__(self, folder: Path, history: History, change: Callable[[Verdict], Verdict] = lambda verdict: verdict):
        (verdict,) = attribute_trace(build_graph(history.spans))
        with SqliteStore.open(folder / "serve.db") as store:
            store.add_request(encode_request(history.spans))
            store.decode()
            (made,) = annotate([change(verdict)], store)
        self.spans = [*history.spans, *made.spans]

    def without(self, loses: Callable[[OperationSpan], bool]) -> Backend:
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


def test_a_right_verdict_is_no_loss(sent: list[bytes], history: History, tmp_path: Path) -> None:
    outcome = flown(history, Backend(tmp_path, history))
    assert (outcome.lost, outcome.trace_id) == (None, history.answer.trace_id)
    assert sent == [encode_request(history.spans)]


def test_each_lost_span_is_named_by_its_stage(sent: list[bytes], history: History, tmp_path: Path) -> None:
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
            outcome = flown(history, Backend(folder, history).without(loses))
            assert outcome.lost == stage
            assert answer.trace_id in outcome.message or fault.trace_id in outcome.message or stage == Stage.STORE


def test_another_verdict_is_lost_at_match(sent: list[bytes], history: History, tmp_path: Path) -> None:
    outcome = flown(history, Backend(tmp_path, history, lambda verdict: replace(verdict, failure_type="response")))
    assert outcome.lost == Stage.MATCH
    assert "response" in outcome.message


def test_control_characters_of_a_marker_are_not_printed(sent: list[bytes], history: History, tmp_path: Path) -> None:
    path = Backend(tmp_path, history)
    path.spans = [
        replace(span, attributes={**span.attributes, semconv.FAILURE_TYPE: "a\n\x1b[31m" + "b" * 500})
        if is_verdict(span)
        else span
        for span in path.spans
    ]
    outcome = flown(history, path)
    assert outcome.lost == Stage.MATCH
    assert "the verdict is a bbb" in outcome.message
    assert outcome.message.isprintable()
    assert len(outcome.message) < 300


def test_a_refused_request_is_lost_at_send(monkeypatch: pytest.MonkeyPatch, history: History) -> None:
    def refuse(target: Target, body: bytes) -> None:
        raise SendError(target, "connection refused")

    monkeypatch.setattr("memtrace_otel.canary.flight.send", refuse)
    outcome = flown(history, object())
    assert outcome.lost == Stage.SEND
    assert "cannot send traces to http://127.0.0.1:9" in outcome.message


def test_an_unreadable_backend_is_lost_at_store(sent: list[bytes], history: History) -> None:
    class Dead:
        def trace(self, trace_id: str) -> Spans:
            raise SourceError("http://backend", "connection refused")

    outcome = flown(history, Dead())
    assert outcome.lost == Stage.STORE
    assert "connection refused" in outcome.message


def test_the_gauges_show_the_last_flight_and_the_last_success() -> None:
    reader = InMemoryMetricReader()
    metrics = CanaryMetrics(MeterProvider([reader]))
    metrics.record(Outcome(None, "", "", 2.5), 1_000.5)
    metrics.record(Outcome(Stage.VERDICT, "", "", 180.0), 2_000.0)
    data = reader.get_metrics_data()
    assert data is not None
    (scope,) = data.resource_metrics[0].scope_metrics
    values = {
        (metric.name, str((point.attributes or {}).get(semconv.CANARY_STAGE, ""))): point.value  # type: ignore[union-attr]
        for metric in scope.metrics
        for point in metric.data.data_points
    }
    assert values == {
        (semconv.METRIC_CANARY_SUCCESS, ""): 1_000.5,
        (semconv.METRIC_CANARY_DURATION, ""): 180,
        **{(semconv.METRIC_CANARY_LOST, str(stage)): int(stage == "verdict") for stage in Stage},
    }
