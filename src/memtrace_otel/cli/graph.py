"""The command `graph`: export the evolution graph, or answer one question about the graph."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memtrace_otel.cli.errors import NOTHING_FOUND, clear_errors, fail
from memtrace_otel.cli.options import (
    check_scope,
    check_trace_ids,
    database_option,
    examples,
    no_database,
    replayer_option,
    verifier,
)
from memtrace_otel.model import parse_time
from memtrace_otel.model.printable import one_line, printable_json

if TYPE_CHECKING:
    from memtrace_otel.graph import EvolutionGraph, NodeKey

Command = Callable[..., Any]
_FORMATS = ("json", "dot", "graphml", "smartcomment")
_MOST_NAMES = 20
"""Most names in a message."""
_NANOSECONDS = re.compile(r"\d{16,20}")
"""Fewer digits are seconds, milliseconds or a date such as 20260306."""


class _Questions(click.Group):
    """Without the name of a question, the group exports a trace: `memtrace-otel graph TRACE_ID`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = (o for question in self.commands.values() for o in question.params if isinstance(o, click.Option))
        valued = {name for option in options if not option.is_flag for name in option.opts}
        first = 0
        while first < len(args) and args[first].startswith("-"):
            first += 2 if args[first] in valued else 1
        if first < len(args) and args[first] in self.commands:
            args = [args[first], *args[:first], *args[first + 1 :]]
        elif args and args[0] not in ctx.help_option_names:
            args = ["trace", *args]
        return super().parse_args(ctx, args)


def _nanoseconds(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """Read a date or RFC 3339 time (UTC without a zone), or ns since the epoch as --json shows."""
    if value is None:
        return None
    try:
        return int(value) if _NANOSECONDS.fullmatch(value) else parse_time(value)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{value!r} is no time such as 2026-03-06 or 2026-03-06T10:04:31Z") from None


def _scope_option(command: Command) -> Command:
    return click.option(
        "--scope",
        metavar="SCOPE",
        callback=check_scope,
        help="Only this memory. Default: the memories that wrote NODE, and the memories connected with them.",
    )(command)


def _json_option(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="JSON on standard output.")(command)


def _export_options(command: Command) -> Command:
    form = click.option(
        "--format", "form", type=click.Choice(_FORMATS), default="json", show_default=True, help="Form of the export."
    )
    output = click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path),
        callback=no_database,
        help="File to write, else standard output.",
    )
    return form(output(command))


@click.group(
    cls=_Questions,
    epilog=examples(
        "memtrace-otel graph 4bf92f3577b34da6a3ce929d0e0e4736 --format dot | dot -Tsvg > fact.svg",
        "memtrace-otel graph history memory:17",
        "memtrace-otel graph diff 8f14e45fceea167a 2026-03-06 2026-03-07",
    ),
)
def graph() -> None:
    """Show how information evolved across traces and processes. `graph TRACE_ID` exports the graph around a trace.

    NODE is a name from an export: an operation `<trace id>-<span id>`, a version `<ref>|<origin>`, or a root
    `<ref>|~<scope>`. A ref alone means its last version. If several memories have the ref, give --scope.
    """


@graph.command(
    epilog=examples(
        "memtrace-otel graph 4bf92f3577b34da6a3ce929d0e0e4736 --format graphml -o trace.graphml",
    )
)
@click.argument("trace_id", callback=check_trace_ids)
@database_option
@_export_options
@clear_errors
def trace(trace_id: str, database: Path, form: str, output: Path | None) -> None:
    """Export the graph around a trace: its operations, their sources, and their memories."""
    from memtrace_otel.graph import load_graph
    from memtrace_otel.sources import SqliteStore

    with SqliteStore.open(database, create=False) as store:
        if not store.trace(trace_id):
            fail(f"no such trace: {trace_id}", NOTHING_FOUND)
        evolution = load_graph(store, trace_id)
    _warn_of_bound(evolution)
    _export(evolution, form, output)


@graph.command(
    "slice",
    epilog=examples(
        "memtrace-otel graph slice 4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7 --format dot",
        "memtrace-otel graph slice message:m17 --scope 8f14e45fceea167a",
    ),
)
@click.argument("node")
@database_option
@_scope_option
@_export_options
@clear_errors
def slice_(node: str, database: Path, scope: str | None, form: str, output: Path | None) -> None:
    """Export the sources of an answer, the results of a message, or both for any other node."""
    from memtrace_otel.graph import OperationKey
    from memtrace_otel.model import is_origin, ref_kind
    from memtrace_otel.semconv import RefKind

    if is_origin(node) and (answered := _slice_of_answer(database, node)) is not None:
        if scope is not None:
            raise click.UsageError("--scope: the slice of an answer covers every memory that the answer came from")
        return _export(answered, form, output)
    evolution = _load(database, scope, node)
    start = _find(evolution, node, scope)
    kind = "" if isinstance(start, OperationKey) else ref_kind(start.ref)
    if kind == RefKind.ANSWER and (answered := _slice_of_answer(database, start.origin)) is not None:
        if scope is None:
            return _export(answered, form, output)
        found = evolution.slice_of_answer(start.origin)
    elif not isinstance(start, OperationKey) and kind == RefKind.MESSAGE:
        found = evolution.slice_of_message(start)
    else:
        found = evolution.ancestors(start) | evolution.descendants(start) | {start}
    return _export(evolution.part(found), form, output)


@graph.command(epilog=examples("memtrace-otel graph history memory:17", "memtrace-otel graph history memory:17 --json"))
@click.argument("ref")
@database_option
@_scope_option
@_json_option
@clear_errors
def history(ref: str, database: Path, scope: str | None, as_json: bool) -> None:
    """Show every version of a variable: time, memory, writing operation, content, readers.

    The table names the span of the operation if there is room; --json always does.
    """
    from memtrace_otel.report.memory import version_row

    evolution = _load(database, scope, ref)
    versions = evolution.history(ref, scope or "")
    rows = [{"scope": evolution.scope_of_version(v), **version_row(evolution, v)} for v in versions]
    if not as_json and len({row["scope"] for row in rows}) == 1:
        rows = [{**row, "scope": ""} for row in rows]  # the same in every row
    _show(rows, as_json, f"no version of {ref}")


@graph.command(epilog=examples("memtrace-otel graph replay 4bf92f3577b34da6a3ce929d0e0e4736"))
@click.argument("trace_id", callback=check_trace_ids)
@database_option
@replayer_option
@_json_option
@clear_errors
def replay(trace_id: str, database: Path, replayers: tuple[str, ...], as_json: bool) -> None:
    """Run the failing answers of a trace again without the fault, and show what changed.

    The recorded request is sent to OPENAI_BASE_URL with other memories. No store and no tool of the program is used.
    """
    from memtrace_otel.attribution import verdict_json
    from memtrace_otel.attribution.endpoint import Endpoint
    from memtrace_otel.pipeline.diagnose import diagnose
    from memtrace_otel.sources import SqliteStore

    run = verifier(Endpoint(), None, replayers)
    with SqliteStore.open(database, create=False) as store:
        found = diagnose(store, store, [trace_id])
        verdicts = [run(diagnosis.graph, verdict) for diagnosis in found for verdict in diagnosis.verdicts]
    if not verdicts:
        fail(f"no failing answer in trace {trace_id}", NOTHING_FOUND)
    for verdict in verdicts:
        if as_json:
            click.echo(printable_json(verdict_json(verdict)))
        elif (told := verdict.replay) is not None:
            rows = [("question", verdict.failure.question), ("expected", verdict.failure.expected)]
            rows += [("verdict", f"{verdict.failure_type}: {verdict.reason}"), ("before", verdict.failure.answer)]
            rows += [*(("- memory", text) for text in told.removed), *(("+ memory", text) for text in told.added)]
            rows += [("now", told.answer), (told.outcome, told.reason)]
            click.echo("\n".join(f"{name:<16} {one_line(text)}" for name, text in rows if text))


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
    help="RFC 3339, UTC without a zone, or ns since 1970 as --json shows. Default: now.",
)
@database_option
@_json_option
@clear_errors
def state(scope: str, time: int | None, database: Path, as_json: bool) -> None:
    """Show the records that a memory held at a time."""
    from memtrace_otel.report.memory import version_row

    evolution = _load(database, scope)
    _show([version_row(evolution, version) for version in evolution.state(scope, time)], as_json, "nothing is held")


@graph.command(epilog=examples("memtrace-otel graph diff 8f14e45fceea167a 2026-03-06 2026-03-07T12:00:00+01:00"))
@click.argument("scope", callback=check_scope)
@click.argument("since", callback=_nanoseconds)
@click.argument("until", callback=_nanoseconds, required=False)
@database_option
@_json_option
@clear_errors
def diff(scope: str, since: int, until: int | None, database: Path, as_json: bool) -> None:
    """Show the records that a memory added, changed and deleted between SINCE and UNTIL (default: now).

    Times are RFC 3339, UTC without a zone, or ns since 1970 as --json shows.
    The table names the span of the operation if there is room; --json always does.
    """
    from memtrace_otel.report.memory import change_row

    if until is not None and since > until:
        raise click.UsageError("SINCE is later than UNTIL")
    evolution = _load(database, scope)
    _show([change_row(evolution, change) for change in evolution.diff(scope, since, until)], as_json, "no change")


@graph.command(epilog=examples("memtrace-otel graph paths message:m17 answer:00f067aa0ba902b7"))
@click.argument("source")
@click.argument("target")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Most paths to show.")
@database_option
@_scope_option
@_json_option
@clear_errors
def paths(source: str, target: str, limit: int, database: Path, scope: str | None, as_json: bool) -> None:
    """Show the paths of information from one node to another, shortest first."""
    from memtrace_otel.graph.export import node_id

    evolution = _load(database, scope, source, target)
    paths = evolution.paths(_find(evolution, source, scope), _find(evolution, target, scope), limit=limit)
    if as_json:
        named = [[node_id(node) for node in path] for path in paths.found]
        click.echo(printable_json({"paths": named, "complete": paths.complete}))
    for path in () if as_json else paths.found:
        click.echo(" -> ".join(_label(evolution, node) for node in path))
    if not paths.complete:
        click.echo(f"there are more paths; shown are {len(paths.found)} (--limit)", err=True)
    if not paths.found:
        fail(f"no path from {source} to {target}", NOTHING_FOUND)


@graph.command(epilog=examples("memtrace-otel graph ancestors answer:00f067aa0ba902b7"))
@click.argument("node")
@database_option
@_scope_option
@_json_option
@clear_errors
def ancestors(node: str, database: Path, scope: str | None, as_json: bool) -> None:
    """Show every operation and version before NODE, in time order."""
    evolution = _load(database, scope, node)
    _show_nodes(evolution, evolution.ancestors(_find(evolution, node, scope)), as_json, f"no source of {node} recorded")


@graph.command(epilog=examples("memtrace-otel graph descendants message:m17 --json"))
@click.argument("node")
@database_option
@_scope_option
@_json_option
@clear_errors
def descendants(node: str, database: Path, scope: str | None, as_json: bool) -> None:
    """Show every operation and version after NODE, in time order."""
    evolution = _load(database, scope, node)
    _show_nodes(evolution, evolution.descendants(_find(evolution, node, scope)), as_json, f"no use of {node} recorded")


@graph.command(
    epilog=examples("memtrace-otel graph readers 'memory:17|4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7'")
)
@click.argument("version")
@database_option
@_scope_option
@_json_option
@clear_errors
def readers(version: str, database: Path, scope: str | None, as_json: bool) -> None:
    """Show the operations that read a version, with role and rank. A ref alone means its last version."""
    from memtrace_otel.graph import OperationKey
    from memtrace_otel.report.memory import read_row

    evolution = _load(database, scope, version)
    found = _find(evolution, version, scope)
    if isinstance(found, OperationKey):
        fail(f"an operation, not a version: {version}")
    _show([read_row(evolution, read) for read in evolution.readers(found)], as_json, f"no operation read {version}")


def _slice_of_answer(database: Path, origin: str) -> EvolutionGraph | None:
    """Return the slice of an answer or a judgement by one query; None for any other operation."""
    from memtrace_otel.graph import load_slice
    from memtrace_otel.semconv import OpKind
    from memtrace_otel.sources import SqliteStore

    with SqliteStore.open(database, create=False) as store:
        kinds = {span.origin: span.kind for span in store.trace(origin[:32])}
        return load_slice(store, origin) if kinds.get(origin) in (OpKind.RESPOND, OpKind.JUDGE) else None


def _load(database: Path, scope: str | None, *names: str) -> EvolutionGraph:
    """Load one memory; without a scope the memories connected with the nodes."""
    from memtrace_otel.graph import load_around, load_scope
    from memtrace_otel.sources import SqliteStore

    with SqliteStore.open(database, create=False) as store:
        if scope is None:
            evolution = load_around(store, names)
        elif any(store.spans(scope=scope)):
            evolution = load_scope(store, scope)
        else:
            known = [one_line(stats.scope) for stats in store.scopes() if stats.scope]
            fail(f"no such scope: {scope}; the database has {_listed(known) or 'none'}", NOTHING_FOUND)
    _warn_of_bound(evolution)
    return evolution


def _find(evolution: EvolutionGraph, name: str, scope: str | None) -> NodeKey:
    from memtrace_otel.graph import OperationKey
    from memtrace_otel.graph.export import node_id, nodes_named

    nodes = nodes_named(evolution, name, scope or "")
    if not nodes:
        fail(f"no such operation or version: {name}", NOTHING_FOUND)
    if len(nodes) > 1:
        owners = {node: "" if isinstance(node, OperationKey) else evolution.scope_of_version(node) for node in nodes}
        shown = _listed([one_line(f"{node_id(node)} (of {owner or 'no memory'})") for node, owner in owners.items()])
        fail(f"{name} is in {len(nodes)} memories: give {'' if scope else '--scope SCOPE, or '}one of {shown}")
    return nodes[0]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMES]) + " ..." * (len(names) > _MOST_NAMES)


def _label(evolution: EvolutionGraph, node: NodeKey) -> str:
    from memtrace_otel.graph import OperationKey

    if not isinstance(node, OperationKey):
        return one_line(node.ref)
    span = evolution.operation(node.origin)
    return f"[{one_line(span.name) if span else 'missing operation'}]"


def _warn_of_bound(evolution: EvolutionGraph) -> None:
    from memtrace_otel.semconv import Incomplete

    if Incomplete.BOUNDED in evolution.incomplete:
        number = len(evolution.operations())
        click.secho(f"memtrace-otel: only a part: the graph was cut at {number} operations", fg="yellow", err=True)


def _export(evolution: EvolutionGraph, form: str, output: Path | None) -> None:
    """Write the graph to a file that only its owner can read, or to standard output."""
    from memtrace_otel.graph.export import render

    if output:
        from memtrace_otel.report import write_private

        write_private(output, render(evolution, form))
    else:
        click.echo(render(evolution, form))


def _show_nodes(evolution: EvolutionGraph, nodes: Iterable[NodeKey], as_json: bool, nothing: str) -> None:
    from memtrace_otel.report.memory import node_row

    rows = [node_row(evolution, node) for node in nodes]
    for row in () if as_json else rows:
        row["content"] = one_line(row["content"], 160)  # a prompt would fill the screen
    _show(sorted(rows, key=lambda row: (row["time"], row["id"])), as_json, nothing)


def _show(rows: Sequence[dict[str, Any]], as_json: bool, nothing: str) -> None:
    """Print rows as JSON lines, or as a table."""
    if as_json:
        for row in rows:
            click.echo(printable_json(row))
    elif rows:
        from memtrace_otel.cli.output import print_table
        from memtrace_otel.report.memory import memory_table

        print_table(memory_table(rows, named=True), memory_table(rows))
    if not rows:
        fail(nothing, NOTHING_FOUND)
