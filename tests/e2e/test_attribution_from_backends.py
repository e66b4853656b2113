"""Attribution with no database of ours: from Jaeger and Tempo the same verdicts as from SQLite, sent once."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memtrace_otel.annotate import MemoryLog
from memtrace_otel.attribution import is_open, verdict_json
from memtrace_otel.demo.run import run_demo
from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import decode_request, encode_request
from memtrace_otel.otlp.sdk import encode_sdk_spans
from memtrace_otel.pipeline.diagnose import diagnose
from memtrace_otel.semconv import ATTRIBUTION_SCOPE, FailureType, OpKind
from memtrace_otel.sources import RemoteSource, SqliteStore, open_source
from tests.conftest import Recording
from tests.contract.elsewhere import deleted_by, people, ways
from tests.contract.planted import FAULTS_OF, Fault, System
from tests.e2e.backends.jaeger import running_jaeger
from tests.e2e.backends.service import Service, wait_for
from tests.e2e.backends.tempo import QUICK, running_tempo
from tests.e2e.moved import export, wait_until_readable
from tests.e2e.stories import planted


@dataclass(frozen=True)
class Reached:
    """A backend under test."""

    source: str
    endpoint: str
    service: Service
    keeps: bool
    """Whether a restart keeps its spans."""

    def open(self) -> RemoteSource:
        return open_source(self.source)

    def tell(self, spans: Sequence[OperationSpan]) -> None:
        """Send spans and wait until they can be read and found."""
        export(self.endpoint, spans)
        opened = self.open()
        wait_until_readable(opened.trace, spans)
        scopes = {span.scope for span in spans if span.scope}
        judged = {span.trace_id for span in spans if span.kind == OpKind.JUDGE}
        wait_for(lambda: all(opened.find_traces(scopes).values()), "the memories are found")
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
        # `attribute` looks once: a busy machine may need more than the eight seconds of QUICK to list new blocks
        with running_tempo(folder, **{**QUICK, "TEMPO_COMPLETE_BLOCK_TIMEOUT": "60s"}) as tempo:
            yield Reached(f"tempo+{tempo.url}", tempo.otlp_http, tempo.service, True)
    else:
        with running_jaeger(folder, request.param) as jaeger:
            yield Reached(f"jaeger+{jaeger.url}", jaeger.otlp_http, jaeger.service, request.param == "badger")


def verdicts_of(spans: Sequence[OperationSpan], folder: Path) -> dict[str, dict[str, Any]]:
    """The verdicts from SQLite, by trace."""
    with SqliteStore.open(folder / f"{secrets.token_hex(4)}.db") as store:
        for first in range(0, len(spans), 500):
            store.add_request(encode_request(spans[first : first + 500]))
        return {v.failure.trace_id: verdict_json(v) for found in diagnose(store, store) for v in found.verdicts}


def attribute(*arguments: str, endpoint: str = "") -> tuple[dict[str, dict[str, Any]], str]:
    """Run the command; return the verdicts by trace, and what it says of sending."""
    environ = {**os.environ, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
    command = [sys.executable, "-m", "memtrace_otel.cli", "attribute", *arguments, "--json"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {one["trace_id"]: one for one in map(json.loads, done.stdout.splitlines())}, done.stderr


@contextmanager
def watching(backend: Reached, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run `watch` as a user does."""
    environ = {
        **os.environ,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_ENDPOINT": backend.endpoint,
        "MEMTRACE_QUIET_SECONDS": "1",
    }
    command = [sys.executable, "-m", "memtrace_otel.cli", "watch", "--source", backend.source]
    with log.open("ab") as output:
        process = subprocess.Popen([*command, "--interval", "0.5", "--since", "1h"], env=environ, stderr=output)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def failing_traces(spans: Sequence[OperationSpan]) -> set[str]:
    return {span.trace_id for span in spans if span.kind == OpKind.RESPOND}


def test_watch_marks_what_fails_once_through_restarts_of_both(backend: Reached, tmp_path: Path) -> None:
    """Runs first: a watch attributes all failures of the backend."""
    log = tmp_path / "watch.log"
    before, during, after = ([planted(System.ADDITIVE, Fault.GARBLED, n)] for n in range(3))
    before.append(planted(System.DECIDING, Fault.RANKED_OUT))
    passing = planted(System.ADDITIVE, Fault.NONE)
    asked = [failing_traces([span for spans in told for span in spans]) for told in (before, during, after)]

    def marked(traces: set[str]) -> bool:
        return all(backend.marked(trace_id) for trace_id in traces)

    for spans in (*before, passing):
        export(backend.endpoint, spans)
    with watching(backend, log) as first:
        wait_for(lambda: marked(asked[0]), "the first markers")
        first.send_signal(signal.SIGKILL)
    for spans in during:
        export(backend.endpoint, spans)
    with watching(backend, log) as second:
        wait_for(lambda: marked(asked[1]), "the markers after a restart of watch")
        if backend.keeps:
            backend.service.stop()
            wait_for(lambda: b"tries)" in log.read_bytes(), "watch has noticed that the backend is down")
            backend.service.start()
        for spans in after:
            export(backend.endpoint, spans)
        wait_for(lambda: marked(asked[2]), "the markers after a restart of the backend")
        second.send_signal(signal.SIGTERM)
        assert second.wait(60) == 0  # after its round
    for trace_id in set().union(*asked):
        assert len(backend.marked(trace_id)) == 1
    assert not marked(failing_traces(passing))
    lines = [line for line in log.read_text().splitlines() if ", confidence " in line]
    assert len(lines) == len(set(lines)) >= len(set().union(*asked)) - len(asked[0])


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
    assert "sent 0 spans and 0 events" in said
    for trace_id in {*expected, *causing}:
        ids = [span.span_id for span in backend.marked(trace_id)]
        assert sorted(ids) == sorted(set(ids))


def test_planted_faults_get_the_verdicts_that_they_get_from_a_database(backend: Reached, tmp_path: Path) -> None:
    spans = [span for system in System for fault in sorted(FAULTS_OF[system]) for span in planted(system, fault)]
    expected = verdicts_of(spans, tmp_path)
    assert len(expected) > 40
    backend.tell(spans)
    found = [v for one in diagnose(backend.open(), MemoryLog(), list(expected)) for v in one.verdicts]
    assert {v.failure.trace_id for v in found} == expected.keys()
    # Only in a database, an open verdict is compared with the memories of all others.
    same = {v.failure.trace_id: verdict_json(v) for v in found if not is_open(v)}
    assert len(same) > 40
    assert same == {trace_id: expected[trace_id] for trace_id in same}


@people
@ways
def test_what_others_deleted_was_deleted(
    backend: Reached, recording: Recording, content_on: None, tmp_path: Path, named: str, who: str
) -> None:
    """By an operation of any kind: what a system calls ingestion may delete."""
    deletes = dict(deleted_by(who, named, recording.tracer, kind) for kind in ("delete", "ingest", "other"))
    spans = decode_request(encode_sdk_spans(recording.spans()))
    expected = verdicts_of(spans, tmp_path)
    backend.tell(spans)
    opened = backend.open()
    deleted = {delete[:32] for delete in deletes.values()}
    wait_for(lambda: deleted <= set(opened.trace_ids()), "the deletes are found by search")
    found = [v for one in diagnose(backend.open(), MemoryLog(), [id[:32] for id in deletes]) for v in one.verdicts]
    assert {v.failure.answer_span.origin: f"{v.trace_id}-{v.span_id}" for v in found} == deletes
    assert {v.failure_type for v in found} == {FailureType.DELETION}
    assert {v.failure.trace_id: verdict_json(v) for v in found} == expected


def test_a_changed_verdict_replaces(backend: Reached) -> None:
    spans = planted(System.DECIDING, Fault.MERGED_AWAY, 1)
    writes = [span for span in spans if span.kind == OpKind.UPDATE]
    late = {span.trace_id for span in writes}
    backend.tell([span for span in spans if span.trace_id not in late])
    (trace_id,) = failing_traces(spans)
    asked = trace_id, "--source", backend.source
    first = attribute(*asked, endpoint=backend.endpoint)[0][trace_id]
    wait_for(lambda: len(backend.marked(trace_id)) == 1, "the first marker")
    backend.tell([span for span in spans if span.trace_id in late])
    second = attribute(*asked, endpoint=backend.endpoint)[0][trace_id]
    assert first["operation"] != second["operation"]
    assert second["failure_type"] == "update"
    wait_for(lambda: len(backend.marked(trace_id)) == 2, "the second marker")
    old, new = sorted(backend.marked(trace_id), key=lambda span: "memtrace.attribution.replaces" in span.attributes)
    assert new.attributes["memtrace.attribution.replaces"] == old.attributes["memtrace.attribution.id"]
    assert attribute(*asked, endpoint=backend.endpoint)[1].startswith("sent 0 spans")
