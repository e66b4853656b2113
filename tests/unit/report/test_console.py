"""Verdicts on a terminal of any width, with or without colour."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType

from memtrace_otel.model import Verdict
from memtrace_otel.report.console import fact_tree, verdict_table
from memtrace_otel.report.summary import summarise
from tests.unit.report.conftest import Diagnosed

ATTACK = "[bold red]markup[/] [/nonsense] \x1b[2J\x1b]0;title\x07 <b>"


def printed(renderable: RenderableType, width: int, *, colour: bool = False) -> str:
    file = io.StringIO()
    system = "truecolor" if colour else None
    Console(file=file, width=width, color_system=system, force_terminal=colour).print(renderable)
    return file.getvalue()


def words(text: str) -> str:
    return " ".join(re.sub(r"[─│├└]", " ", text).split())


@pytest.mark.parametrize("width", [40, 70, 89, 90, 100, 120, 149, 150, 220])
def test_every_width_shows_everything_within_its_lines(diagnosed: Diagnosed, width: int) -> None:
    graph, verdicts = diagnosed
    verdict = verdicts["overwritten"]
    text = printed(verdict_table([summarise(verdict, graph)], planted=["update"]), width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    for part in (
        "dentist",
        "10:30",
        "update_memory",
        verdict.trace_id[:16],
        f"{verdict.confidence:.0%}",
        "4023",
        "planted",
    ):
        assert part in text


def test_the_columns_of_a_wide_terminal(diagnosed: Diagnosed) -> None:
    graph, verdicts = diagnosed
    rows = [summarise(verdict, graph) for verdict in verdicts.values()]
    plain = printed(verdict_table(rows), 180).splitlines()
    heading = next(line for line in plain if line.strip())
    names = ("question", "expected", "given", "failure type", "decisive operation", "conf.", "reason")
    assert re.split(r"\s{2,}", heading.strip()) == list(names)
    labelled = printed(
        verdict_table([summarise(verdict, graph) for verdict in verdicts.values()], planted=["x"] * len(verdicts)), 180
    )
    assert next(line for line in labelled.splitlines() if line.strip()).split()[-1] == "planted"


def test_what_was_planted_stands_beside_its_verdict(diagnosed: Diagnosed) -> None:
    graph, verdicts = diagnosed
    two = [verdicts["overwritten"], verdicts["deleted"]]
    text = words(printed(verdict_table([summarise(verdict, graph) for verdict in two], planted=["alpha", "omega"]), 70))
    assert text.index("dentist") < text.index("alpha") < text.index("allotment") < text.index("omega")


def test_the_table_can_do_without_the_graph(diagnosed: Diagnosed) -> None:
    _, verdicts = diagnosed
    text = printed(verdict_table([summarise(verdicts["deleted"])]), 100)
    assert "delete_memory" in text
    assert "pid" not in text


def test_a_verdict_without_operation_says_so(diagnosed: Diagnosed) -> None:
    graph, verdicts = diagnosed
    verdict = replace(verdicts["deleted"], trace_id="", span_id="", operation="", when=0)
    assert "none recorded" in printed(verdict_table([summarise(verdict, graph)]), 100)


def test_no_verdict_is_an_empty_table(diagnosed: Diagnosed) -> None:
    for width in (60, 100, 200):
        printed(verdict_table([]), width)


@pytest.mark.parametrize("width", [60, 100, 200])
def test_text_of_a_trace_is_neither_markup_nor_a_terminal_sequence(diagnosed: Diagnosed, width: int) -> None:
    graph, verdicts = diagnosed
    verdict = attacked(verdicts["overwritten"])
    for renderable in (verdict_table([summarise(verdict, graph)], planted=[ATTACK]), fact_tree(verdict, graph)):
        plain, coloured = printed(renderable, width), printed(renderable, width, colour=True)
        assert "\x1b" not in plain
        assert "\x1b[2J" not in coloured
        assert "\x1b]" not in coloured
        assert "[bold red]" in plain.replace("\n", "")


def attacked(verdict: Verdict) -> Verdict:
    failure = replace(verdict.failure, question=ATTACK, answer=ATTACK, expected=ATTACK)
    return replace(verdict, failure=failure, reason=ATTACK, operation=ATTACK, failure_type=ATTACK)


def test_the_tree_leads_from_message_to_loss_to_judgement(diagnosed: Diagnosed) -> None:
    graph, verdicts = diagnosed
    text = printed(fact_tree(verdicts["overwritten"], graph), 100)
    order = ["3 Mar 2026", "message", "memtrace.extract", "record v1", "11 Mar 2026", "record v2", "20 Mar 2026"]
    order += ["search_memory", "chat demo-model", "judged incorrect"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert "✗ Lost here: overwritten" in text
    assert max(cell_len(line) for line in text.splitlines()) <= 100


def test_the_tree_shows_what_was_lost_without_colour_too(diagnosed: Diagnosed) -> None:
    graph, verdicts = diagnosed
    assert "[-The key of the allotment shed is under the blue flower pot.-]" in printed(
        fact_tree(verdicts["deleted"], graph), 120
    )
    assert "not returned by search_memory" in printed(fact_tree(verdicts["not_retrieved"], graph), 100)
