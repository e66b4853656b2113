"""A verdict counts only when it names the type and the operation that the script really spoilt."""

import json
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from memtrace_otel.demo.planted import Planted, compare, read_planted
from memtrace_otel.demo.script import load_faults
from memtrace_otel.model import Failure, OperationSpan, Variable, Verdict


class Spans:
    """A trace source over a list."""

    def __init__(self, *spans: OperationSpan) -> None:
        self._spans = sorted(spans, key=lambda span: span.start)

    def trace(self, trace_id: str) -> list[OperationSpan]:
        return [span for span in self._spans if span.trace_id == trace_id]

    def spans(
        self,
        *,
        scope: str | None = None,
        kinds: Collection[str] = (),
        since: int | None = None,
        until: int | None = None,
    ) -> Iterator[OperationSpan]:
        return (span for span in self._spans if span.kind in kinds and span.start >= (since or 0))

    def readers(self, origin: str, *, kinds: Collection[str] = ()) -> list[OperationSpan]:
        return []

    def trace_ids(self, *, scope: str | None = None) -> list[str]:
        return []


def span(trace: str, id: str, kind: str, start: int, memory: str = "") -> OperationSpan:
    outputs = (Variable(f"memory:{memory}"),) if memory else ()
    return OperationSpan(trace, id, kind=kind, start=start, end=start + 10, outputs=outputs)


ANSWER = span("asked", "answer", "respond", 900)
SOURCE = Spans(
    span("day1", "extract1", "extract", 100),
    span("day2", "extract2", "extract", 200),
    span("day2", "update2", "update", 215, "m"),
    span("day2", "update-other", "update", 216, "n"),
    span("day3", "update3", "update", 315, "m"),
    span("day3", "delete3", "delete", 330, "m"),
    span("asked", "search", "retrieve", 890),
    ANSWER,
    span("asked", "judge", "judge", 920),
    span("other", "search", "retrieve", 990),
)


def verdict(type: str, trace: str = "", id: str = "", question: str = "Which pier?") -> Verdict:
    return Verdict(Failure(ANSWER, question=question), type, trace, id, "", "", "", 0.9, "because")


@pytest.mark.parametrize(
    ("planted", "right", "wrong"),
    [
        (Planted("extraction", "Which pier?", "", time=205), ("day2", "extract2"), ("day1", "extract1")),
        (Planted("update", "Which pier?", "", time=205, memory="m"), ("day2", "update2"), ("day3", "update3")),
        (Planted("update", "Which pier?", "", time=205, memory="m"), ("day2", "update2"), ("day2", "update-other")),
        (Planted("deletion", "Which pier?", "", time=320, memory="m"), ("day3", "delete3"), ("day3", "update3")),
        (Planted("retrieval", "Which pier?", ""), ("asked", "search"), ("other", "search")),
        (Planted("response", "Which pier?", ""), ("asked", "answer"), ("asked", "search")),
        (Planted("judge", "Which pier?", ""), ("asked", "judge"), ("asked", "answer")),
        (Planted("judge", "Which pier?", ""), ("", ""), ("other", "judge")),
        (Planted("annotation", "Which pier?", ""), ("", ""), ("asked", "search")),
        (Planted("annotation", "Which pier?", ""), ("asked", "judge"), ("day1", "extract1")),
        (Planted("update", "Which pier?", "", time=205, memory="m"), ("day2", "update2"), ("", "")),
        (Planted("response", "Which pier?", ""), ("asked", "answer"), ("asked", "unknown")),
    ],
)
def test_the_operation_must_be_the_one_that_was_spoilt(
    planted: Planted, right: tuple[str, str], wrong: tuple[str, str]
) -> None:
    (found,) = compare([verdict(planted.failure_type, *right)], [planted], SOURCE)
    assert found.matches
    (missed,) = compare([verdict(planted.failure_type, *wrong)], [planted], SOURCE)
    assert missed.type_matches
    assert not missed.operation_matches
    assert not missed.matches


def test_the_type_must_match() -> None:
    (row,) = compare([verdict("retrieval", "asked", "answer")], [Planted("response", "Which pier?", "")], SOURCE)
    assert row.operation_matches
    assert not row.matches


def test_questions_join_verdicts_and_faults() -> None:
    verdicts = [verdict("response", "asked", "answer", "which  PIER?"), verdict("judge", question="Which day?")]
    rows = compare(verdicts, [Planted("response", "Which pier?", ""), Planted("update", "Which hour?", "")], SOURCE)
    assert [(row.question, row.verdict is None, row.planted is None, row.matches) for row in rows] == [
        ("Which pier?", False, False, True),
        ("Which hour?", True, False, False),
        ("Which day?", False, True, False),
    ]


def test_planted_faults_take_time_and_record_from_the_journal(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    journal.write_text(json.dumps({"turn": "5.1", "operation": "update", "memory": "m", "time": 7}) + "\n")
    planted = read_planted(journal)
    assert len(planted) == len(load_faults())
    assert [(p.failure_type, p.question) for p in planted if (p.time, p.memory) == (7, "m")] == [
        ("update", "At what time is my dentist appointment with Dr. Okafor?")
    ]
