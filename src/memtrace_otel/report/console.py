"""Verdicts on a terminal: a table, and the path of one fact as a tree. Nothing here prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text
from rich.tree import Tree

from memtrace_otel.graph import EvolutionGraph
from memtrace_otel.model import Verdict
from memtrace_otel.model.printable import one_line
from memtrace_otel.report.evolution import Evolution, FlowKind, Moment, Stage
from memtrace_otel.report.follow import Follower
from memtrace_otel.report.summary import VerdictSummary, summarise
from memtrace_otel.report.text import Mark, Paragraph
from memtrace_otel.report.times import day_and_clock
from memtrace_otel.report.wording import failure_class

WIDE, NARROW = 150, 90
"""Columns from which each value has a column of its own, and below which a table would be squashed."""

_OPERATION = 26
"""Room for a name, a date with time, a process and the beginning of a trace id, one below the other."""

_STYLES = {
    "extraction": "yellow",
    "update": "red",
    "deletion": "magenta",
    "retrieval": "blue",
    "response": "cyan",
    "judge": "green",
    "annotation": "green",
}
_MARKS = {Mark.LOST: "red strike", Mark.NEW: "green", Mark.KEPT: "bold", Mark.NOTE: "dim italic"}


def verdict_table(rows: Sequence[VerdictSummary], *, planted: Sequence[str] | None = None) -> RenderableType:
    """Return verdicts as a table, on a narrow terminal as one block for each.

    `planted`, parallel to the rows, adds a last column with what was really wrong; it is shown, never compared.
    """
    return _VerdictTable(list(rows), list(planted) if planted is not None else None)


def fact_tree(verdict: Verdict, graph: EvolutionGraph) -> Tree:
    """Return the path of the fact that a verdict is about, from what was said to the judgement, in time order."""
    evolution = Follower(graph).follow(verdict)
    tree = Tree(Text(summarise(verdict).question, "bold"), guide_style="dim")
    trace_id, branch = "", tree
    for moment in evolution.moments:
        if moment.trace_id != trace_id:
            trace_id = moment.trace_id
            branch = tree.add(
                Text(" · ".join(part for part in (day_and_clock(moment.time), moment.process) if part), "dim")
            )
        leaf = branch.add(_headline(moment))
        for paragraph in moment.paragraphs:
            leaf.add(_line(paragraph))
        for note in _missed(evolution, moment):
            leaf.add(Text(note, "red"))
    return tree


@dataclass(frozen=True, slots=True)
class _VerdictTable:
    """Chooses its form by the width it is given."""

    rows: list[VerdictSummary]
    planted: list[str] | None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.max_width >= WIDE:
            yield self._wide()
        elif options.max_width >= NARROW:
            yield self._stacked()
        else:
            yield from self._blocks()

    def _wide(self) -> Table:
        columns = (
            Column("question", ratio=5),
            Column("expected", ratio=4),
            Column("given", ratio=4),
            Column("failure type", no_wrap=True),
            Column("decisive operation", width=_OPERATION),
            Column("conf.", justify="right", no_wrap=True),
            Column("reason", ratio=9),
        )
        table = self._table(*columns)
        for index, row in enumerate(self.rows):
            texts = [Text(row.question, "bold"), Text(row.expected), Text(row.given), _type(row), _operation(row)]
            table.add_row(
                *texts, Text(f"{_percent(row)} {row.replay}".strip()), Text(_reason(row)), *self._planted(index)
            )
        return table

    def _stacked(self) -> Table:
        table = self._table(Column("question, answers and reason", ratio=1), Column("verdict", width=_OPERATION))
        for index, row in enumerate(self.rows):
            texts = _labelled([("expected", row.expected), ("given", row.given), ("reason", _reason(row))])
            verdict = Group(_verdict(row), _operation(row))
            table.add_row(Group(Text(row.question, "bold"), texts), verdict, *self._planted(index))
        return table

    def _table(self, *columns: Column) -> Table:
        last = [Column("planted", width=16)] if self.planted is not None else []
        return Table(*columns, *last, box=SIMPLE_HEAD, expand=True, show_lines=True)

    def _blocks(self) -> Iterator[RenderableType]:
        for index, row in enumerate(self.rows):
            yield Text(f"{index + 1}. ", "dim").append(row.question, "bold")
            lines: list[tuple[str, str | Text]] = [("expected", row.expected), ("given", row.given)]
            lines += [("verdict", _verdict(row)), ("operation", _operation(row)), ("reason", row.reason)]
            lines += [("next step", row.advice)] if row.advice else []
            lines += [("else", row.others)] if row.others else []
            lines += [("again", row.replayed)] if row.replayed else []
            lines += [("planted", text) for text in self._planted(index)]
            yield Padding(_labelled(lines), (0, 0, 1, 3))

    def _planted(self, index: int) -> list[Text]:
        if self.planted is None:
            return []
        return [Text(one_line(self.planted[index]) if index < len(self.planted) else "")]


def _type(row: VerdictSummary) -> Text:
    return Text(row.failure_type, f"bold {_STYLES.get(failure_class(row.failure_type), 'white')}")


def _verdict(row: VerdictSummary) -> Text:
    return Text(" ").join((_type(row), Text(_percent(row), "dim"), Text(row.replay, "dim")))


def _reason(row: VerdictSummary) -> str:
    added = (f"Else: {row.others}." if row.others else "", f"Run again: {row.replayed}" if row.replayed else "")
    return " ".join(filter(None, (row.reason, row.advice, *added)))


def _percent(row: VerdictSummary) -> str:
    return f"{row.confidence:.0%}"


def _operation(row: VerdictSummary) -> Text:
    if not row.operation:
        return Text("none recorded", "dim")
    lines = [Text(row.operation, "bold")]
    lines += [Text(part, "dim") for part in (row.when, row.process, f"trace {row.trace_id[:16]}…") if part]
    return Text("\n").join(lines)


def _labelled(lines: Sequence[tuple[str, str | Text]]) -> Table:
    """Names in a column of their own, texts beside them."""
    grid = Table.grid(Column(style="dim", no_wrap=True), Column(ratio=1), padding=(0, 1), expand=True)
    for name, text in lines:
        grid.add_row(name, Text(text) if isinstance(text, str) else text)
    return grid


def _headline(moment: Moment) -> Text:
    title = Text(moment.title if moment.stage is not Stage.RECORD else f"record {moment.title}", "bold")
    if moment.badge:
        title.append(f"  ({moment.badge})", "dim not bold")
    if moment.flag:
        title.append(f"  ✗ {moment.flag}", "bold red")
    return title


def _line(paragraph: Paragraph) -> Text:
    """One paragraph; what was lost is bracketed as well, for terminals that cannot strike through."""
    runs = [
        Text(f"[-{run.text}-]" if run.mark is Mark.LOST else run.text, _MARKS.get(run.mark, "")) for run in paragraph
    ]
    return Text(" ").join(Text(one_line(run.plain), run.style) for run in runs)


def _missed(evolution: Evolution, moment: Moment) -> list[str]:
    names = {other.key: other.title for other in evolution.moments}
    flows = [f for f in evolution.flows if f.kind is FlowKind.MISSED and f.source == moment.key]
    return [f"{flow.label} by {names[flow.target]}" for flow in flows]
