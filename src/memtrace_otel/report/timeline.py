"""The picture of an evolution as plain layout: boxes, arrows, lanes and dates with their coordinates, in pixels."""

from __future__ import annotations

from dataclasses import dataclass

from memtrace_otel.report import times
from memtrace_otel.report.arrows import Box, arrow
from memtrace_otel.report.evolution import Evolution, Flow, FlowKind, Moment, Stage
from memtrace_otel.report.grid import CONVERSATION, PROCESSING, RECORDS, Grid, place
from memtrace_otel.report.text import Mark, Paragraph, Run, width, wrap

TEXT, SMALL = 12.5, 11.0
LINE = 16.5
PADDING = 11
FLAG = 23
TITLE = 17
HEADER = 50
LANE_LABEL = 24
LANE_FOOT = 16
LANE_GAP = 10
COLUMN_GAP, GROUP_GAP = 36, 64
MARGIN = 14
_NODE_WIDTHS = {1: 300, 2: 290, 3: 276, 4: 246, 5: 214}
_NARROWEST = 180


@dataclass(frozen=True, slots=True)
class TextLine:
    """A line of marked text; `y` is its baseline."""

    x: float
    y: float
    runs: Paragraph


@dataclass(frozen=True, slots=True)
class Node:
    """A moment as a box; `flag` is its flag, shortened where the box is narrow."""

    moment: Moment
    box: Box
    flag: str
    title: str
    title_y: float
    lines: tuple[TextLine, ...]


@dataclass(frozen=True, slots=True)
class Edge:
    """A flow as an SVG path; the label, if any, is centred at (`x`, `y`)."""

    kind: FlowKind
    path: str
    label: str
    x: float
    y: float
    lost: bool


@dataclass(frozen=True, slots=True)
class Lane:
    """A horizontal band with its name."""

    label: str
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Heading:
    """Day and time over the columns of one trace, and the process below."""

    x: float
    title: str
    place: str


@dataclass(frozen=True, slots=True)
class Gap:
    """Time that passed between two traces; `label` is '' when it is shorter than a second."""

    x: float
    label: str
    width: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """The whole picture."""

    width: float
    height: float
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    lanes: tuple[Lane, ...]
    headings: tuple[Heading, ...]
    gaps: tuple[Gap, ...]


def lay_out(evolution: Evolution) -> Timeline:
    """Return the picture of an evolution. Boxes never overlap; texts are cut to their boxes."""
    grid = place(evolution)
    room = _NODE_WIDTHS.get(grid.columns, _NARROWEST)
    lefts = _lefts(grid, room)
    heights = _row_heights(evolution, grid, room)
    tops, y = [0.0] * grid.rows, float(HEADER)
    lanes: list[Lane] = []
    for row in range(grid.rows):
        height = LANE_LABEL + heights[row] + LANE_FOOT
        lanes.append(Lane(_lane_name(row, evolution), y, height))
        tops[row] = y + LANE_LABEL
        y += height + LANE_GAP
    nodes: dict[str, Node] = {}
    for moment in evolution.moments:
        cell = grid.cells[moment.key]
        nodes[moment.key] = _node(moment, lefts[cell.column], tops[cell.row], room)
    return Timeline(
        width=lefts[-1] + room + MARGIN if lefts else 0,
        height=y - LANE_GAP + 2,
        nodes=tuple(nodes.values()),
        edges=_edges(evolution, grid, nodes),
        lanes=tuple(lanes),
        headings=_headings(grid, lefts, room),
        gaps=_gaps(grid, lefts),
    )


def _headings(grid: Grid, lefts: list[float], room: float) -> tuple[Heading, ...]:
    """Day and time over each group; what all happened on one day is dated once."""
    one_day = len({times.day(group.start) for group in grid.groups}) == 1
    headings: list[Heading] = []
    for number, group in enumerate(grid.groups):
        day, clock = times.day(group.start), times.clock(group.start)
        title, second = (clock if number else f"{day} {clock}", "") if one_day else (day, clock[:-3])
        place = " · ".join(part for part in (second, group.process) if part)
        cut = wrap((Run(place),), lefts[group.last] + room - lefts[group.first], SMALL, 1)
        headings.append(Heading(lefts[group.first], title.strip() or "time unknown", cut[0][0].text if cut else ""))
    return tuple(headings)


def _lefts(grid: Grid, room: float) -> list[float]:
    starts = {group.first for group in grid.groups}
    lefts: list[float] = []
    for column in range(grid.columns):
        gap = GROUP_GAP if column in starts else COLUMN_GAP
        lefts.append(lefts[-1] + room + gap if lefts else MARGIN)
    return lefts


def _row_heights(evolution: Evolution, grid: Grid, room: float) -> list[float]:
    heights = [0.0] * grid.rows
    for moment in evolution.moments:
        row = grid.cells[moment.key].row
        heights[row] = max(heights[row], _height(moment, len(_lines(moment, room))))
    return heights


def _lines(moment: Moment, room: float) -> list[Paragraph]:
    inside = room - 2 * PADDING
    if len(moment.paragraphs) == 1:
        return wrap(moment.paragraphs[0], inside, TEXT, 7 if moment.flag else 5)
    listed = 1 if moment.stage is Stage.SEARCH else 2
    return [line for p in moment.paragraphs for line in wrap(p, inside, TEXT, listed + _matters(p))]


def _matters(paragraph: Paragraph) -> bool:
    """Of several paragraphs, those that the story is about get more room."""
    return any(run.mark in (Mark.KEPT, Mark.LOST) for run in paragraph)


def _height(moment: Moment, lines: int) -> float:
    return (FLAG if moment.flag else 0) + PADDING + TITLE + lines * LINE + PADDING - 4


def _node(moment: Moment, left: float, top: float, room: float) -> Node:
    lines = _lines(moment, room)
    box = Box(left, top, room, _height(moment, len(lines)))
    title_y = top + (FLAG if moment.flag else 0) + PADDING + 8
    badge = width(moment.badge, SMALL) + 14 if moment.badge else 0.0
    title = wrap((Run(moment.title, Mark.KEPT),), room - 2 * PADDING - badge, SMALL, 1)
    return Node(
        moment=moment,
        box=box,
        flag=_flag(moment.flag, room - 1.5 * PADDING),
        title=title[0][0].text if title else "",
        title_y=title_y,
        lines=tuple(TextLine(left + PADDING, title_y + 19 + i * LINE, line) for i, line in enumerate(lines)),
    )


def _flag(flag: str, room: float) -> str:
    short = flag.rpartition(": ")[2].capitalize()
    return f"✗ {flag if width(f'✗ {flag}', SMALL, bold=True) <= room else short}" if flag else ""


def _lane_name(row: int, evolution: Evolution) -> str:
    if row == CONVERSATION:
        return "Conversation"
    if row == PROCESSING:
        return "Operations"
    index = row - RECORDS
    return f"Stored record {index + 1}" if len(evolution.records) > 1 else "Stored record"


def _gaps(grid: Grid, lefts: list[float]) -> tuple[Gap, ...]:
    gaps: list[Gap] = []
    for before, after in zip(grid.groups, grid.groups[1:], strict=False):
        label = times.distance(before.end, after.start)
        gaps.append(Gap(lefts[after.first] - GROUP_GAP / 2, label, width(label, SMALL) + 14))
    return tuple(gaps)


def _edges(evolution: Evolution, grid: Grid, nodes: dict[str, Node]) -> tuple[Edge, ...]:
    occupied = {(cell.row, cell.column) for cell in grid.cells.values()}
    arriving: dict[str, list[Flow]] = {}
    for flow in evolution.flows:
        arriving.setdefault(flow.target, []).append(flow)
    edges: list[Edge] = []
    for flow in evolution.flows:
        source, target = nodes[flow.source], nodes[flow.target]
        among = arriving[flow.target]
        here, there = grid.cells[flow.source], grid.cells[flow.target]
        blocked = any((row, there.column) in occupied for row in range(there.row + 1, here.row + 1))
        drawn = arrow(source.box, target.box, here, there, blocked=blocked, order=among.index(flow), of=len(among))
        lost = flow.kind is FlowKind.MISSED and bool(target.moment.flag)
        edges.append(Edge(flow.kind, drawn.path, flow.label, drawn.x, drawn.y, lost))
    return tuple(edges)
