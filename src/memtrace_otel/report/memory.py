"""What a memory held and how it changed, as rows for a terminal or as JSON. Nothing here prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from memtrace_otel.graph import Change, EvolutionGraph, NodeKey, OperationKey, Read, VersionKey
from memtrace_otel.graph.export import node_id
from memtrace_otel.model.printable import one_line
from memtrace_otel.report.times import day_and_clock

_HIDDEN = frozenset({"id", "time", "operation"})
"""For programs; people get the time in words and the operation's name, and where there is room its span."""


def version_row(graph: EvolutionGraph, version: VersionKey) -> dict[str, Any]:
    """Return one version: id, ref, time (ns), when, by (name), operation (origin or ''), content, deleted, readers."""
    span = graph.operation(version.origin) if version.origin else None
    return {
        "id": node_id(version),
        "ref": version.ref,
        "time": graph.time_of(version),
        "when": day_and_clock(graph.time_of(version)),
        "by": span.name if span else "",
        "operation": version.origin,
        "content": graph.content(version),
        "deleted": graph.is_tombstone(version),
        "readers": [read.operation.origin for read in graph.readers(version)],
    }


def change_row(graph: EvolutionGraph, change: Change) -> dict[str, Any]:
    """Return one change: change, ref, time (ns), when, by (name), operation (origin or ''), before, after (texts)."""
    operation = change.operation or OperationKey("")
    span = graph.operation(operation.origin)
    return {
        "change": str(change.kind),
        "ref": change.ref,
        "time": graph.time_of(change.after),
        "when": day_and_clock(graph.time_of(change.after)),
        "by": span.name if span else "",
        "operation": operation.origin,
        "before": graph.content(change.before) if change.before else "",
        "after": graph.content(change.after),
    }


def node_row(graph: EvolutionGraph, node: NodeKey) -> dict[str, Any]:
    """Return one node: id, time (ns), when, what (name or ref), by (name), content."""
    if isinstance(node, OperationKey):
        span = graph.operation(node.origin)
        time, name = (span.start, span.name) if span else (0, "missing operation")
        return {"id": node_id(node), "time": time, "when": _moment(time), "what": f"[{name}]", "by": "", "content": ""}
    row = version_row(graph, node)
    chosen = {name: row[name] for name in ("id", "time")} | {"when": _moment(row["time"]), "what": node.ref}
    return chosen | {name: row[name] for name in ("by", "content")}


def read_row(graph: EvolutionGraph, read: Read) -> dict[str, Any]:
    """Return one reading: id (origin of the reader), time (ns), when, by (name), role, rank, score, inferred."""
    span = graph.operation(read.operation.origin)
    time = span.start if span else 0
    return {
        "id": read.operation.origin,
        "time": time,
        "when": _moment(time),
        "by": span.name if span else "",
        "role": read.role,
        "rank": read.rank,
        "score": read.score,
        "inferred": read.inferred,
    }


def _moment(time: int) -> str:
    return day_and_clock(time) if time else ""


def memory_table(rows: Sequence[dict[str, Any]], *, named: bool = False) -> Table:
    """Return rows of one sort as a table; columns that say nothing are left out, and unless `named` the spans."""
    hidden = _HIDDEN - {"operation" if "operation" in rows[0] else "id"} if named else _HIDDEN
    columns = [name for name in rows[0] if name not in hidden and any(row[name] for row in rows)]
    table = Table(*columns, box=SIMPLE_HEAD)
    for row in rows:
        table.add_row(*(_cell(row[name]) for name in columns))
    return table


def _cell(value: Any) -> Text:
    if isinstance(value, list):
        return Text(str(len(value)))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Text(f"{value:g}")
    return Text(one_line(value) if isinstance(value, str) else "yes" if value else "")
