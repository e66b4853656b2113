"""The demo with its spans in a real Jaeger: verdicts sent late, and found where an operator looks for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from memtrace_otel.demo.run import SERVICE, DemoRun, run_demo
from memtrace_otel.store import SqliteStore
from tests.e2e.backends.jaeger import Jaeger, JaegerSpan
from tests.e2e.backends.service import wait_for

ATTRIBUTION = "memtrace-attribution"
LATE_SECONDS = 20
"""Long after the batches of the application were flushed and stored."""

Traces = dict[str, list[JaegerSpan]]


@dataclass(frozen=True)
class Shown:
    """What Jaeger shows of the demo before the verdicts, after them, and after they were sent a second time."""

    run: DemoRun
    verdicts: dict[str, dict[str, Any]]
    """By failing trace, as `memtrace-otel attribute --json` prints them."""
    before: Traces
    after: Traces
    again: Traces
    second_message: str

    def questions(self) -> list[str]:
        """The traces in which an answer was judged, in the order of the questions."""
        judged = {trace_id: spans for trace_id, spans in self.before.items() if _kind(spans, "judge")}
        return sorted(judged, key=lambda trace_id: min(span.start for span in judged[trace_id]))

    def expected(self) -> dict[str, str]:
        """The failing traces and the failure type planted in each: known without any attribution."""
        planted = {fault.question: fault.failure_type for fault in self.run.planted}
        answers = zip(self.questions(), self.run.answers, strict=True)
        return {trace_id: planted[answer.question] for trace_id, answer in answers if answer.label == "WRONG"}


@pytest.fixture(scope="module")
def shown(jaeger: Jaeger, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    directory = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("OTEL_TRACES_EXPORTER", "otlp,memtrace")
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", jaeger.otlp_grpc)
        environment.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        run = run_demo(directory)
        ended = time.monotonic()
        with SqliteStore.open(run.database, create=False) as store:
            spans = store.stats().spans
        wait_for(lambda: _count(_traces(jaeger, SERVICE)) == spans, f"the {spans} spans of the demo")
        before = _traces(jaeger, SERVICE)

        time.sleep(max(0, ended + LATE_SECONDS - time.monotonic()))
        verdicts, message = _attribute(run.database)
        sent = int(message.split()[1])
        wait_for(lambda: _count(_everything(jaeger)) == spans + sent, f"the {sent} spans of the verdicts")
        after = _everything(jaeger)

        _, second_message = _attribute(run.database)
        time.sleep(2)
        return Shown(run, verdicts, before, after, _everything(jaeger), second_message)


def _attribute(database: Path) -> tuple[dict[str, dict[str, Any]], str]:
    """Run the command as a user does; return the verdicts by trace and what it says of sending."""
    command = [sys.executable, "-m", "memtrace_otel.cli", "attribute", "--all", "--json", "--db", str(database)]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    verdicts = [json.loads(line) for line in done.stdout.splitlines()]
    return {verdict["trace_id"]: verdict for verdict in verdicts}, done.stderr


def _everything(jaeger: Jaeger) -> Traces:
    """The demo's traces, and the attribution traces about them."""
    traces = _traces(jaeger, SERVICE)
    about = {f"{trace_id}-{span.span_id}" for trace_id, spans in traces.items() for span in spans}
    attributions = {
        trace_id: spans
        for trace_id, spans in _traces(jaeger, ATTRIBUTION).items()
        if any(span.tags.get("memtrace.failure.answer") in about for span in spans)
    }
    return traces | attributions


def _traces(jaeger: Jaeger, service: str) -> Traces:
    return {trace_id: jaeger.trace(trace_id) for trace_id in jaeger.search(service)}


def _count(traces: Traces) -> int:
    return sum(map(len, traces.values()))


def _kind(spans: list[JaegerSpan], kind: str) -> list[JaegerSpan]:
    return [span for span in spans if span.tags.get("memtrace.op.kind") == kind]


def _markers(spans: list[JaegerSpan], answer: str) -> list[JaegerSpan]:
    """The markers about one failing answer."""
    return [
        span
        for span in spans
        if span.name.startswith("memtrace.attribution ") and span.tags["memtrace.failure.answer"] == answer
    ]


def _bounds(spans: list[JaegerSpan]) -> tuple[int, int]:
    return min(span.start for span in spans), max(span.start + span.duration for span in spans)


def test_every_failing_answer_and_no_other_has_a_verdict(shown: Shown) -> None:
    assert len(shown.expected()) >= 6
    assert set(shown.verdicts) == set(shown.expected())


def test_every_failing_trace_holds_its_marker_with_the_planted_type_at_the_right_parent(shown: Shown) -> None:
    for trace_id, failure_type in shown.expected().items():
        verdict = shown.verdicts[trace_id]
        (answer,) = _kind(shown.before[trace_id], "respond")
        (marker,) = _markers(shown.after[trace_id], f"{trace_id}-{answer.span_id}")
        assert marker.name == f"memtrace.attribution {failure_type}"
        assert marker.tags["memtrace.failure.type"] == failure_type
        assert marker.service == SERVICE
        cause = verdict["operation"]
        assert marker.parent_id == (cause["span_id"] if cause["trace_id"] == trace_id else answer.span_id)
        assert cause["span_id"] in {"", marker.tags.get("memtrace.failure.span_id")}


def test_every_causing_trace_holds_its_own_marker(shown: Shown) -> None:
    elsewhere = [
        verdict
        for trace_id, verdict in shown.verdicts.items()
        if verdict["operation"]["trace_id"] not in ("", trace_id)
    ]
    assert len(elsewhere) >= 3
    for verdict in elsewhere:
        cause = verdict["operation"]
        assert cause["trace_id"] in shown.before
        (marker,) = _markers(shown.after[cause["trace_id"]], f"{verdict['trace_id']}-{verdict['span_id']}")
        assert (marker.parent_id, marker.service) == (cause["span_id"], ATTRIBUTION)
        assert marker.tags["memtrace.failure.type"] == verdict["failure_type"]


def test_markers_came_late_and_no_trace_grew_longer(shown: Shown) -> None:
    assert set(shown.before) <= set(shown.after)
    for trace_id, spans in shown.before.items():
        assert _bounds(shown.after[trace_id]) == _bounds(spans)
        assert {span.span_id for span in spans} <= {span.span_id for span in shown.after[trace_id]}
    attributed = min(_bounds(shown.after[trace_id])[0] for trace_id in set(shown.after) - set(shown.before))
    last = max(_bounds(spans)[1] for spans in shown.before.values())
    assert attributed - last >= (LATE_SECONDS - 5) * 1_000_000


def test_jaeger_warns_of_nothing(shown: Shown) -> None:
    warned = [(span.name, warning) for spans in shown.again.values() for span in spans for warning in span.warnings]
    assert warned == []


def test_nothing_stands_twice_after_a_second_run(shown: Shown) -> None:
    assert shown.second_message.startswith("sent 0 spans and 0 events to ")
    for trace_id, spans in shown.again.items():
        ids = sorted(span.span_id for span in spans)
        assert len(set(ids)) == len(ids)
        assert ids == sorted(span.span_id for span in shown.after[trace_id])
    assert set(shown.again) == set(shown.after)


def test_search_by_service_and_failure_type_finds_exactly_the_failing_traces(shown: Shown, jaeger: Jaeger) -> None:
    by_type: dict[str, set[str]] = {}
    for trace_id, failure_type in shown.expected().items():
        by_type.setdefault(failure_type, set()).add(trace_id)
    found = {
        failure_type: jaeger.search(SERVICE, {"memtrace.failure.type": failure_type})
        for failure_type in (
            "extraction",
            "update",
            "deletion",
            "retrieval",
            "response",
            "judge",
            "annotation",
            "unknown",
        )
    }
    assert {failure_type: traces for failure_type, traces in found.items() if traces} == by_type


def test_both_query_apis_show_the_same_spans(shown: Shown, jaeger: Jaeger) -> None:
    for trace_id in shown.verdicts:
        ids = sorted(span.span_id for span in jaeger.spans(trace_id))
        assert ids == sorted(span.span_id for span in shown.again[trace_id])
