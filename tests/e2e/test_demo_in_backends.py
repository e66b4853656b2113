"""The demo in real backends, side by side: its spans, and the verdicts sent late, where an operator looks for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Link, SpanContext, Status, StatusCode

from memtrace_otel.demo.run import SERVICE, DemoRun, run_demo
from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp.fields import write_fields
from memtrace_otel.semconv import ATTRIBUTION_SERVICE
from memtrace_otel.sources import SqliteStore
from memtrace_otel.testing.spans import violations
from tests.e2e.backends import Backend
from tests.e2e.backends.collector import running_collector
from tests.e2e.backends.jaeger import Jaeger
from tests.e2e.backends.service import listens, ports_of, wait_for
from tests.e2e.backends.stored import StoredLink, StoredSpan
from tests.e2e.backends.tempo import Tempo

FANOUT = Path(__file__).parent / "backends" / "fanout.yaml"
LATE_SECONDS = 20
"""Long after the batches of the application were flushed and stored."""

NAMES = ("memory", "badger", "tempo")
every_backend = pytest.mark.parametrize("name", NAMES)

Traces = dict[str, list[StoredSpan]]


@dataclass(frozen=True)
class Shown:
    """What each backend shows of the demo before the verdicts, after them, and after all wanted to send them again."""

    run: DemoRun
    backends: dict[str, Backend]
    sent: dict[str, list[OperationSpan]]
    """The application's own spans, by trace, as its database has them."""
    verdicts: dict[str, dict[str, Any]]
    """By failing trace, as `memtrace-otel attribute --json` prints them."""
    before: dict[str, Traces]
    after: dict[str, Traces]
    again: dict[str, Traces]
    messages: dict[str, str]
    """What is said of sending by a second run from the database, and by one elsewhere that knows only the backend."""

    def questions(self) -> list[str]:
        """The traces in which an answer was judged, in the order of the questions."""
        judged = {id: spans for id, spans in self.sent.items() if any(span.kind == "judge" for span in spans)}
        return sorted(judged, key=lambda trace_id: min(span.start for span in judged[trace_id]))

    def expected(self) -> dict[str, str]:
        """The failing traces and the failure type planted in each: known without any attribution."""
        planted = {fault.question: fault.failure_type for fault in self.run.planted}
        answers = zip(self.questions(), self.run.answers, strict=True)
        return {trace_id: planted[answer.question] for trace_id, answer in answers if answer.label == "WRONG"}

    def by_type(self) -> dict[str, set[str]]:
        """The failing traces of each planted failure type."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for trace_id, failure_type in self.expected().items():
            found[failure_type].add(trace_id)
        return dict(found)

    def answer(self, trace_id: str) -> OperationSpan:
        """The answer in a trace of a question."""
        (answer,) = (span for span in self.sent[trace_id] if span.kind == "respond")
        return answer


@pytest.fixture(scope="module")
def shown(jaeger: Jaeger, badger: Jaeger, tempo: Tempo, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    backends: dict[str, Backend] = {"memory": jaeger, "badger": badger, "tempo": tempo}
    folder = tmp_path_factory.mktemp("demo")
    ports, environ = ports_of("OTLP", "GRPC", "HTTP")
    environ |= {name.upper(): backend.otlp_grpc for name, backend in backends.items()}
    ready = listens(ports["HTTP"])
    with pytest.MonkeyPatch.context() as patch, running_collector(folder, FANOUT, environ=environ, healthy=ready):
        patch.setenv("OTEL_TRACES_EXPORTER", "otlp,memtrace")
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{ports['GRPC']}")
        patch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        run = run_demo(folder / "run")
        ended = time.monotonic()
        sent = _database(run.database)
        before = _read(backends, sent)

        time.sleep(max(0, ended + LATE_SECONDS - time.monotonic()))
        verdicts, message = _attribute("--all", "--db", str(run.database))
        everything = _database(run.database)
        assert f"sent {_count(everything) - _count(sent)} spans" in message
        after = _read(backends, everything)

        messages = {"database": _attribute("--all", "--db", str(run.database))[1]}
        for name, one in backends.items():
            patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", one.otlp_grpc)
            source = f"{'tempo' if name == 'tempo' else 'jaeger'}+{one.url}"
            messages[name] = _attribute("--source", source, *verdicts)[1]  # others have left failing traces there
        again = _read(backends, everything)
        return Shown(run, backends, sent, verdicts, before, after, again, messages)


def _attribute(*options: str) -> tuple[dict[str, dict[str, Any]], str]:
    """Run the command as a user does; return the verdicts by trace and what it says of sending."""
    command = [sys.executable, "-m", "memtrace_otel.cli", "attribute", "--json", *options]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    verdicts = [json.loads(line) for line in done.stdout.splitlines()]
    return {verdict["trace_id"]: verdict for verdict in verdicts}, done.stderr


def _database(path: Path) -> dict[str, list[OperationSpan]]:
    traces: defaultdict[str, list[OperationSpan]] = defaultdict(list)
    with SqliteStore.open(path, create=False) as store:
        for span in store.spans():
            traces[span.trace_id].append(span)
    return dict(traces)


def _read(backends: dict[str, Backend], sent: dict[str, list[OperationSpan]]) -> dict[str, Traces]:
    """Return what each backend shows of these traces, once it shows as many spans as were sent."""
    read: dict[str, Traces] = {}

    def complete(name: str) -> bool:
        read[name] = {trace_id: backends[name].spans(trace_id) for trace_id in sent}
        return _count(read[name]) >= _count(sent)

    for name in backends:
        wait_for(lambda name=name: complete(name), f"{name} shows the {_count(sent)} spans that were sent")
    return read


def _count(traces: dict[str, Any]) -> int:
    return sum(map(len, traces.values()))


def _markers(spans: list[StoredSpan], answer: str) -> list[StoredSpan]:
    """The markers about one failing answer."""
    return [
        span
        for span in spans
        if span.name.startswith("memtrace.attribution ") and span.attributes["memtrace.failure.answer"] == answer
    ]


def _bounds(spans: list[StoredSpan]) -> tuple[int, int]:
    return min(span.start for span in spans), max(span.end for span in spans)


@every_backend
def test_every_span_comes_back_as_it_was_sent(shown: Shown, name: str) -> None:
    for trace_id, spans in shown.sent.items():
        back = {span.span_id: span for span in shown.before[name][trace_id]}
        assert len(back) == len(shown.before[name][trace_id]) == len(spans)
        for span in spans:
            found = back[span.span_id]
            assert (found.parent_id, found.name, found.service) == (span.parent_id, span.name, SERVICE)
            assert (found.start, found.end) == (span.start, span.end)
            expected = _plain(write_fields(span))
            assert expected == (_arrays_read(found.attributes, expected) if name == "badger" else found.attributes)
            assert found.links == _links(span, name)


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in attributes.items()}


def _arrays_read(found: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, Any]:
    """Jaeger's storage on disk knows no arrays: it keeps them as JSON."""
    return {
        key: json.loads(value) if isinstance(value, str) and isinstance(expected.get(key), list) else value
        for key, value in found.items()
    }


def _links(span: OperationSpan, name: str) -> tuple[StoredLink, ...]:
    kept = {"opentracing.ref_type": "follows_from"}  # all that Jaeger's storage on disk knows of a link
    return tuple(
        StoredLink(link.trace_id, link.span_id, kept if name == "badger" else _plain(link.attributes))
        for link in span.links
    )


@pytest.mark.parametrize("name", ["memory", "tempo"])
def test_every_memory_span_in_a_backend_keeps_the_contract(shown: Shown, name: str) -> None:
    memory = [span for spans in shown.before[name].values() for span in spans if "memtrace.op.kind" in span.attributes]
    assert {span.attributes["memtrace.op.kind"] for span in memory} >= {"ingest", "retrieve", "respond", "judge"}
    broken = {(span.name, span.span_id): found for span in memory if (found := violations(_sdk(span)))}
    assert broken == {}


def _sdk(span: StoredSpan) -> ReadableSpan:
    def context(trace_id: str, span_id: str) -> SpanContext:
        return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True)

    return ReadableSpan(
        span.name,
        context(span.trace_id, span.span_id),
        context(span.trace_id, span.parent_id) if span.parent_id else None,
        attributes=span.attributes,
        links=[Link(context(link.trace_id, link.span_id), link.attributes) for link in span.links],
        status=Status(StatusCode.ERROR if span.failed else StatusCode.UNSET, span.message or None),
        start_time=span.start,
        end_time=span.end,
    )


@pytest.mark.parametrize("name", ["memory", "tempo"])
def test_links_lead_to_the_operation_that_produced_what_was_read(shown: Shown, name: str) -> None:
    traces, followed = shown.before[name], 0
    for trace_id, spans in traces.items():
        for link in (link for span in spans for link in span.links if link.trace_id != trace_id):
            (producer,) = (span for span in traces[link.trace_id] if span.span_id == link.span_id)
            assert link.attributes["memtrace.link.type"]
            assert set(link.attributes["memtrace.link.refs"]) <= set(producer.attributes["memtrace.outputs"])
            followed += 1
    assert followed >= 10


def test_the_page_of_jaeger_leads_there_too(shown: Shown, jaeger: Jaeger) -> None:
    for trace_id, spans in shown.sent.items():
        references = {span.span_id: span.references for span in jaeger.trace(trace_id)}
        for span in spans:
            assert references[span.span_id] == tuple((link.trace_id, link.span_id) for link in span.links)


def test_every_failing_answer_and_no_other_has_a_verdict(shown: Shown) -> None:
    assert len(shown.expected()) >= 6
    assert set(shown.verdicts) == set(shown.expected())


@every_backend
def test_every_failing_trace_holds_its_marker_with_the_planted_type_at_the_right_parent(
    shown: Shown, name: str
) -> None:
    for trace_id, failure_type in shown.expected().items():
        verdict, answer = shown.verdicts[trace_id], shown.answer(trace_id)
        (marker,) = _markers(shown.after[name][trace_id], answer.origin)
        assert marker.name == f"memtrace.attribution {failure_type}"
        assert marker.attributes["memtrace.failure.type"] == failure_type
        assert marker.service == SERVICE
        cause = verdict["operation"]
        assert marker.parent_id == (cause["span_id"] if cause["trace_id"] == trace_id else answer.span_id)
        assert cause["span_id"] in {"", marker.attributes.get("memtrace.failure.span_id")}


@every_backend
def test_every_causing_trace_holds_its_own_marker(shown: Shown, name: str) -> None:
    elsewhere = [
        verdict
        for trace_id, verdict in shown.verdicts.items()
        if verdict["operation"]["trace_id"] not in ("", trace_id)
    ]
    assert len(elsewhere) >= 3
    for verdict in elsewhere:
        cause = verdict["operation"]
        assert cause["trace_id"] in shown.sent
        (marker,) = _markers(shown.after[name][cause["trace_id"]], f"{verdict['trace_id']}-{verdict['span_id']}")
        assert (marker.parent_id, marker.service) == (cause["span_id"], ATTRIBUTION_SERVICE)
        assert marker.attributes["memtrace.failure.type"] == verdict["failure_type"]


@every_backend
def test_markers_came_late_and_no_trace_grew_longer(shown: Shown, name: str) -> None:
    before, after = shown.before[name], shown.after[name]
    for trace_id, spans in before.items():
        assert _bounds(after[trace_id]) == _bounds(spans)
        assert {span.span_id for span in spans} <= {span.span_id for span in after[trace_id]}
    attributed = min(_bounds(after[trace_id])[0] for trace_id in set(after) - set(before))
    last = max(_bounds(spans)[1] for spans in before.values())
    assert attributed - last >= (LATE_SECONDS - 5) * 1_000_000_000


@every_backend
def test_nothing_stands_twice_after_a_second_run_and_one_elsewhere(shown: Shown, name: str) -> None:
    for who in ("database", name):
        assert shown.messages[who].startswith("sent 0 spans and 0 events to ")
    for trace_id, spans in shown.again[name].items():
        ids = sorted(span.span_id for span in spans)
        assert len(set(ids)) == len(ids)
        assert ids == sorted(span.span_id for span in shown.after[name][trace_id])


@pytest.mark.parametrize("name", ["memory", "badger"])
def test_jaeger_warns_of_nothing_and_its_page_shows_the_same_spans(shown: Shown, name: str) -> None:
    jaeger = shown.backends[name]
    assert isinstance(jaeger, Jaeger)
    for trace_id, spans in shown.again[name].items():
        page = jaeger.trace(trace_id)
        assert [(span.name, span.warnings) for span in page if span.warnings] == []
        assert sorted(span.span_id for span in page) == sorted(span.span_id for span in spans)


@every_backend
def test_search_by_service_and_failure_type_finds_exactly_the_failing_traces(shown: Shown, name: str) -> None:
    types = ("extraction", "update", "deletion", "retrieval", "response", "judge", "annotation", "unknown")
    found = {failure_type: shown.backends[name].failing(SERVICE, failure_type) for failure_type in types}
    assert {failure_type: traces for failure_type, traces in found.items() if traces} == shown.by_type()


def test_traceql_finds_who_read_what_an_operation_wrote(shown: Shown, tempo: Tempo) -> None:
    readers: defaultdict[str, set[str]] = defaultdict(set)
    for trace_id, spans in shown.sent.items():
        for origin in (variable.origin for span in spans for variable in span.inputs if variable.origin):
            readers[origin].add(trace_id)
    far = {origin: traces for origin, traces in readers.items() if traces - {origin[:32]}}
    assert len(far) >= 3
    for origin, traces in far.items():
        assert tempo.search(f'{{ span.memtrace.inputs.origins = "{origin}" }}') == traces
