"""The command `store`: statistics, check, prune, compact and forget of the database."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from memtrace_otel.cli.errors import NOTHING_FOUND, clear_errors, fail
from memtrace_otel.cli.options import check_scope, database_option, examples

if TYPE_CHECKING:
    from memtrace_otel.sources import SqliteStore

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def _quantity(units: dict[str, int]) -> Callable[[click.Context, click.Parameter, str | None], int | None]:
    """Return a callback that reads a number with a unit as a whole number of the smallest unit."""

    def read(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
        if value is None:
            return None
        number = value.rstrip("".join(units))
        try:
            return round(float(number) * units[value[len(number) :]])
        except (ValueError, KeyError, OverflowError):
            raise click.BadParameter(f"{value!r} is no number with a unit, one of {', '.join(units)}") from None

    return read


_yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
json_option = click.option("--json", "as_json", is_flag=True, help="JSON on standard output.")


@click.group(
    epilog=examples(
        "memtrace-otel store stats",
        "memtrace-otel store prune --older-than 30d --yes",
        "memtrace-otel store forget 8f14e45fceea167a",
    )
)
def store() -> None:
    """Count, check, prune and compact the database; forget a memory.

    Other processes may write meanwhile. Writers wait while `compact` and `forget` write the file anew. A write that
    waits for more than ten seconds fails.
    """


@store.command(epilog=examples("memtrace-otel store stats", "memtrace-otel store stats --json"))
@database_option
@json_option
@clear_errors
def stats(database: Path, as_json: bool) -> None:
    """Count spans, traces, memory scopes, waiting and quarantined requests, bytes used and free."""
    from memtrace_otel.model.printable import one_line
    from memtrace_otel.sources import SqliteStore

    with SqliteStore.open(database, create=False) as opened:
        counts, scopes, size = opened.stats(), opened.scopes(), opened.size()
    if as_json:
        by_scope = [asdict(scope) for scope in scopes]
        click.echo(json.dumps({**asdict(counts), **asdict(size), "by_scope": by_scope}))
        return
    click.echo(f"{counts.spans} spans, {counts.operations} of them memory operations, in {counts.traces} traces")
    click.echo(f"{size.used} bytes used, {size.free} free")
    click.echo(f"{counts.waiting} requests wait in the inbox, {counts.quarantined} could not be decoded")
    if counts.spans:
        click.echo(f"from {_moment(counts.first)} to {_moment(counts.last)}")
    for scope in scopes:
        name = one_line(scope.scope)
        click.echo(f"scope {name}: {scope.spans} spans, {scope.traces} traces, last {_moment(scope.last)}")


@store.command(epilog=examples("memtrace-otel store check || echo damaged"))
@database_option
@json_option
@clear_errors
def check(database: Path, as_json: bool) -> None:
    """Read the whole database and name every damage. Exit status: 0 sound, 1 damaged, 2 cannot be opened."""
    from memtrace_otel.sources import SqliteStore

    with SqliteStore.open(database, create=False) as opened:
        damages = opened.check()
    for damage in damages:
        click.echo(json.dumps(asdict(damage)) if as_json else f"{damage.kind}: {damage.place}: {damage.reason}")
    if damages:
        many = "1 damage" if len(damages) == 1 else f"{len(damages)} damages"
        fail(f"{many} in {database}", NOTHING_FOUND)
    if not as_json:
        click.echo(f"{database} is sound")


@store.command(epilog=examples("memtrace-otel store compact --db run.db"))
@database_option
@clear_errors
def compact(database: Path) -> None:
    """Write the database anew without free pages, so that the file becomes smaller."""
    from memtrace_otel.sources import SqliteStore

    with SqliteStore.open(database, create=False) as opened:
        compaction = opened.compact()
    freed = compaction.bytes
    click.echo(f"{freed} bytes given back" if freed >= 0 else f"the file grew by {-freed} bytes meanwhile")
    _tell_log(compaction.log_bytes, database)


@store.command(
    epilog=examples("memtrace-otel store forget 8f14e45fceea167a", "memtrace-otel store forget 8f14e45fceea167a --yes")
)
@click.argument("scope", callback=check_scope)
@database_option
@_yes_option
@clear_errors
def forget(scope: str, database: Path, yes: bool) -> None:
    """Delete a memory: its spans, the spans without a memory in its traces, and the verdicts on these traces.

    The file is written anew, so that the deleted text is gone. Spans of other memories stay.
    """
    from memtrace_otel.sources import SqliteStore

    if not yes:
        click.confirm("The memory cannot be restored. Delete the memory?", abort=True)
    with SqliteStore.open(database, create=False) as opened:
        _tell_waiting(opened)
        forgotten = opened.forget(scope)
    if not forgotten.spans and not forgotten.quarantined and not forgotten.log_bytes:
        _fail_unknown(scope)
    click.echo(
        f"deleted: {forgotten.spans} spans, {forgotten.verdicts} verdicts, {forgotten.quarantined} quarantined requests"
    )
    _tell_log(forgotten.log_bytes, database)


@store.command(
    epilog=examples(
        "memtrace-otel store prune --older-than 30d --yes && memtrace-otel store compact",
        "memtrace-otel store prune --max-size 2GB",
        "memtrace-otel store prune --scope 8f14e45fceea167a --older-than 12h",
    )
)
@click.option(
    "--older-than", metavar="AGE", callback=_quantity(_SECONDS), help="Delete traces whose last span is older: 30d."
)
@click.option(
    "--max-size",
    metavar="SIZE",
    callback=_quantity(_BYTES),
    help="Delete quarantined requests, then the oldest traces, down to this size: 500MB.",
)
@click.option(
    "--scope",
    metavar="SCOPE",
    callback=check_scope,
    help="Delete only traces of this memory and of no other. Without a limit: all such traces.",
)
@click.option("--all", "everything", is_flag=True, help="Delete even when every trace is older than AGE by this clock.")
@database_option
@_yes_option
@clear_errors
def prune(
    older_than: int | None, max_size: int | None, scope: str | None, everything: bool, database: Path, yes: bool
) -> None:
    """Delete whole traces, the oldest first, by age, size or memory. `compact` makes the file smaller.

    If every trace is too old, nothing is deleted without --all, because the clock may have jumped.
    """
    from memtrace_otel.sources import SqliteStore

    if older_than is None and max_size is None and scope is None:
        raise click.UsageError("give --older-than, --max-size or --scope")
    if not yes:
        click.confirm("Deleted traces cannot be restored. Delete them?", abort=True)
    before = None if older_than is None else max(0, time.time_ns() - older_than * 10**9)
    with SqliteStore.open(database, create=False) as opened:
        if scope is not None and all(known.scope != scope for known in opened.scopes()):
            _fail_unknown(scope)
        newest = opened.stats().last
        if before is not None and newest and newest < before and not everything:
            moments = f"the newest span is of {_moment(newest)}, this clock says {_moment(time.time_ns())}"
            fail(f"nothing deleted: every trace is too old ({moments}); --all deletes all traces")
        _tell_waiting(opened)
        pruned = opened.prune(before=before, max_bytes=max_size, scope=scope)
        used = opened.size().used
    quarantined = f", {pruned.quarantined} quarantined requests" if pruned.quarantined else ""
    click.echo(f"deleted {pruned.spans} spans of {pruned.traces} traces{quarantined}")
    if max_size is not None and used > max_size:
        click.echo(f"{used} bytes are still used; `memtrace-otel store compact` may free some", err=True)


def _tell_waiting(opened: SqliteStore) -> None:
    with opened.turn(wait=False) as mine:
        if not mine:
            click.echo(
                "waiting for another process that attributes, prunes or forgets in this file",
                err=True,
            )


def _fail_unknown(scope: str) -> NoReturn:
    fail(f"no such scope: {scope}; `memtrace-otel store stats` names them", NOTHING_FOUND)


def _moment(nanoseconds: int) -> str:
    try:
        return datetime.fromtimestamp(nanoseconds // 10**9, UTC).isoformat()
    except (ValueError, OverflowError):  # a clock past the year 9999
        return f"{nanoseconds} ns"


def _tell_log(log_bytes: int, database: Path) -> None:
    if log_bytes:
        click.echo(
            f"{database} and {log_bytes} bytes of {database}-wal still hold deleted text, because another process reads"
            " them: end that process, then run `memtrace-otel store compact`",
            err=True,
        )
