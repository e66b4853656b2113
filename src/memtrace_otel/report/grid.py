"""Where each moment of an evolution goes: rows are lanes, columns are time, one group of columns per trace."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from memtrace_otel.report.evolution import Evolution, Flow, Moment, Stage

CONVERSATION, PROCESSING, RECORDS = 0, 1, 2
"""Rows: what people said and read; what the memory system did; then one row per record."""

_ROWS = {
    Stage.MESSAGE: CONVERSATION,
    Stage.QUESTION: CONVERSATION,
    Stage.ANSWER: CONVERSATION,
    Stage.PROCESSING: PROCESSING,
    Stage.SEARCH: PROCESSING,
    Stage.JUDGEMENT: PROCESSING,
}


@dataclass(frozen=True, slots=True)
class Cell:
    """Place of one moment, counted from 0."""

    row: int
    column: int


@dataclass(frozen=True, slots=True)
class Group:
    """Columns `first`..`last` belong to one trace."""

    first: int
    last: int
    trace_id: str
    start: int
    end: int
    process: str


@dataclass(frozen=True, slots=True)
class Grid:
    """Cells by key of the moment, and the groups from left to right."""

    cells: dict[str, Cell]
    groups: tuple[Group, ...]

    @property
    def columns(self) -> int:
        """Number of columns."""
        return self.groups[-1].last + 1 if self.groups else 0

    @property
    def rows(self) -> int:
        """Number of rows up to the lowest in use."""
        return max((cell.row for cell in self.cells.values()), default=-1) + 1


def row_of(moment: Moment) -> int:
    """Return the row of a moment."""
    return _ROWS.get(moment.stage, RECORDS + moment.row)


def place(evolution: Evolution) -> Grid:
    """Give every moment a cell of its own, right of what it follows from.

    What flows down a lane may share a column with its source when nothing lies between; all else starts a new column.
    """
    before: dict[str, list[Flow]] = defaultdict(list)
    for flow in evolution.flows:
        before[flow.target].append(flow)
    traces: dict[str, list[Moment]] = defaultdict(list)
    for moment in evolution.moments:
        traces[moment.trace_id].append(moment)
    cells: dict[str, Cell] = {}
    groups: list[Group] = []
    for trace_id, moments in traces.items():
        first = groups[-1].last + 1 if groups else 0
        taken: set[tuple[int, int]] = set()
        for moment in moments:
            row, column = row_of(moment), first
            for flow in before[moment.key]:
                source = cells.get(flow.source)
                if source is not None:
                    column = max(column, source.column + (source.row >= row or source.column < first))
            column = max(column, first)
            while any((r, column) in taken for r in _passed(row, column, before[moment.key], cells)):
                column += 1
            taken.add((row, column))
            cells[moment.key] = Cell(row, column)
        last = max(cells[m.key].column for m in moments)
        times = [m.time for m in moments if m.time]
        process = next((m.process for m in moments if m.process), "")
        groups.append(Group(first, last, trace_id, min(times, default=0), max(times, default=0), process))
    return Grid(cells, tuple(groups))


def _passed(row: int, column: int, flows: list[Flow], cells: dict[str, Cell]) -> range:
    """Rows that must be free: the moment's own, and those its arrow from above passes in the same column."""
    above = [cells[f.source].row for f in flows if f.source in cells and cells[f.source].column == column]
    return range(min([r + 1 for r in above if r < row], default=row), row + 1)
