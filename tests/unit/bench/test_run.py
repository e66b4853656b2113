"""Verdicts on every story of the benchmark: a guess is never complete."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from memtrace_otel.attribution.ranking import DECISIVE
from memtrace_otel.bench.generate import Plan, make_case
from memtrace_otel.bench.run import Mode, attributed
from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import decode_request
from memtrace_otel.semconv import FailureType

PLAN = Plan(5, 1, messages=(12, 14))


@pytest.fixture(scope="module")
def stories() -> list[list[OperationSpan]]:
    """Each fault in each wording that it has."""
    return [list(decode_request(make_case(PLAN, number).request)) for number in range(len(PLAN.combinations()))]


@pytest.mark.parametrize("mode", [Mode(), Mode(evidence=True), Mode(expected=False)], ids=lambda mode: mode.name)
def test_a_guess_is_never_complete(stories: list[list[OperationSpan]], mode: Mode) -> None:
    said = list(verdicts(stories, mode))
    guesses = [verdict for verdict in said if verdict["confidence"] < DECISIVE]
    tied = [verdict for verdict in said if explained_as_well(verdict)]
    assert guesses or mode.evidence
    assert tied or not mode.expected
    assert [verdict["reason"] for verdict in (*guesses, *tied) if verdict["complete"]] == []
    for verdict in guesses:
        assert verdict["failure_type"] == FailureType.UNKNOWN or "This is a guess without" in verdict["reason"]


def test_a_loss_that_words_show_is_complete(stories: list[list[OperationSpan]]) -> None:
    said = list(verdicts(stories, Mode()))
    assert sum(verdict["complete"] for verdict in said) > len(said) / 2


@pytest.mark.parametrize(
    ("seed", "number", "type"),
    [
        (3, 130, FailureType.EXTRACTION),  # E2: a record about something else was stored on the expected day
        (11, 92, FailureType.ANNOTATION),  # N1: a message about something else happened on the expected day
        (3, 83, FailureType.RETRIEVAL),  # S1: a German sentence gives the day of another user
    ],
)
def test_the_day_of_a_text_about_something_else_tells_no_time(seed: int, number: int, type: FailureType) -> None:
    spans = list(decode_request(make_case(Plan(seed, number + 1), number).request))
    assert [verdict["failure_type"] for verdict in verdicts([spans], Mode())] == [type]


def verdicts(stories: list[list[OperationSpan]], mode: Mode) -> Iterator[dict[str, Any]]:
    for spans in stories:
        yield from attributed(spans, mode)["verdicts"]


def explained_as_well(verdict: dict[str, Any]) -> bool:
    """The reason names another type that explains the answer as well."""
    return any(f"of type {type} explains" in verdict["reason"] for type in FailureType)
