"""Whoever sends a verdict again, after whatever happened: a backend shows it once.

Jaeger in memory shows identical spans twice, Jaeger on disk those that begin at another time: nothing may arrive twice
there. Tempo keeps one span of an id, and ids are the same on every machine.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal, Protocol
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from memtrace_otel.annotate import Annotation, annotate, deliver
from memtrace_otel.annotate.target import read_target
from memtrace_otel.model import OperationSpan, Verdict
from memtrace_otel.otlp import encode_request
from memtrace_otel.semconv import ATTRIBUTION_SCOPE
from memtrace_otel.sources import SqliteStore
from tests.e2e.backends import Backend
from tests.e2e.backends.service import wait_for
from tests.e2e.backends.tempo import QUICK, Tempo, running_tempo
from tests.e2e.story import SECOND, Story, crowd, markers, new_story, read, send_spans, tell
from tests.integration.serve.test_shared_disk import children

ANSWERS = 33
"""That fail: their verdicts fill more than one request."""

KINDS = {"jaeger": "jaeger", "badger": "jaeger", "tempo": "tempo"}


@pytest.fixture(params=KINDS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def backend(request: pytest.FixtureRequest, name: str) -> Backend:
    return request.getfixturevalue(name)


@pytest.fixture(autouse=True)
def protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")


class Run:
    """A run of `memtrace-otel attribute` that sends to `endpoint`."""

    def __init__(self, endpoint: str, *options: str | Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "memtrace_otel.cli", "attribute", *map(str, options)],
            env=os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def kill(self) -> None:
        self.process.kill()

    def sent(self) -> int:
        """Return how many spans it says it has sent, once it has ended well."""
        output, errors = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, output + errors
        found = re.search(r"sent (\d+) spans", errors)
        assert found, errors
        return int(found[1])


class Victim(Protocol):
    def kill(self) -> None: ...


class Serving:
    """A server with a quiet period of a second, which sends to `endpoint`."""

    def __init__(self, database: Path, endpoint: str, *options: str) -> None:
        ports = "--grpc-port", "0", "--http-port", "0"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "memtrace_otel.cli", "serve", "--db", str(database), *ports, *options],
            env=os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "MEMTRACE_QUIET_SECONDS": "1"},
        )

    def kill(self) -> None:
        """Kill the processes behind the server, one of which sends, and the server."""
        for pid in (*children(self.process.pid), self.process.pid):
            os.kill(pid, signal.SIGKILL)

    def terminate(self) -> None:
        self.process.terminate()
        assert self.process.wait(30) == 0


@contextmanager
def deadly_relay(endpoint: str, victims: Sequence[Victim], cut: Literal["before", "after"]) -> Iterator[str]:
    """Relay requests to `endpoint`; kill the sender of the second trace request before or after the relay."""
    requests: list[int] = []

    class Relay(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            traces = self.path.endswith("/v1/traces")
            requests.extend([len(body)] * traces)
            fatal = traces and len(requests) == 2
            if not (fatal and cut == "before"):
                kept = {name: self.headers[name] for name in ("content-type", "content-encoding") if self.headers[name]}
                status, answer = hand_on(Request(endpoint + self.path, body, kept, method="POST"))
            if fatal:
                victims[0].kill()
                return
            self.send_response(status)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Relay) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def hand_on(request: Request) -> tuple[int, bytes]:
    try:
        with urlopen(request, timeout=30) as reply:
            return reply.status, reply.read()
    except HTTPError as error:  # Jaeger and Tempo take no logs
        return error.code, error.read()


def stored(database: Path, spans: list[OperationSpan]) -> Path:
    """Write spans to a database."""
    with SqliteStore.open(database) as store:
        store.add_request(encode_request(spans))
    return database


def own_spans(database: Path) -> dict[str, list[str]]:
    """The ids of the spans of the verdicts in a database, by trace."""
    found: dict[str, list[str]] = {}
    with SqliteStore.open(database, create=False) as store:
        for span in store.spans():
            if span.instrumentation_scope == ATTRIBUTION_SCOPE:
                found.setdefault(span.trace_id, []).append(span.span_id)
    return {trace_id: sorted(ids) for trace_id, ids in found.items()}


def shown(backend: Backend, traces: dict[str, list[str]], told: list[OperationSpan]) -> dict[str, list[str]]:
    """The ids of the spans that a backend shows in these traces beside what was told, as often as it shows them."""
    ids = {span.span_id for span in told}
    return {id: sorted(span.span_id for span in backend.spans(id) if span.span_id not in ids) for id in traces}


@pytest.fixture
def told(backend: Backend) -> list[OperationSpan]:
    """A trace that the backend knows."""
    spans = crowd(ANSWERS)
    send_spans(spans, backend.otlp_http)
    wait_for(lambda: len(backend.spans(spans[0].trace_id)) == len(spans), "the failing trace")
    return spans


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_run_that_is_killed_between_two_requests_is_finished_by_the_next(
    cut: Literal["before", "after"], name: str, backend: Backend, told: list[OperationSpan], tmp_path: Path
) -> None:
    database = stored(tmp_path / "memtrace.db", told)
    victims: list[Run] = []
    with deadly_relay(backend.otlp_http, victims, cut) as endpoint:
        victims.append(Run(endpoint, "--all", "--db", database))
        assert victims[0].process.wait(120) == -signal.SIGKILL
        wanted = own_spans(database)
        whole = sum(map(len, wanted.values()))
        arrived = 64 if cut == "before" else whole
        wait_for(lambda: sum(map(len, shown(backend, wanted, told).values())) == arrived, f"{arrived} spans arrived")
        assert 64 < whole <= 128

        # The first request is remembered; what became of the second only the backend knows.
        look = [] if cut == "before" else ["--look-in", f"{KINDS[name]}+{backend.url}"]
        assert Run(endpoint, "--all", "--db", database, *look).sent() == whole - arrived
        wait_for(lambda: shown(backend, wanted, told) == wanted, "every verdict, once")
        assert Run(endpoint, "--all", "--db", database).sent() == 0


def test_a_server_that_is_killed_while_it_sends_looks_when_it_is_back(
    name: str, backend: Backend, told: list[OperationSpan], tmp_path: Path
) -> None:
    database = stored(tmp_path / "memtrace.db", told)
    look = "--look-in", f"{KINDS[name]}+{backend.url}"
    victims: list[Serving] = []
    with deadly_relay(backend.otlp_http, victims, "after") as endpoint:
        victims.append(Serving(database, endpoint, *look))
        assert victims[0].process.wait(120) == -signal.SIGKILL
        wanted, failing = own_spans(database), told[0].trace_id
        wait_for(lambda: len(shown(backend, wanted, told)[failing]) == 2, "the verdicts of both requests arrived")
        assert unsent(database, endpoint, wanted)
        again = Serving(database, endpoint, *look)

        def sent() -> bool:
            spans = own_spans(database)
            return len(spans[failing]) == ANSWERS and not unsent(database, endpoint, spans)

        wait_for(sent, "every verdict is there, and the server knows that all are sent")  # a request each
        again.terminate()
    wanted = own_spans(database)
    assert shown(backend, wanted, told) == wanted


def unsent(database: Path, endpoint: str, wanted: dict[str, list[str]]) -> list[str]:
    """Those ids of which a database does not know that they were sent."""
    with SqliteStore.open(database, create=False) as store:
        return store.unsent(f"traces {read_target('traces', endpoint)}", [id for ids in wanted.values() for id in ids])


def test_another_machine_adds_nothing(name: str, backend: Backend, told: list[OperationSpan], tmp_path: Path) -> None:
    database = stored(tmp_path / "memtrace.db", told)
    assert Run(backend.otlp_http, "--all", "--db", database).sent() > 64
    wanted = own_spans(database)
    wait_for(lambda: shown(backend, wanted, told) == wanted, "every verdict, once")

    source = f"{KINDS[name]}+{backend.url}"
    assert Run(backend.otlp_http, "--source", source, told[0].trace_id).sent() == 0
    elsewhere = stored(tmp_path / "elsewhere.db", told)
    assert Run(backend.otlp_http, told[0].trace_id, "--db", elsewhere, "--look-in", source).sent() == 0
    assert Run(backend.otlp_http, "--all", "--db", elsewhere, "--look-in", source).sent() == 0
    assert own_spans(elsewhere) == wanted
    if name == "tempo":  # it keeps the first span of an id: even without a look nothing changes
        blind = stored(tmp_path / "blind.db", told)
        assert Run(backend.otlp_http, "--all", "--db", blind).sent() == sum(map(len, wanted.values()))
    wait_for(lambda: shown(backend, wanted, told) == wanted, "every verdict, still once")


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tempo]:
    """A Tempo that has blocks on disk after seconds."""
    with running_tempo(tmp_path_factory.mktemp("quick"), **QUICK) as tempo:
        yield tempo


def test_tempo_shows_a_verdict_once_fresh_flushed_and_compacted(quick: Tempo, tmp_path: Path) -> None:
    story = new_story()
    tell(story, quick, quick.otlp_http)
    quick.flush(*story.traces)  # the verdict comes when its traces lie on disk
    first = deliver_from(stored(tmp_path / "one.db", story.spans), story, quick)
    traces = {span.trace_id for span in first.spans}
    looks_once(quick, story, first)  # fresh
    quick.flush(*traces)
    looks_once(quick, story, first)
    again = deliver_from(stored(tmp_path / "two.db", story.spans), story, quick)
    assert [span.span_id for span in again.spans] == [span.span_id for span in first.spans]
    looks_once(quick, story, first)  # one on disk, one fresh
    quick.flush(*traces)
    looks_once(quick, story, first)  # both on disk
    quick.compact()
    looks_once(quick, story, first)
    changed = deliver_from(tmp_path / "two.db", story, quick, story.other_verdict())
    found = read(quick, story.answer.trace_id, 5)
    assert {one.attributes.get("memtrace.attribution.replaces") for one in markers(found)} == {
        None,
        first.verdict.attribution_id,
    }
    assert changed.verdict.replaces == first.verdict.attribution_id

    # A search of the hour of the failure finds what was said of it later.
    query = f'{{ resource.service.name = "{story.service}" && span.memtrace.failure.type = "update" }}'
    then = story.answer.end // SECOND
    assert quick.search(query, start=then - 60, end=then + 60) == {story.answer.trace_id}
    replaced = "{ span.memtrace.attribution.replaces != nil }"  # as the guide says
    window = {"start": then - 60, "end": then + 60}
    wait_for(lambda: quick.search(replaced, **window) == {story.answer.trace_id}, "the marker that replaces another")


def deliver_from(database: Path, story: Story, backend: Backend, verdict: Verdict | None = None) -> Annotation:
    """Send a verdict on the story from a database that has never sent it."""
    with SqliteStore.open(database, create=False) as store:
        (annotation,) = annotate([verdict or story.verdict()], store)
        assert deliver([annotation], store, backend.otlp_http).spans == len(annotation.spans)
        return annotation


def looks_once(tempo: Tempo, story: Story, annotation: Annotation) -> None:
    """Check that every trace holds each of its spans once, the verdict's included."""
    wanted = sorted(span.origin for span in (*story.spans, *annotation.spans))
    traces = {span.trace_id for span in annotation.spans}

    def there() -> list[str]:
        return sorted(f"{span.trace_id}-{span.span_id}" for id in traces for span in tempo.spans(id))

    wait_for(lambda: there() == wanted, "every span, once")
