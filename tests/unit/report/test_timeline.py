"""The picture as layout: nothing overlaps, nothing leaves its box, time runs to the right."""

from __future__ import annotations

import re
from itertools import combinations

import pytest

from memtrace_otel.report.arrows import Box, arrow
from memtrace_otel.report.evolution import Evolution, Flow, FlowKind, Moment, Stage
from memtrace_otel.report.follow import Follower
from memtrace_otel.report.grid import Cell, place
from memtrace_otel.report.text import Mark, Run, width
from memtrace_otel.report.timeline import TEXT, Timeline, lay_out
from tests.unit.report.conftest import Diagnosed
from tests.unit.report.stories import ALL, DAY, FIRST_DAY

LONG = "A very long text that goes on and on, " * 40 + "x" * 300
HOSTILE = (
    "",
    " \n ",
    LONG,
    "Donaudampfschifffahrtsgesellschaftskapitän" * 9,
    "記憶" * 200,
    "👩‍👩‍👧‍👦" * 60,
    "a\u0300" * 500,
)


def story(versions: int, text: str, records: int = 1) -> Evolution:
    """A history of `versions` per record, all read by one search."""
    moments, flows = [], []
    for row in range(records):
        for number in range(versions):
            key, time = f"v{row}.{number}", FIRST_DAY + number * DAY
            badge = "superseded" if number < versions - 1 else ""
            runs = ((Run(text), Run(text, Mark.LOST), Run(text, Mark.NEW)),)
            moments.append(
                Moment(key, Stage.RECORD, text, runs, time, f"t{number}", row=row, badge=badge, process=text)
            )
            if number:
                flows.append(Flow(f"v{row}.{number - 1}", key, FlowKind.SUPERSEDES))
        flows.append(
            Flow(f"v{row}.{versions - 1}", "search", FlowKind.READ if row else FlowKind.MISSED, "not returned")
        )
    time = FIRST_DAY + versions * DAY
    said = ((Run(text),), (Run(text, Mark.KEPT),))
    for key, stage in (("question", Stage.QUESTION), ("search", Stage.SEARCH), ("answer", Stage.ANSWER)):
        moments.append(Moment(key, stage, text, said, time, "ask", flag="Went wrong here: misjudged"))
    flows += [Flow("question", "search"), Flow("search", "answer"), Flow("question", "answer")]
    return Evolution(tuple(moments), tuple(flows), tuple(f"memory:{row}" for row in range(records)))


def check(picture: Timeline) -> None:
    for one, other in combinations([node.box for node in picture.nodes], 2):
        apart = one.right <= other.x or other.right <= one.x or one.bottom <= other.y or other.bottom <= one.y
        assert apart, (one, other)
    for node in picture.nodes:
        assert node.box.x >= 0
        assert node.box.right <= picture.width
        assert any(lane.y <= node.box.y and node.box.bottom <= lane.y + lane.height for lane in picture.lanes)
        for line in node.lines:
            bold = (Mark.KEPT, Mark.LOST, Mark.NEW)
            used = sum(width(run.text, TEXT, bold=run.mark in bold) for run in line.runs)
            assert line.x + used <= node.box.right
            assert node.box.y < line.y < node.box.bottom
    for edge in picture.edges:
        numbers = [float(number) for number in re.findall(r"-?\d+\.\d", edge.path)]
        assert all(0 <= x <= picture.width for x in numbers[::2])
        assert all(0 <= y <= picture.height for y in numbers[1::2])


@pytest.mark.parametrize("tell", [tell.__name__ for tell in ALL])
def test_every_story_fits(diagnosed: Diagnosed, uncaptured: Diagnosed, tell: str) -> None:
    for graph, verdicts in (diagnosed, uncaptured):
        check(lay_out(Follower(graph).follow(verdicts[tell])))


@pytest.mark.parametrize("versions", [1, 5, 12])
@pytest.mark.parametrize("text", HOSTILE)
def test_any_text_and_any_number_of_versions_fit(versions: int, text: str) -> None:
    check(lay_out(story(versions, text)))
    check(lay_out(story(versions, text, records=3)))


def test_columns_follow_time_and_a_trace_stays_together(diagnosed: Diagnosed) -> None:
    graph, verdicts = diagnosed
    evolution = Follower(graph).follow(verdicts["often_updated"])
    grid = place(evolution)
    assert [group.start for group in grid.groups] == sorted(group.start for group in grid.groups)
    assert len({group.trace_id for group in grid.groups}) == len(grid.groups) == 5
    for flow in evolution.flows:
        assert grid.cells[flow.source].column <= grid.cells[flow.target].column


def test_two_versions_in_one_trace_have_columns_of_their_own() -> None:
    moments = tuple(Moment(key, Stage.RECORD, key, (), 1, "one trace") for key in "abc")
    cells = place(Evolution(moments, ())).cells
    assert [cells[key] for key in "abc"] == [Cell(2, 0), Cell(2, 1), Cell(2, 2)]


def test_gaps_of_days_are_marked(diagnosed: Diagnosed) -> None:
    graph, verdicts = diagnosed
    picture = lay_out(Follower(graph).follow(verdicts["overwritten"]))
    assert [gap.label for gap in picture.gaps] == ["8 days", "9 days"]
    assert [heading.title for heading in picture.headings] == ["Tue 3 Mar 2026", "Wed 11 Mar 2026", "Fri 20 Mar 2026"]
    assert picture.headings[0].place == "09:00 · assistant, pid 4015"


def test_only_the_missed_flow_into_the_decisive_box_is_a_lost_one(diagnosed: Diagnosed) -> None:
    graph, verdicts = diagnosed
    edges = lay_out(Follower(graph).follow(verdicts["not_retrieved"])).edges
    assert [edge.label for edge in edges if edge.lost] == ["not returned"]


def test_an_evolution_without_moments_is_an_empty_picture() -> None:
    picture = lay_out(Evolution((), ()))
    assert (picture.width, picture.nodes, picture.lanes) == (0, (), ())


def test_an_arrow_to_a_covered_box_goes_through_the_gap_beside_it() -> None:
    source, target = Box(0, 200, 100, 50), Box(200, 0, 100, 50)
    free = arrow(source, target, Cell(2, 0), Cell(0, 1), blocked=False)
    covered = arrow(source, target, Cell(2, 0), Cell(0, 1), blocked=True)
    assert free.path.endswith("L250.0 52.0")
    assert "180.0" in covered.path
    assert covered.path.endswith("L198.0 34.0")
