"""Attribution with no database of ours: from Jaeger and Tempo the same verdicts as from SQLite, sent once."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memtrace_otel.attribution import verdict_json
from memtrace_otel.demo.run import run_demo
from memtrace_otel.diagnosis import diagnose, diagnose_backend
from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import encode_request
from memtrace_otel.semconv import ATTRIBUTION_SCOPE, OpKind
from memtrace_otel.store import RemoteSource, SqliteStore, open_source
from tests.contract.planted import FAULTS_OF, Fault, System, record
from tests.contract.story import STORY
from tests.e2e.backends.jaeger import running_jaeger
from tests.e2e.backends.service import Service, wait_for
from tests.e2e.backends.tempo import QUICK, running_tempo
from tests.e2e.moved import Move, export, wait_until_readable

SECOND = 10**9
MINUTE = 60 * SECOND
FASTER = 100_000


@dataclass(frozen=True)
class Reached:
    """A backend under test."""

    source: str
    endpoint: str
    service: Service

    def open(self) -> RemoteSource:
        return open_source(self.source)

    def tell(self, spans: Sequence[OperationSpan]) -> None:
        """Send spans and wait until they can be read and found."""
        export(self.endpoint, spans)
        opened = self.open()
        wait_until_readable(opened.trace, spans)
        scopes = {span.scope for span in spans if span.scope}
        judged = {span.trace_id for span in spans if span.kind == OpKind.JUDGE}
        wait_for(lambda: all(map(opened.find_traces(scopes).get, scopes)), "the memories are found")
        since = min(span.start for span in spans)
        judges = partial(opened.spans, kinds=[OpKind.JUDGE], since=since)
        wait_for(lambda: judged <= {span.trace_id for span in judges()}, "the judges are found")

    def marked(self, trace_id: str) -> list[OperationSpan]:
        """The markers in a trace, as often as the backend shows them."""
        spans = self.open()._read(trace_id)
        return [span for span in spans if span.instrumentation_scope == ATTRIBUTION_SCOPE]


@pytest.fixture(scope="module", params=["memory", "badger", "tempo"])
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reached]:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "tempo":
        with running_tempo(folder, **QUICK) as tempo:
            yield Reached(f"tempo+{tempo.url}", tempo.otlp_http, tempo.service)
    else:
        with running_jaeger(folder, request.param) as jaeger:
            yield Reached(f"jaeger+{jaeger.url}", jaeger.otlp_http, jaeger.service)


def planted(system: System, fault: Fault, story: int = 0) -> list[OperationSpan]:
    """A story with one fault, of an owner of its own, that has just happened: its weeks within seconds."""
    recording = record(system, fault, STORY[story], STORY[(story + 3) % len(STORY)])
    owner, first = secrets.token_hex(8), min(span.start for span in recording.spans)
    beginning = time.time_ns() - MINUTE
    move = Move(0)
    return [
        replace(
            move.span(span, 0),
            start=(start := beginning + (span.start - first) // FASTER),
            end=start + 10**6,
            scope=owner if span.scope else "",
            resource={"service.name": "assistant"},
        )
        for span in recording.spans
    ]


def verdicts_of(spans: Sequence[OperationSpan], folder: Path) -> dict[str, dict[str, Any]]:
    """The verdicts from SQLite, by trace."""
    with SqliteStore.open(folder / f"{secrets.token_hex(4)}.db") as store:
        for first in range(0, len(spans), 500):
            store.add_request(encode_request(spans[first : first + 500]))
        return {v.failure.trace_id: verdict_json(v) for found in diagnose(store) for v in found.verdicts}


def attribute(*arguments: str, endpoint: str = "") -> tuple[dict[str, dict[str, Any]], str]:
    """Run the command; return the verdicts by trace, and what it says of sending."""
    environ = {**os.environ, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
    command = [sys.executable, "-m", "memtrace_otel.cli", "attribute", *arguments, "--json"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {one["trace_id"]: one for one in map(json.loads, done.stdout.splitlines())}, done.stderr


def test_planted_faults_get_the_verdicts_that_they_get_from_a_database(backend: Reached, tmp_path: Path) -> None:
    spans = [span for system in System for fault in sorted(FAULTS_OF[system]) for span in planted(system, fault)]
    expected = verdicts_of(spans, tmp_path)
    assert len(expected) > 40
    backend.tell(spans)
    found = list(diagnose_backend(backend.open(), list(expected)))
    assert {v.failure.trace_id: verdict_json(v) for one in found for v in one.verdicts} == expected


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[OperationSpan], dict[str, dict[str, Any]]]:
    """The spans of the demo's database, and its verdicts."""
    run = run_demo(tmp_path_factory.mktemp("demo"))
    with SqliteStore.open(run.database, create=False) as store:
        spans = list(store.spans())
    return spans, attribute("--all", "--no-annotate", "--db", str(run.database))[0]


def test_the_demo_from_a_backend_is_the_demo_from_its_database(
    backend: Reached, demo: tuple[list[OperationSpan], dict[str, dict[str, Any]]]
) -> None:
    spans, expected = demo
    backend.tell(spans)
    asked = "--source", backend.source, "--all", "--since", "2h"
    found, said = attribute(*asked)
    assert {trace_id: found[trace_id] for trace_id in expected} == expected
    assert "nothing was sent" in said

    sent, said = attribute(*asked, endpoint=backend.endpoint)
    assert sent == found
    causing = {one["operation"]["trace_id"] for one in expected.values() if one["operation"]}
    wait_for(lambda: all(backend.marked(id) for id in {*expected, *causing}), "the markers are there")
    again, said = attribute(*asked, endpoint=backend.endpoint)
    assert again == found
    assert said.startswith("sent 0 spans and 0 events")
    for trace_id in {*expected, *causing}:
        ids = [span.span_id for span in backend.marked(trace_id)]
        assert sorted(ids) == sorted(set(ids))
