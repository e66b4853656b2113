"""Kinds of failures seen in real programs: corrections in other words, owners, forms of answers, lost contents."""

from __future__ import annotations

import pytest

from memtrace_otel.semconv import FailureType

from .program import Program


@pytest.mark.parametrize(
    ("first", "later", "question", "given", "expected"),
    [
        ("I live in Lisbon.", "I have moved to Porto for good.", "In which city do I live?", "Lisbon", "Porto"),
        ("Book room 101 for the meeting.", "Make it 245 instead.", "Where is the meeting?", "Room 101", "Room 245"),
        ("Wir treffen uns am Dienstag.", "Donnerstag passt besser.", "Wann treffen wir uns?", "Dienstag", "Donnerstag"),
    ],
)
@pytest.mark.parametrize("found", [True, False], ids=["both found", "only the old one found"])
def test_a_correction_in_other_words_acquits_the_expected_answer(
    first: str, later: str, question: str, given: str, expected: str, found: bool
) -> None:
    program = Program()
    old, new = program.tell(first, first), program.tell(later, later)
    verdict = program.ask(question, given, *old, *(new if found else ()), expected=expected)
    assert verdict.failure_type in ({FailureType.RESPONSE} if found else {FailureType.RETRIEVAL, FailureType.UPDATE})


def test_an_answer_that_nobody_told_is_wrongly_expected() -> None:
    program = Program()
    hits = program.tell("I live in Lisbon.", "Lives in Lisbon")
    assert program.ask("Where do I live?", "Lisbon", *hits, expected="Porto").failure_type == FailureType.ANNOTATION
