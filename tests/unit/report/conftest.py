"""Every story of `stories`, diagnosed once."""

from __future__ import annotations

import pytest

from memtrace_otel.graph import EvolutionGraph
from memtrace_otel.model import Verdict
from tests.unit.report.stories import ALL, Story

Diagnosed = tuple[EvolutionGraph, dict[str, Verdict]]


@pytest.fixture(scope="session")
def diagnosed() -> Diagnosed:
    """The graph of all stories, and the verdict on each by the name of the story."""
    return tell_all(captured=True)


@pytest.fixture(scope="session")
def uncaptured() -> Diagnosed:
    """The same with content capture off."""
    return tell_all(captured=False)


def tell_all(*, captured: bool) -> Diagnosed:
    story = Story(captured=captured)
    answers = {}
    for number, tell in enumerate(ALL):
        story.scope = f"{number:016x}"
        tell(story)
        answers[story.spans[-2].origin] = tell.__name__  # the last two spans are the answer and its judgement
    graph, verdicts = story.diagnosed()
    return graph, {answers[verdict.failure.answer_span.origin]: verdict for verdict in verdicts}
