"""Whoever sends a verdict again, after whatever happened: a backend shows it once.

Jaeger in memory shows identical spans twice: nothing may arrive twice there. Jaeger on disk and Tempo keep one of them,
by the ids that are the same on every machine.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal
from urllib.request import Request, urlopen

import pytest

from memtrace_otel.annotate import Annotation, annotate, deliver
from memtrace_otel.otlp import encode_request
from memtrace_otel.store import SqliteStore
from tests.e2e.backends import Backend
from tests.e2e.backends.service import wait_for
from tests.e2e.backends.tempo import QUICK, Tempo, running_tempo
from tests.e2e.story import Story, new_story, send_spans, tell

STORIES = 40
"""Their verdicts fill more than one request."""

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

    def sent(self) -> int:
        """Return how many spans it says it has sent, once it has ended well."""
        output, errors = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, output + errors
        found = re.search(r"sent (\d+) spans", errors)
        assert found, errors
        return int(found[1])


@contextmanager
def deadly_relay(endpoint: str, victims: list[Run], cut: Literal["before", "after"]) -> Iterator[str]:
    """Hand requests on to `endpoint`, and kill who sends the second, before it is handed on or answered."""
    requests: list[int] = []

    class Relay(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            requests.append(len(body))
            fatal = len(requests) == 2
            if not (fatal and cut == "before"):
                kept = {name: self.headers[name] for name in ("content-type", "content-encoding") if self.headers[name]}
                with urlopen(Request(endpoint + self.path, body, kept, method="POST"), timeout=30) as reply:
                    answer = reply.read()
            if fatal:
                victims[0].process.send_signal(signal.SIGKILL)
                return
            self.send_response(200)
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


def stored(database: Path, stories: list[Story]) -> Path:
    """Write the stories' spans to a database."""
    with SqliteStore.open(database) as store:
        for story in stories:
            store.add_request(encode_request(story.spans))
    return database


def own_spans(database: Path) -> dict[str, list[str]]:
    """The ids of the spans of the verdicts in a database, by trace."""
    found: dict[str, list[str]] = {}
    with SqliteStore.open(database, create=False) as store:
        for span in store.spans():
            if span.instrumentation_scope == "memtrace_otel.attribution":
                found.setdefault(span.trace_id, []).append(span.span_id)
    return {trace_id: sorted(ids) for trace_id, ids in found.items()}


def shown(backend: Backend, traces: dict[str, list[str]], stories: list[Story]) -> dict[str, list[str]]:
    """The ids of our spans that a backend shows in these traces, as often as it shows them."""
    told = {span.span_id for story in stories for span in story.spans}
    return {
        trace_id: sorted(span.span_id for span in backend.spans(trace_id) if span.span_id not in told)
        for trace_id in traces
    }


@pytest.fixture
def stories(backend: Backend) -> list[Story]:
    """Stories that the backend knows."""
    stories = [new_story() for _ in range(STORIES)]
    send_spans([span for story in stories for span in story.spans], backend.otlp_http)
    wait_for(lambda: all(len(backend.spans(story.answer.trace_id)) == 3 for story in stories), "the stories")
    return stories


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_run_that_is_killed_between_two_requests_is_finished_by_the_next(
    cut: Literal["before", "after"], name: str, backend: Backend, stories: list[Story], tmp_path: Path
) -> None:
    database = stored(tmp_path / "memtrace.db", stories)
    victims: list[Run] = []
    with deadly_relay(backend.otlp_http, victims, cut) as endpoint:
        victims.append(Run(endpoint, "--all", "--db", database))
        assert victims[0].process.wait(120) == -signal.SIGKILL
    wanted = own_spans(database)
    whole = sum(map(len, wanted.values()))
    assert whole > 64
    arrived = 64 if cut == "before" else min(whole, 128)
    wait_for(lambda: sum(map(len, shown(backend, wanted, stories).values())) == arrived, f"{arrived} spans arrived")

    look = ["--look-in", f"{KINDS[name]}+{backend.url}"]
    again = Run(backend.otlp_http, "--all", "--db", database, *look).sent()
    assert again == whole - arrived
    wait_for(lambda: shown(backend, wanted, stories) == wanted, "every verdict, once")
    assert Run(backend.otlp_http, "--all", "--db", database).sent() == 0
    assert shown(backend, wanted, stories) == wanted


def test_another_machine_adds_nothing(name: str, backend: Backend, stories: list[Story], tmp_path: Path) -> None:
    database = stored(tmp_path / "memtrace.db", stories)
    assert Run(backend.otlp_http, "--all", "--db", database).sent() > 64
    wanted = own_spans(database)
    wait_for(lambda: shown(backend, wanted, stories) == wanted, "every verdict, once")

    source = f"{KINDS[name]}+{backend.url}"
    failing = [story.answer.trace_id for story in stories]
    assert Run(backend.otlp_http, "--source", source, *failing).sent() == 0
    elsewhere = stored(tmp_path / "elsewhere.db", stories)
    assert Run(backend.otlp_http, "--all", "--db", elsewhere, "--look-in", source).sent() == 0
    assert shown(backend, wanted, stories) == wanted
    assert own_spans(elsewhere) == wanted


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tempo]:
    """A Tempo that has blocks on disk after seconds."""
    with running_tempo(tmp_path_factory.mktemp("quick"), **QUICK) as tempo:
        yield tempo


def test_tempo_shows_a_verdict_once_fresh_flushed_and_compacted(quick: Tempo, tmp_path: Path) -> None:
    story = new_story()
    tell(story, quick, quick.otlp_http)
    quick.flush(*story.traces)  # the verdict comes when its traces lie on disk
    first = deliver_from(stored(tmp_path / "one.db", [story]), story, quick)
    traces = {span.trace_id for span in first.spans}
    looks_once(quick, story, first)  # fresh
    quick.flush(*traces)
    looks_once(quick, story, first)
    again = deliver_from(stored(tmp_path / "two.db", [story]), story, quick)
    assert [span.span_id for span in again.spans] == [span.span_id for span in first.spans]
    looks_once(quick, story, first)  # one on disk, one fresh
    quick.flush(*traces)
    looks_once(quick, story, first)  # both on disk
    quick.compact()
    looks_once(quick, story, first)
    wait_for(lambda: quick.failing(story.service, "update") == {story.answer.trace_id}, "the failing trace is found")


def deliver_from(database: Path, story: Story, backend: Backend) -> Annotation:
    """Send the story's verdict from a database that has never sent anything."""
    with SqliteStore.open(database, create=False) as store:
        (annotation,) = annotate([story.verdict()], store)
        assert deliver([annotation], store, backend.otlp_http).spans == len(annotation.spans)
        return annotation


def looks_once(tempo: Tempo, story: Story, annotation: Annotation) -> None:
    """Check that every trace holds each of its spans once, the verdict's included."""
    wanted = sorted(span.origin for span in (*story.spans, *annotation.spans))
    traces = {span.trace_id for span in annotation.spans}

    def there() -> list[str]:
        return sorted(f"{span.trace_id}-{span.span_id}" for id in traces for span in tempo.spans(id))

    wait_for(lambda: there() == wanted, "every span, once")
