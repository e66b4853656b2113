"""What the decoding process counts in spans, and that the server reads what it tells."""

from __future__ import annotations

from memtrace_otel.model import Attributed
from memtrace_otel.otlp.decode import IndexedFields
from memtrace_otel.semconv import ATTRIBUTION_SCOPE
from memtrace_otel.serve.progress import Progress, Seen, seen_in
from memtrace_otel.sources import NewSpan

PAIRS = frozenset({("mem0", "assistant"), ("", 'a "b"\n')})
TOLD = Attributed("update", "mem0", "assistant", False, 0.25, "a" * 32, "b" * 16)


def span(kind: str, service: str = "assistant", by: str = "app", **fields: object) -> NewSpan:
    told = (("pass", None),) if fields.pop("judged", False) else ()
    read = IndexedFields(kind, "", set(), told, system="mem0", **fields)  # type: ignore[arg-type]
    return NewSpan("a" * 32, "1" * 16, "span", 1, by, read, service)


def test_what_is_told_is_read() -> None:
    told = Progress(3, 1, 2, 1, (TOLD,), seen_in([span("respond"), span("respond", 'a "b"\n')]), answering=PAIRS)
    assert Progress.read(told.line().encode()) == told
    assert "\n" not in told.line()


def test_nothing_done_is_nothing_to_tell() -> None:
    assert not Progress()
    assert all(
        (
            Progress(1),
            Progress(quarantined=1),
            Progress(verdicts=1),
            Progress(errors=1),
            Progress(answering=PAIRS),
            Progress(damaged=1),
        )
    )


def test_operations_and_answers_are_counted_once_by_system_and_service() -> None:
    seen = seen_in(
        [
            span("respond"),
            span("respond", part=1),
            span("retrieve", incomplete=frozenset({"unknown_origin", "truncated"})),
            span("judge", judged=True, service="judge"),
            span("respond", by=ATTRIBUTION_SCOPE),
            span(""),
        ]
    )
    assert seen == {
        (Seen.OPERATIONS, "mem0", "assistant"): 2,
        (Seen.OPERATIONS, "mem0", "judge"): 1,
        (Seen.ANSWERS, "mem0", "assistant"): 1,
        (Seen.EVALUATIONS, "mem0", "judge"): 1,
        (Seen.UNKNOWN_ORIGINS, "mem0", "assistant"): 1,
    }


def test_what_an_application_lost_is_counted_in_spans_and_is_no_operation() -> None:
    assert seen_in([span("other", lost=7), span("other", lost=2)]) == {(Seen.LOST_SPANS, "mem0", "assistant"): 9}
