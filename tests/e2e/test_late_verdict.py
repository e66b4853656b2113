"""A verdict sent long after its traces, as real backends show it: Jaeger in memory and on disk, Tempo."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from memtrace_otel.annotate import SendError, annotate, deliver
from memtrace_otel.model import Failure, OperationSpan
from memtrace_otel.otlp import encode_request
from memtrace_otel.semconv import ATTRIBUTION_SERVICE
from memtrace_otel.sources import SqliteStore
from tests.e2e.backends import Backend
from tests.e2e.backends.jaeger import Jaeger
from tests.e2e.backends.service import wait_for
from tests.e2e.backends.tempo import Tempo
from tests.e2e.story import SECOND, Story, bounds, markers, new_story, read, send_spans, tell

WAYS = [
    ("jaeger", "http/protobuf"),
    ("jaeger", "grpc"),
    ("badger", "grpc"),
    ("tempo", "http/protobuf"),
    ("tempo", "grpc"),
]


@dataclass(frozen=True)
class Place:
    """A backend, and its endpoint for the protocol that the environment names."""

    name: str
    backend: Backend
    endpoint: str


@pytest.fixture(params=WAYS, ids=["-".join(way) for way in WAYS])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Place:
    name, protocol = request.param
    backend: Backend = request.getfixturevalue(name)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    return Place(name, backend, backend.otlp_grpc if protocol == "grpc" else backend.otlp_http)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore.open(tmp_path / "memtrace.db") as store:
        yield store


@pytest.fixture
def story(store: SqliteStore, place: Place) -> Story:
    """A story that the database and the backend know."""
    story = new_story()
    store.add_request(encode_request(story.spans))
    tell(story, place.backend, place.endpoint)
    return story


def test_marker_appears_once_in_both_traces_and_changes_nothing_else(
    place: Place, story: Story, store: SqliteStore
) -> None:
    backend = place.backend
    before = [read(backend, trace_id, count) for trace_id, count in zip(story.traces, (3, 2), strict=True)]
    (annotation,) = annotate([story.verdict()], store)
    assert deliver([annotation], store, place.endpoint).spans == len(annotation.spans)
    assert deliver(annotate([story.verdict()], store), store, place.endpoint).spans == 0
    own = annotation.root.trace_id
    time.sleep(1)  # a second copy would have arrived by now
    after = [read(backend, trace_id, count) for trace_id, count in zip(story.traces, (4, 3), strict=True)]
    for old, new, parent, service in zip(
        before, after, (story.answer, story.update), (story.service, ATTRIBUTION_SERVICE), strict=True
    ):
        (found,) = markers(new)
        assert found.name == "memtrace.attribution update"
        assert (found.parent_id, found.service) == (parent.span_id, service)
        assert found.attributes["memtrace.failure.type"] == "update"
        assert found.attributes["memtrace.failure.answer"] == story.answer.origin
        assert found.failed
        assert parent.start <= found.start < found.end <= parent.end
        assert bounds(new) == bounds(old)
    everything = [span for spans in (*after, read(backend, own, 3)) for span in spans]
    assert len({span.span_id for span in everything}) == len(everything)
    assert [backend.warnings(trace_id) for trace_id in (*story.traces, own)] == [[], [], []]

    wait_for(lambda: backend.failing(story.service, "update") == {story.answer.trace_id}, "the failing trace is found")
    wait_for(lambda: story.update.trace_id in backend.failing(ATTRIBUTION_SERVICE, "update"), "the cause is found")
    assert backend.failing(story.service, "deletion") == set()


def test_attribution_trace_links_to_the_answer_and_to_the_cause(place: Place, story: Story, store: SqliteStore) -> None:
    (annotation,) = annotate([story.verdict()], store, started=time.time_ns() - SECOND)
    deliver([annotation], store, place.endpoint)
    own = annotation.root.trace_id
    links = {span.name: [(link.trace_id, link.span_id) for link in span.links] for span in read(place.backend, own, 3)}
    cause = (story.update.trace_id, story.update.span_id)
    assert links == {
        "memtrace.attribute": [(story.answer.trace_id, story.answer.span_id)],
        "memtrace.evidence loss": [cause],
        "memtrace.evidence decisive": [cause],
    }


def test_a_changed_verdict_stands_next_to_the_one_it_replaces(place: Place, story: Story, store: SqliteStore) -> None:
    (first,) = annotate([story.verdict()], store)
    deliver([first], store, place.endpoint)
    (second,) = annotate([story.other_verdict()], store)
    deliver([second], store, place.endpoint)
    found = markers(read(place.backend, story.answer.trace_id, 5))
    assert {one.name: one.attributes.get("memtrace.attribution.replaces") for one in found} == {
        "memtrace.attribution update": None,
        "memtrace.attribution response": first.verdict.attribution_id,
    }
    for failure_type in ("update", "response"):
        wait_for(lambda: place.backend.failing(story.service, failure_type) == {story.answer.trace_id}, failure_type)  # noqa: B023
    assert [place.backend.warnings(trace_id) for trace_id in story.traces] == [[], []]


def test_tempo_shows_a_trace_past_its_usual_bounds_and_the_marker_after_it(
    tempo: Tempo, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless told otherwise it acknowledges and discards what is past 5 MB of a trace, cannot show one past 16 MiB, and
    cuts strings past 2 KiB."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    story = new_story()
    pages = [secrets.token_hex(800_000) for _ in range(11)]
    steps = [replace(story.roots[1], span_id=secrets.token_hex(8), attributes={"page": page}) for page in pages]
    store.add_request(encode_request(story.spans))
    tell(story, tempo, tempo.otlp_http)
    for step in steps:
        send_spans([step], tempo.otlp_http)
    deliver(annotate([story.verdict()], store), store, tempo.otlp_http)
    found = read(tempo, story.answer.trace_id, 3 + len(steps) + 1)
    assert {span.attributes["page"] for span in found if "page" in span.attributes} == set(pages)
    assert len(markers(found)) == 1


@pytest.mark.parametrize("name", ["jaeger", "badger"])
def test_a_marker_in_a_span_without_duration_draws_no_warning_of_its_own(
    name: str, request: pytest.FixtureRequest, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    jaeger: Jaeger = request.getfixturevalue(name)
    story = new_story()
    root = story.roots[1]
    instant = OperationSpan(
        root.trace_id,
        "f" * 16,
        root.span_id,
        "chat",
        "respond",
        start=root.start,
        end=root.start,
        resource=root.resource,
    )
    store.add_request(encode_request([root, instant]))
    send_spans([root, instant], jaeger.otlp_http)
    (annotation,) = annotate(
        [story.verdict(failure=Failure(instant), failure_type="unknown", trace_id="", span_id="", evidence=())], store
    )
    deliver([annotation], store, jaeger.otlp_http)
    wait_for(lambda: len(jaeger.trace(root.trace_id)) == 3, "the marker")
    (found,) = (span for span in jaeger.trace(root.trace_id) if span.name.startswith("memtrace.attribution "))
    assert found.warnings == ()


def test_a_backend_that_is_down_is_an_error_and_its_verdicts_go_out_later(
    place: Place, story: Story, store: SqliteStore
) -> None:
    annotations = annotate([story.verdict()], store)
    with pytest.raises(SendError, match=r"cannot send traces to http://127\.0\.0\.1:9"):
        deliver(annotations, store, "http://127.0.0.1:9")
    assert markers(read(place.backend, story.answer.trace_id, 3)) == []
    deliver(annotations, store, place.endpoint)
    assert len(markers(read(place.backend, story.answer.trace_id, 4))) == 1
