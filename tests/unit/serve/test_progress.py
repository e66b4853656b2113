"""What the decoding process counts in spans, and that the server reads the reports of its processes."""

from __future__ import annotations

from dataclasses import replace

from memtrace_otel.model import OperationSpan
from memtrace_otel.semconv import ATTRIBUTION_SCOPE, EVALUATION_LABEL, LOST
from memtrace_otel.serve.progress import Progress, Seen, seen_in
from tests.unit.pipeline.test_metrics import DONE

PAIRS = frozenset({("mem0", "assistant"), ("", 'a "b"\n')})
ANSWER = OperationSpan(
    "a" * 32, "1" * 16, kind="respond", system="mem0", start=1, resource={"service.name": "assistant"}
)
ODD = replace(ANSWER, resource={"service.name": 'a "b"\n'})


def test_a_report_is_read_as_it_was_written() -> None:
    report = Progress(3, 1, 2, 1, (DONE,), seen_in([ANSWER, ODD]), answering=PAIRS)
    assert Progress.read(report.line().encode()) == report
    assert "\n" not in report.line()


def test_a_report_without_numbers_is_empty() -> None:
    assert not Progress()
    reports = [Progress(1), Progress(quarantined=1), Progress(verdicts=1), Progress(errors=1), Progress(damaged=1)]
    assert all((*reports, Progress(answering=PAIRS), Progress(failed_sends=1)))


def test_operations_and_answers_are_counted_once_by_system_and_service() -> None:
    judge = replace(ANSWER, kind="judge", resource={"service.name": "judge"}, attributes={EVALUATION_LABEL: "pass"})
    seen = seen_in(
        [
            ANSWER,
            replace(ANSWER, part=1),
            replace(ANSWER, kind="retrieve", incomplete=("unknown_origin", "truncated")),
            judge,
            replace(ANSWER, instrumentation_scope=ATTRIBUTION_SCOPE),
            replace(ANSWER, kind=""),
        ]
    )
    assert seen == {
        (Seen.OPERATIONS, "mem0", "assistant"): 2,
        (Seen.OPERATIONS, "mem0", "judge"): 1,
        (Seen.ANSWERS, "mem0", "assistant"): 1,
        (Seen.EVALUATIONS, "mem0", "judge"): 1,
        (Seen.UNKNOWN_ORIGINS, "mem0", "assistant"): 1,
    }


def test_spans_that_an_application_lost_are_counted_and_are_no_operations() -> None:
    lost = replace(ANSWER, kind="other")
    seen = seen_in([replace(lost, attributes={LOST: 7}), replace(lost, attributes={LOST: 2})])
    assert seen == {(Seen.LOST_SPANS, "mem0", "assistant"): 9}
