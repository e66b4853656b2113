"""`graph`: how information evolved, as a file for other tools or as an answer to one question."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from memtrace_otel.cli.errors import NOTHING_FOUND, clear_errors, fail
from memtrace_otel.cli.options import check_trace_ids, database_option, examples

if TYPE_CHECKING:
    from memtrace_otel.graph import EvolutionGraph, NodeKey

P = ParamSpec("P")
R = TypeVar("R")

_FORMATS = ("json", "dot", "graphml", "smartcomment", "parquet")


class _Questions(click.Group):
    """Without the name of a question: the export of a trace, `memtrace-otel graph TRACE_ID`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = args and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named or not args else ["trace", *args])


def _nanoseconds(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """A date or RFC 3339 time, UTC when it names no zone, as ns since the epoch."""
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1_000_000) * 1000
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{value!r} is no time such as 2026-03-06 or 2026-03-06T10:04:31Z") from None


def export_options(command: Callable[P, R]) -> Callable[P, R]:
    """`--format`, `--output`."""
    form = click.option(
        "--format", "form", type=click.Choice(_FORMATS), default="json", show_default=True, help="Form of the export."
    )
    output = click.option(
        "-o", "--output", type=click.Path(path_type=Path), help="File (parquet: folder) to write, else stdout."
    )
    return form(output(command))


scope_option = click.option("--scope", metavar="SCOPE", help="Only this memory. Default: the whole database.")
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
    `<ref>|~<scope>`. A ref alone means its last version.
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
    from memtrace_otel.diagnosis import UnknownTraceError
    from memtrace_otel.graph import load_graph
    from memtrace_otel.store import SqliteStore

    with SqliteStore.open(database, create=False) as store:
        if not store.trace(trace_id):
            raise UnknownTraceError(trace_id)
        _export(load_graph(store, trace_id), form, output)


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
    from memtrace_otel.model import ref_kind
    from memtrace_otel.semconv import OpKind, RefKind

    evolution = _load(database, scope)
    start = _find(evolution, node)
    span = evolution.operation(start.origin) if isinstance(start, OperationKey) else None
    if span is not None and span.kind in (OpKind.RESPOND, OpKind.JUDGE):
        found = evolution.slice_of_answer(span.origin)
    elif not isinstance(start, OperationKey) and ref_kind(start.ref) == RefKind.MESSAGE:
        found = evolution.slice_of_message(start)
    else:
        found = evolution.ancestors(start) | evolution.descendants(start) | {start}
    _export(evolution.part(found), form, output)


@graph.command(epilog=examples("memtrace-otel graph history memory:17", "memtrace-otel graph history memory:17 --json"))
@click.argument("ref")
@database_option
@scope_option
@json_option
@clear_errors
def history(ref: str, database: Path, scope: str | None, as_json: bool) -> None:
    """Show every version of a variable: when, by which operation, what it says, who read it."""
    from memtrace_otel.report.memory import version_row

    evolution = _load(database, scope)
    _show(
        [version_row(evolution, version) for version in evolution.history(ref, scope or "")],
        as_json,
        f"no version of {ref}",
    )


@graph.command(
    epilog=examples(
        "memtrace-otel graph state 8f14e45fceea167a",
        "memtrace-otel graph state 8f14e45fceea167a --at 2026-03-06T10:04:31Z --json",
    )
)
@click.argument("scope")
@click.option("--at", "time", callback=_nanoseconds, metavar="TIME", help="RFC 3339, UTC without a zone. Default: now.")
@database_option
@json_option
@clear_errors
def state(scope: str, time: int | None, database: Path, as_json: bool) -> None:
    """Show what a memory held at a time."""
    from memtrace_otel.report.memory import version_row

    evolution = _load(database, scope)
    _show([version_row(evolution, version) for version in evolution.state(scope, time)], as_json, "nothing is held")


@graph.command(epilog=examples("memtrace-otel graph diff 8f14e45fceea167a 2026-03-06 2026-03-07T12:00:00+01:00"))
@click.argument("scope")
@click.argument("since", callback=_nanoseconds)
@click.argument("until", callback=_nanoseconds, required=False)
@database_option
@json_option
@clear_errors
def diff(scope: str, since: int, until: int | None, database: Path, as_json: bool) -> None:
    """Show what a memory learnt, changed and forgot between SINCE and UNTIL (default: now), by which operation."""
    from memtrace_otel.report.memory import change_row

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

    evolution = _load(database, scope)
    ways = evolution.paths(_find(evolution, source), _find(evolution, target), limit=limit)
    if as_json:
        named = [[node_id(node) for node in way] for way in ways.found]
        click.echo(json.dumps({"paths": named, "complete": ways.complete}, ensure_ascii=False))
    for way in () if as_json else ways.found:
        click.echo(" -> ".join(_label(evolution, node) for node in way))
    if not ways.complete:
        click.echo(f"there are more; these are {len(ways.found)} (--limit)", err=True)
    if not ways.found:
        fail(f"no way from {source} to {target}", NOTHING_FOUND)


def _load(database: Path, scope: str | None) -> EvolutionGraph:
    from memtrace_otel.graph import load_scope
    from memtrace_otel.store import SqliteStore

    with SqliteStore.open(database, create=False) as store:
        evolution = load_scope(store, scope)
        if scope is not None and scope not in evolution.scopes():
            fail(f"no such scope: {scope}; {_known(load_scope(store).scopes())}")
    return evolution


def _known(scopes: Sequence[str]) -> str:
    shown = ", ".join(scopes[:20])
    return f"the database has {shown}{' ...' * (len(scopes) > 20)}" if scopes else "the database has none"


def _find(evolution: EvolutionGraph, name: str) -> NodeKey:
    from memtrace_otel.graph.export import node_named

    node = node_named(evolution, name)
    if node is None:
        fail(f"no such operation or version: {name}")
    return node


def _label(evolution: EvolutionGraph, node: NodeKey) -> str:
    from memtrace_otel.graph import OperationKey

    if not isinstance(node, OperationKey):
        return node.ref
    span = evolution.operation(node.origin)
    return f"[{span.name if span else 'missing operation'}]"


def _export(evolution: EvolutionGraph, form: str, output: Path | None) -> None:
    from memtrace_otel.graph.export import render

    if form == "parquet":
        from memtrace_otel.graph.parquet import write_parquet

        if output is None:
            raise click.UsageError("parquet is written into a folder: give --output")
        try:
            write_parquet(evolution, output)
        except ImportError as error:
            fail(str(error))
    elif output:
        output.write_text(render(evolution, form), "utf-8")
    else:
        click.echo(render(evolution, form))


def _show(rows: Sequence[dict[str, Any]], as_json: bool, nothing: str) -> None:
    """Print rows as JSON lines, or as a table."""
    if as_json:
        for row in rows:
            click.echo(json.dumps(row, ensure_ascii=False))
    elif rows:
        from rich.console import Console

        from memtrace_otel.report.memory import memory_table

        Console(highlight=False).print(memory_table(rows))
    if not rows:
        fail(nothing, NOTHING_FOUND)
