"""The command `health`: faults of the memories that show before an answer fails."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from memtrace_otel.cli.errors import NOTHING_FOUND, clear_errors, fail
from memtrace_otel.cli.options import database_option, examples, period_option

_LINES = 20
"""Most lines of the printed findings."""
_SHOWN_TEXT = 60
_NOTHING_MEASURED = 3
"""Exit status without any memory operation, unlike that of a finding: a quiet week is no fault."""


@click.command(
    epilog=examples(
        "memtrace-otel health --db memtrace.db --since 7d",
        "memtrace-otel health --json",
        "MEMTRACE_HEALTH_THRESHOLDS=zero_hits=0.5,unread_days=30 memtrace-otel health",
    )
)
@database_option
@period_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object per measure and memory on standard output.")
@clear_errors
def health(database: Path, since: int | None, as_json: bool) -> None:
    """Measure each memory: nothing learned, never read, duplicates, loops, leaks and more.

    No expected answer is needed. A finding is a share of operations above its threshold
    (MEMTRACE_HEALTH_THRESHOLDS). Without --json, at most 20 lines are printed. Without --since, the whole database is
    measured. Metrics go where OTEL_METRICS_EXPORTER says.

    Exit status: 0 when healthy, 1 when a threshold is passed, 2 for bad arguments or input, 3 when there is no
    operation to measure.
    """
    from memtrace_otel.graph.load import load_scope
    from memtrace_otel.health import ThresholdError, examine, read_thresholds, record_health
    from memtrace_otel.model.printable import one_line, printable_json
    from memtrace_otel.pipeline.export_metrics import export_metrics
    from memtrace_otel.sources import SqliteStore

    try:
        thresholds = read_thresholds()
    except ThresholdError as error:
        raise click.UsageError(str(error)) from None
    exported = export_metrics()
    with SqliteStore.open(database, create=False) as store:
        graph = load_scope(store)
    findings = list(examine(graph, since or 0, time.time_ns(), thresholds))
    if exported:
        record_health(findings)
    if not findings:
        fail(f"no memory operation {'since then' if since else 'with a scope'} in {database}", _NOTHING_MEASURED)
    # A threshold of 0 is for faults that no memory may have: one leak comes before a large share of unread records.
    raised = sorted(
        (found for found in findings if found.raised),
        key=lambda found: (found.threshold > 0, -found.share, found.measure),
    )
    if as_json:
        for found in findings:
            click.echo(printable_json(found.as_json()))
    else:
        memories = len({(found.scope, found.system) for found in findings})
        click.echo(f"{memories} memories, {len(findings)} measures, {len(raised)} above their thresholds")
        most = _LINES - 1 if len(raised) < _LINES else _LINES - 2
        for found in raised[:most]:
            example = found.examples[0] if found.examples else None
            shown = f"; {one_line(example.text, _SHOWN_TEXT)!r} in {example.operation[:32]}" if example else ""
            click.echo(
                f"{found.measure}: {found.count} of {found.total} {found.title} (threshold {found.threshold:g}) in "
                f"{found.system} {found.scope}{shown}; {found.advice}"
            )
        if raised[most:]:
            click.echo(f"and {len(raised) - most} more: --json shows all")
    if raised:
        sys.exit(NOTHING_FOUND)
