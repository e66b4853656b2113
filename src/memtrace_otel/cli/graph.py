"""`graph`: how information evolved, as a file for other tools or as an answer to one question."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memtrace_otel.cli.errors import NOTHING_FOUND, clear_errors, fail
from memtrace_otel.cli.graph_export import export, export_options
from memtrace_otel.cli.options import check_scope, check_trace_ids, database_option, examples
from memtrace_otel.model import parse_time

if TYPE_CHECKING:
    from memtrace_otel.graph import EvolutionGraph, NodeKey

_SHOWN = 20
"""Most names in a message."""
_NANOSECONDS = re.compile(r"\d{16,20}")
"""Fewer digits are no time in nanoseconds, but in seconds or milliseconds, or a date: 20260306."""


class _Questions(click.Group):
    """Without the name of a question: the export of a trace, `memtrace-otel graph TRACE_ID`. Options may come first."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first = self._first_word(args)
        if first < len(args) and args[first] in self.commands:
            args = [args[first], *args[:first], *args[first + 1 :]]
        elif args and args[0] not in ctx.help_option_names:
            args = ["trace", *args]
        return super().parse_args(ctx, args)

    def _first_word(self, args: Sequence[str]) -> int:
        """The place of the first argument that is neither an option nor the value of one."""
        options = (o for question in self.commands.values() for o in question.params if isinstance(o, click.Option))
        valued = {name for option in options if not option.is_flag for name in option.opts}
        place = 0
        while place < len(args) and args[place].startswith("-"):
            place += 2 if args[place] in valued else 1
        return place


def _nanoseconds(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """A date or RFC 3339 time, UTC when it names no zone, or ns since the epoch as --json shows them."""
    if value is None:
        return None
    try:
        return int(value) if _NANOSECONDS.fullmatch(value) else parse_time(value)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{value!r} is no time such as 2026-03-06 or 2026-03-06T10:04:31Z") from None


scope_option = click.option(
    "--scope",
    metavar="SCOPE",
    callback=check_scope,
    help="Only this memory. Default: those that wrote NODE, and all connected with it.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="JSON on standard output.")


@click.group(
    cls=_Questions,
    epilog=examples(
        "memtrace-otel graph 4bf92f3577b34da6a3ce929d0e0e4736 --format dot | dot -Tsvg > fact.svg",
        "memtrace-otel graph history memory:17",
        "memtrace-otel graph diff 8f14e45fceea167a 2026-03-06 2026-03-07",
    ),
)
def graph() -> None:
    """Show how information evolved, across traces and processes: `graph TRACE_ID` exports all around a trace.

    A node is named as exports name it: an operation `<trace id>-<span id>`, a version `<ref>|<origin>`, of a root
    `<ref>|~<scope>`. A ref alone means its last version; where several memories have one, it takes --scope.
    """


@graph.command(
    epilog=examples(
        "memtrace-otel graph 4bf92f3577b34da6a3ce929d0e0e4736 --format graphml -o trace.graphml",
        "memtrace-otel graph 4bf92f3577b34da6a3ce929d0e0e4736 --format parquet -o trace/",
    )
)
@click.argument("trace_id", callback=check_trace_ids)
@database_option
@export_options
@clear_errors
def trace(trace_id: str, database: Path, form: str, output: Path | None) -> None:
    """Export how what a trace read and wrote has evolved."""
    from memtrace_otel.graph import load_graph
    from memtrace_otel.sources import SqliteStore

    with SqliteStore.open(database, create=False) as store:
        if not store.trace(trace_id):
            fail(f"no such trace: {trace_id}", NOTHING_FOUND)
        evolution = load_graph(store, trace_id)
    _tell_of_bound(evolution)
    export(evolution, form, output)


@graph.command(
    "slice",
    epilog=examples(
        "memtrace-otel graph slice 4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7 --format dot",
        "memtrace-otel graph slice message:m17 --scope 8f14e45fceea167a",
    ),
)
@click.argument("node")
@database_option
@scope_option
@export_options
@clear_errors
def slice_(node: str, database: Path, scope: str | None, form: str, output: Path | None) -> None:
    """Export what an answer came from, what a message led to, or both for any other node."""
    from memtrace_otel.graph import OperationKey
    from memtrace_otel.model import is_origin, ref_kind
    from memtrace_otel.semconv import RefKind

    if is_origin(node) and (answered := _slice_of_answer(database, node)) is not None:
        if scope is not None:
            raise click.UsageError("--scope: the slice of an answer is of every memory that it came from")
        return export(answered, form, output)
    evolution = _load(database, scope, node)
    start = _find(evolution, node, scope)
    kind = "" if isinstance(start, OperationKey) else ref_kind(start.ref)
    if kind == RefKind.ANSWER and (answered := _slice_of_answer(database, start.origin)) is not None:
        if scope is None:
            return export(answered, form, output)
        found = evolution.slice_of_answer(start.origin)
    elif not isinstance(start, OperationKey) and kind == RefKind.MESSAGE:
        found = evolution.slice_of_message(start)
    else:
        found = evolution.ancestors(start) | evolution.descendants(start) | {start}
    return export(evolution.part(found), form, output)


@graph.command(epilog=examples("memtrace-otel graph history memory:17", "memtrace-otel graph history memory:17 --json"))
@click.argument("ref")
@database_option
@scope_option
@json_option
@clear_errors
def history(ref: str, database: Path, scope: str | None, as_json: bool) -> None:
    """Show every version of a variable: when, in which memory, by which operation, what it says, who read it.

    The table names the operation's span where there is room, --json always does.
    """
    from memtrace_otel.report.memory import version_row

    evolution = _load(database, scope, ref)
    versions = evolution.history(ref, scope or "")
    rows = [{"scope": evolution.scope_of_version(v), **version_row(evolution, v)} for v in versions]
    if not as_json and len({row["scope"] for row in rows}) == 1:
        rows = [{**row, "scope": ""} for row in rows]  # a column that says nothing
    _show(rows, as_json, f"no version of {ref}")


@graph.command(
    epilog=examples(
        "memtrace-otel graph state 8f14e45fceea167a",
        "memtrace-otel graph state 8f14e45fceea167a --at 2026-03-06T10:04:31Z --json",
    )
)
@click.argument("scope", callback=check_scope)
@click.option(
    "--at",
    "time",
    callback=_nanoseconds,
    metavar="TIME",
    help="RFC 3339, UTC without a zone, or ns since 1970 as --json shows them. Default: now.",
)
@database_option
@json_option
@clear_errors
def state(scope: str, time: int | None, database: Path, as_json: bool) -> None:
    """Show what a memory held at a time."""
    from memtrace_otel.report.memory import version_row

    evolution = _load(database, scope)
    _show([version_row(evolution, version) for version in evolution.state(scope, time)], as_json, "nothing is held")


@graph.command(epilog=examples("memtrace-otel graph diff 8f14e45fceea167a 2026-03-06 2026-03-07T12:00:00+01:00"))
@click.argument("scope", callback=check_scope)
@click.argument("since", callback=_nanoseconds)
@click.argument("until", callback=_nanoseconds, required=False)
@database_option
@json_option
@clear_errors
def diff(scope: str, since: int, until: int | None, database: Path, as_json: bool) -> None:
    """Show what a memory learnt, changed and forgot between SINCE and UNTIL (default: now), by which operation.

    Times are RFC 3339, UTC without a zone, or ns since 1970 as --json shows them.
    The table names its span where there is room, --json always does.
    """
    from memtrace_otel.report.memory import change_row

    if until is not None and since > until:
        raise click.UsageError("SINCE is later than UNTIL")
    evolution = _load(database, scope)
    _show([change_row(evolution, change) for change in evolution.diff(scope, since, until)], as_json, "no change")


@graph.command(epilog=examples("memtrace-otel graph paths message:m17 answer:00f067aa0ba902b7"))
@click.argument("source")
@click.argument("target")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Most ways to show.")
@database_option
@scope_option
@json_option
@clear_errors
def paths(source: str, target: str, limit: int, database: Path, scope: str | None, as_json: bool) -> None:
    """Show the ways that information took from one node to another, shortest first."""
    from memtrace_otel.graph.export import node_id

    evolution = _load(database, scope, source, target)
    ways = evolution.paths(_find(evolution, source, scope), _find(evolution, target, scope), limit=limit)
    if as_json:
        named = [[node_id(node) for node in way] for way in ways.found]
        click.echo(json.dumps({"paths": named, "complete": ways.complete}, ensure_ascii=False))
    for way in () if as_json else ways.found:
        click.echo(" -> ".join(_label(evolution, node) for node in way))
    if not ways.complete:
        click.echo(f"there are more; these are {len(ways.found)} (--limit)", err=True)
    if not ways.found:
        fail(f"no way from {source} to {target}", NOTHING_FOUND)


@graph.command(epilog=examples("memtrace-otel graph ancestors answer:00f067aa0ba902b7"))
@click.argument("node")
@database_option
@scope_option
@json_option
@clear_errors
def ancestors(node: str, database: Path, scope: str | None, as_json: bool) -> None:
    """Show every operation and version that what NODE says came through, the first first."""
    evolution = _load(database, scope, node)
    found = evolution.ancestors(_find(evolution, node, scope))
    _show_nodes(evolution, found, as_json, f"{node} came from nothing recorded")


@graph.command(epilog=examples("memtrace-otel graph descendants message:m17 --json"))
@click.argument("node")
@database_option
@scope_option
@json_option
@clear_errors
def descendants(node: str, database: Path, scope: str | None, as_json: bool) -> None:
    """Show every operation and version that what NODE says went to, the first first."""
    evolution = _load(database, scope, node)
    found = evolution.descendants(_find(evolution, node, scope))
    _show_nodes(evolution, found, as_json, f"nothing recorded came of {node}")


@graph.command(
    epilog=examples("memtrace-otel graph readers 'memory:17|4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7'")
)
@click.argument("version")
@database_option
@scope_option
@json_option
@clear_errors
def readers(version: str, database: Path, scope: str | None, as_json: bool) -> None:
    """Show the operations that read a version, in which part, at which rank; of a ref alone: its last version."""
    from memtrace_otel.graph import OperationKey
    from memtrace_otel.report.memory import read_row

    evolution = _load(database, scope, version)
    found = _find(evolution, version, scope)
    if isinstance(found, OperationKey):
        fail(f"an operation, no version: {version}")
    _show([read_row(evolution, read) for read in evolution.readers(found)], as_json, f"nobody read {version}")


def _slice_of_answer(database: Path, origin: str) -> EvolutionGraph | None:
    """The slice of an answer or a judgement, straight from the file; None of any other operation."""
    from memtrace_otel.graph import load_slice
    from memtrace_otel.semconv import OpKind
    from memtrace_otel.sources import SqliteStore

    with SqliteStore.open(database, create=False) as store:
        kinds = {span.origin: span.kind for span in store.trace(origin[:32])}
        return load_slice(store, origin) if kinds.get(origin) in (OpKind.RESPOND, OpKind.JUDGE) else None


def _show_nodes(evolution: EvolutionGraph, nodes: Iterable[NodeKey], as_json: bool, nothing: str) -> None:
    from memtrace_otel.model.printable import one_line
    from memtrace_otel.report.memory import node_row

    rows = [node_row(evolution, node) for node in nodes]
    for row in () if as_json else rows:
        row["content"] = one_line(row["content"], 160)  # a prompt would fill the screen
    _show(sorted(rows, key=lambda row: (row["time"], row["id"])), as_json, nothing)


def _load(database: Path, scope: str | None, *names: str) -> EvolutionGraph:
    """One memory, or without a scope what the file connects with these nodes."""
    from memtrace_otel.graph import load_around, load_scope
    from memtrace_otel.sources import SqliteStore

    with SqliteStore.open(database, create=False) as store:
        if scope is None:
            evolution = load_around(store, names)
        elif any(store.spans(scope=scope)):
            evolution = load_scope(store, scope)
        else:
            known = _known([stats.scope for stats in store.scopes() if stats.scope])
            fail(f"no such scope: {scope}; {known}", NOTHING_FOUND)
    _tell_of_bound(evolution)
    return evolution


def _tell_of_bound(evolution: EvolutionGraph) -> None:
    from memtrace_otel.semconv import Incomplete

    if Incomplete.BOUNDED in evolution.incomplete:
        number = len(evolution.operations())
        click.secho(f"memtrace-otel: only a part: the graph was cut at {number} operations", fg="yellow", err=True)


def _known(scopes: Sequence[str]) -> str:
    from memtrace_otel.model.printable import one_line

    shown = ", ".join(map(one_line, scopes[:_SHOWN])) + " ..." * (len(scopes) > _SHOWN)
    return f"the database has {shown}" if scopes else "the database has none"


def _find(evolution: EvolutionGraph, name: str, scope: str | None) -> NodeKey:
    from memtrace_otel.graph import OperationKey
    from memtrace_otel.graph.export import node_id, nodes_named
    from memtrace_otel.model.printable import one_line

    nodes = nodes_named(evolution, name, scope or "")
    if not nodes:
        fail(f"no such operation or version: {name}", NOTHING_FOUND)
    if len(nodes) > 1:
        owners = {node: "" if isinstance(node, OperationKey) else evolution.scope_of_version(node) for node in nodes}
        shown = [one_line(f"{node_id(node)} (of {owner or 'no memory'})") for node, owner in owners.items()]
        ways = ", ".join(shown[:_SHOWN]) + " ..." * (len(shown) > _SHOWN)
        fail(f"{name} is in {len(nodes)} memories: give {'' if scope else '--scope SCOPE, or '}one of {ways}")
    return nodes[0]


def _label(evolution: EvolutionGraph, node: NodeKey) -> str:
    from memtrace_otel.graph import OperationKey
    from memtrace_otel.model.printable import one_line

    if not isinstance(node, OperationKey):
        return one_line(node.ref)
    span = evolution.operation(node.origin)
    return f"[{one_line(span.name) if span else 'missing operation'}]"


def _show(rows: Sequence[dict[str, Any]], as_json: bool, nothing: str) -> None:
    """Print rows as JSON lines, or as a table."""
    if as_json:
        for row in rows:
            click.echo(json.dumps(row, ensure_ascii=False))
    elif rows:
        from memtrace_otel.cli.output import print_table
        from memtrace_otel.report.memory import memory_table

        print_table(memory_table(rows, named=True), memory_table(rows))
    if not rows:
        fail(nothing, NOTHING_FOUND)
