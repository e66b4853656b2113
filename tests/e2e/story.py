"""A small failing story as its spans: a fact overwritten in one trace and asked for in another."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, replace

from memtrace_otel.annotate.send import send
from memtrace_otel.annotate.target import read_target
from memtrace_otel.model import Failure, OperationSpan, Step, Variable, Verdict
from memtrace_otel.otlp import encode_request
from tests.e2e.backends import Backend
from tests.e2e.backends.service import wait_for
from tests.e2e.backends.stored import StoredSpan

SECOND = 1_000_000_000


@dataclass(frozen=True)
class Story:
    """Spans of a service of this story alone, ten minutes old, with the nanoseconds that real clocks have."""

    service: str
    update: OperationSpan
    answer: OperationSpan
    judge: OperationSpan
    roots: tuple[OperationSpan, OperationSpan]

    @property
    def spans(self) -> list[OperationSpan]:
        return [*self.roots, self.update, self.answer, self.judge]

    @property
    def traces(self) -> tuple[str, str]:
        """The failing trace and the causing trace."""
        return self.answer.trace_id, self.update.trace_id

    def verdict(self, **changes: object) -> Verdict:
        """A verdict that blames the update, but for `changes`."""
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

    def other_verdict(self) -> Verdict:
        """A verdict that blames the answer itself."""
        answer = self.answer
        return self.verdict(
            failure_type="response", trace_id=answer.trace_id, span_id=answer.span_id, operation=answer.name
        )


def new_story(service: str = "") -> Story:
    """Return a story with ids that no other one has."""
    service = service or f"assistant-{secrets.token_hex(4)}"
    ago = time.time_ns() - 600 * SECOND
    told, asked = secrets.token_hex(16), secrets.token_hex(16)

    def span(trace_id: str, parent: str, name: str, start: int, end: int, kind: str = "", **more: object):
        return OperationSpan(
            trace_id,
            secrets.token_hex(8),
            parent,
            name,
            kind,
            start=start,
            end=end,
            resource={"service.name": service},
            **more,  # type: ignore[arg-type]
        )

    day_one = span(told, "", "day 1", ago, ago + 9 * SECOND)
    update = span(told, day_one.span_id, "update_memory", ago + SECOND, ago + 2 * SECOND + 345, "update")
    day_two = span(asked, "", "day 2", ago + 100 * SECOND, ago + 109 * SECOND)
    answer = span(
        asked,
        day_two.span_id,
        "chat",
        ago + 101 * SECOND,
        ago + 103 * SECOND + 678,
        "respond",
        outputs=(Variable("answer:a-1"),),
    )
    judge = span(
        asked,
        day_two.span_id,
        "memtrace.judge",
        ago + 104 * SECOND,
        ago + 105 * SECOND,
        "judge",
        inputs=(Variable("answer:a-1", "answer", answer.origin),),
        attributes={"gen_ai.evaluation.name": "correctness", "gen_ai.evaluation.score.label": "fail"},
    )
    return Story(service, update, answer, judge, (day_one, day_two))


def crowd(answers: int) -> list[OperationSpan]:
    """Return one trace in which as many answers fail."""
    story = new_story()
    spans = [story.roots[1]]
    for number in range(answers):
        ref = f"answer:a-{number}"
        answer = replace(story.answer, span_id=secrets.token_hex(8), outputs=(Variable(ref),))
        judged = (Variable(ref, "answer", answer.origin),)
        spans += [answer, replace(story.judge, span_id=secrets.token_hex(8), inputs=judged)]
    return spans


def send_spans(spans: list[OperationSpan], endpoint: str) -> None:
    """Send spans as an application does, by the protocol of OTEL_EXPORTER_OTLP_PROTOCOL."""
    target = read_target("traces", endpoint)
    assert target is not None
    send(target, encode_request(spans))


def tell(story: Story, backend: Backend, endpoint: str) -> None:
    """Let the application's spans arrive in a backend."""
    send_spans(story.spans, endpoint)
    for trace_id, count in zip(story.traces, (3, 2), strict=True):
        read(backend, trace_id, count)


def read(backend: Backend, trace_id: str, count: int) -> list[StoredSpan]:
    """Return the spans of a trace once there are so many of them.

    Tempo shows none for a moment, while it moves a trace from memory to its log.
    """
    found: list[StoredSpan] = []

    def complete() -> bool:
        found[:] = backend.spans(trace_id)
        return len(found) == count

    wait_for(complete, f"{count} spans in the trace {trace_id}")
    return found


def bounds(spans: list[StoredSpan]) -> tuple[int, int]:
    """When the trace began and ended."""
    return min(span.start for span in spans), max(span.end for span in spans)


def markers(spans: list[StoredSpan]) -> list[StoredSpan]:
    """The markers among spans, by start."""
    return [span for span in spans if span.name.startswith("memtrace.attribution ")]
