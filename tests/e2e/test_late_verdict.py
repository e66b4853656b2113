"""A verdict sent long after its traces, as a real Jaeger shows it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from memtrace_otel.annotate import SendError, annotate, deliver
from memtrace_otel.annotate.send import send
from memtrace_otel.annotate.target import read_target
from memtrace_otel.model import Failure, OperationSpan, Step, Verdict
from memtrace_otel.otlp import encode_request
from memtrace_otel.store import SqliteStore
from tests.e2e.backends.jaeger import Jaeger, JaegerSpan
from tests.e2e.backends.service import wait_for

SECOND = 1_000_000_000
ATTRIBUTION = "memtrace-attribution"


@dataclass(frozen=True)
class Story:
    """A fact overwritten in one trace and asked for in another, both ten minutes ago."""

    service: str
    update: OperationSpan
    answer: OperationSpan
    judge: OperationSpan
    roots: tuple[OperationSpan, OperationSpan]

    @property
    def spans(self) -> list[OperationSpan]:
        return [*self.roots, self.update, self.answer, self.judge]

    def verdict(self, **changes: object) -> Verdict:
        decisive = self.update
        fields: dict[str, object] = {
            "failure": Failure(self.answer, self.judge),
            "failure_type": "update",
            "trace_id": decisive.trace_id,
            "span_id": decisive.span_id,
            "operation": decisive.name,
            "operation_kind": decisive.kind,
            "variable": "memory:m-1",
            "confidence": 0.9,
            "reason": "The update replaced Lisbon by Porto.",
            "evidence": (Step("loss", "memory:m-1", decisive.origin),),
            "when": decisive.start,
        }
        return Verdict(**{**fields, **changes})


@pytest.fixture
def story() -> Story:
    """Spans of a service of this test alone, with the nanoseconds that real clocks have."""
    service = f"assistant-{secrets.token_hex(4)}"
    ago = time.time_ns() - 600 * SECOND
    told, asked = secrets.token_hex(16), secrets.token_hex(16)

    def span(trace_id: str, parent: str, name: str, start: int, end: int, kind: str = "") -> OperationSpan:
        return OperationSpan(
            trace_id, secrets.token_hex(8), parent, name, kind, start=start, end=end, resource={"service.name": service}
        )

    day_one = span(told, "", "day 1", ago, ago + 9 * SECOND)
    update = span(told, day_one.span_id, "update_memory", ago + SECOND, ago + 2 * SECOND + 345, "update")
    day_two = span(asked, "", "day 2", ago + 100 * SECOND, ago + 109 * SECOND)
    answer = span(asked, day_two.span_id, "chat", ago + 101 * SECOND, ago + 103 * SECOND + 678, "respond")
    judge = span(asked, day_two.span_id, "memtrace.judge", ago + 104 * SECOND, ago + 105 * SECOND, "judge")
    return Story(service, update, answer, judge, (day_one, day_two))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore.open(tmp_path / "memtrace.db") as store:
        yield store


@pytest.fixture(params=["http/protobuf", "grpc"])
def endpoint(request: pytest.FixtureRequest, jaeger: Jaeger, monkeypatch: pytest.MonkeyPatch) -> str:
    """Jaeger's endpoint, for each of the two OTLP protocols."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", request.param)
    return jaeger.otlp_grpc if request.param == "grpc" else jaeger.otlp_http


def tell(story: Story, store: SqliteStore, jaeger: Jaeger, endpoint: str) -> None:
    """Let the application's spans arrive in the database and in Jaeger."""
    body = encode_request(story.spans)
    store.add_request(body)
    target = read_target("traces", endpoint)
    assert target is not None
    send(target, body)
    wait_for(lambda: len(jaeger.trace(story.answer.trace_id)) == 3, "the asking trace")
    wait_for(lambda: len(jaeger.trace(story.update.trace_id)) == 2, "the telling trace")


def bounds(spans: list[JaegerSpan]) -> tuple[int, int]:
    return min(span.start for span in spans), max(span.start + span.duration for span in spans)


def markers(spans: list[JaegerSpan]) -> list[JaegerSpan]:
    return [span for span in spans if span.name.startswith("memtrace.attribution ")]


def test_marker_appears_once_in_both_traces_and_changes_nothing_else(
    jaeger: Jaeger, story: Story, store: SqliteStore, endpoint: str
) -> None:
    tell(story, store, jaeger, endpoint)
    traces = story.answer.trace_id, story.update.trace_id
    before = [jaeger.trace(trace_id) for trace_id in traces]

    (annotation,) = annotate([story.verdict()], store)
    assert deliver([annotation], store, endpoint).spans == len(annotation.spans)
    assert deliver(annotate([story.verdict()], store), store, endpoint).spans == 0
    own = annotation.root.trace_id
    wait_for(lambda: len(jaeger.trace(own)) == 3, "the attribution trace")
    time.sleep(1)  # a second copy would have arrived by now

    after = [jaeger.trace(trace_id) for trace_id in traces]
    for old, new, parent, service in zip(
        before, after, (story.answer, story.update), (story.service, ATTRIBUTION), strict=True
    ):
        (found,) = markers(new)
        assert found.name == "memtrace.attribution update"
        assert (found.parent_id, found.service) == (parent.span_id, service)
        assert found.tags["memtrace.failure.type"] == "update"
        assert found.tags["memtrace.failure.answer"] == story.answer.origin
        assert found.tags["error"] is True
        assert len(new) == len(old) + 1
        assert bounds(new) == bounds(old)
    everything = [span for spans in (*after, jaeger.trace(own)) for span in spans]
    assert [span.warnings for span in everything if span.warnings] == []
    assert len({span.span_id for span in everything}) == len(everything)
    for trace_id, spans in zip(traces, after, strict=True):
        ids = [span.span_id for span in jaeger.spans(trace_id)]
        assert sorted(ids) == sorted(span.span_id for span in spans)

    tags = {"memtrace.failure.type": "update"}
    assert jaeger.search(story.service, tags) == {story.answer.trace_id}
    assert jaeger.search(story.service, {"memtrace.failure.type": "deletion"}) == set()
    assert story.update.trace_id in jaeger.search(ATTRIBUTION, tags)


def test_attribution_trace_links_to_the_answer_and_to_the_cause(
    jaeger: Jaeger, story: Story, store: SqliteStore, endpoint: str
) -> None:
    tell(story, store, jaeger, endpoint)
    (annotation,) = annotate([story.verdict()], store, started=time.time_ns() - SECOND)
    deliver([annotation], store, endpoint)
    own = annotation.root.trace_id
    wait_for(lambda: len(jaeger.trace(own)) == 3, "the attribution trace")
    links = {span.name: [(link.trace_id, link.span_id) for link in span.links] for span in jaeger.spans(own)}
    cause = (story.update.trace_id, story.update.span_id)
    assert links == {
        "memtrace.attribute": [(story.answer.trace_id, story.answer.span_id)],
        "memtrace.evidence loss": [cause],
        "memtrace.evidence decisive": [cause],
    }


def test_a_changed_verdict_stands_next_to_the_one_it_replaces(
    jaeger: Jaeger, story: Story, store: SqliteStore, endpoint: str
) -> None:
    tell(story, store, jaeger, endpoint)
    (first,) = annotate([story.verdict()], store)
    deliver([first], store, endpoint)
    answer = story.answer
    response = story.verdict(
        failure_type="response", trace_id=answer.trace_id, span_id=answer.span_id, operation=answer.name
    )
    (second,) = annotate([response], store)
    deliver([second], store, endpoint)
    wait_for(lambda: len(markers(jaeger.trace(answer.trace_id))) == 2, "the second marker")
    replaced = {
        span.name: span.tags.get("memtrace.attribution.replaces") for span in markers(jaeger.trace(answer.trace_id))
    }
    assert replaced == {
        "memtrace.attribution update": None,
        "memtrace.attribution response": first.verdict.attribution_id,
    }


def test_a_marker_in_a_span_without_duration_draws_no_warning_of_its_own(
    jaeger: Jaeger, story: Story, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
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
    body = encode_request([root, instant])
    store.add_request(body)
    target = read_target("traces", jaeger.otlp_http)
    assert target is not None
    send(target, body)
    (annotation,) = annotate(
        [story.verdict(failure=Failure(instant), failure_type="unknown", trace_id="", span_id="", evidence=())], store
    )
    deliver([annotation], store, jaeger.otlp_http)
    wait_for(lambda: len(jaeger.trace(root.trace_id)) == 3, "the marker")
    (found,) = markers(jaeger.trace(root.trace_id))
    assert found.warnings == ()


def test_a_backend_that_is_down_is_an_error_and_its_verdicts_go_out_later(
    jaeger: Jaeger, story: Story, store: SqliteStore, endpoint: str
) -> None:
    tell(story, store, jaeger, endpoint)
    annotations = annotate([story.verdict()], store)
    with pytest.raises(SendError, match=r"cannot send traces to http://127\.0\.0\.1:9"):
        deliver(annotations, store, "http://127.0.0.1:9")
    assert markers(jaeger.trace(story.answer.trace_id)) == []
    deliver(annotations, store, endpoint)
    wait_for(lambda: len(markers(jaeger.trace(story.answer.trace_id))) == 1, "the marker")
