"""`canary`: send a known fault through the whole path and wait for its verdict."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING

import click

from memtrace_otel import settings
from memtrace_otel.cli.errors import NOTHING_FOUND, clear_errors, tell_of_settings
from memtrace_otel.cli.options import examples, page_option

if TYPE_CHECKING:
    from memtrace_otel.pages import Page

_SECONDS = click.FloatRange(min=0, min_open=True)
_ADVICE = {
    "send": "does the receiver run and take OTLP, and are its token and tenant in OTEL_EXPORTER_OTLP_HEADERS?",
    "store": "do spans get from the receiver to the backend, and is --source that backend?",
    "verdict": "does `serve` or `watch` run, get the spans, and send verdicts to the backend "
    "(OTEL_EXPORTER_OTLP_ENDPOINT there)? A verdict comes after the quiet period",
    "marker": "does sampling or a filter on the way to the backend drop late spans (scope memtrace_otel.attribution)?",
    "match": "spans may be lost or changed on the way: open the trace",
}


@click.command(
    epilog=examples(
        "memtrace-otel canary --otlp-endpoint http://localhost:4317 --source jaeger+http://localhost:16686",
        "memtrace-otel canary --source tempo+http://tempo:3200 --interval 300",
    )
)
@click.option(
    "--source",
    required=True,
    metavar="URL",
    help="The backend that must show the verdict: jaeger+http://HOST[:PORT] or tempo+http://HOST[:PORT], "
    "also +https. MEMTRACE_SOURCE_* hold token, headers and limits.",
)
@click.option(
    "--otlp-endpoint",
    "endpoint",
    metavar="URL",
    help="The receiver of the applications' spans: HTTP on port 4318 or with a path, else gRPC. "
    "Default: OTEL_EXPORTER_OTLP_*.",
)
@click.option("--timeout", type=_SECONDS, default=180.0, show_default=True, help="Seconds until a verdict is lost.")
@click.option("--interval", type=_SECONDS, help="Seconds from one flight to the next. Default: one flight.")
@page_option
@clear_errors
def canary(source: str, endpoint: str | None, timeout: float, interval: float | None, page: Page | None) -> None:
    """Send a known memory history with a known fault, and read its verdict back from the backend.

    Exit status 0: the right verdict came. Exit status 1: no right verdict came. The message names the stage that lost
    the verdict. Send: no receiver took the spans. Store: the backend does not show the spans. Verdict: there is no
    verdict. Marker: a marker is missing in one of the two traces. Match: the verdict names another fault. After
    SIGINT or SIGTERM the status is that of the last complete flight, 1 without one. The spans have the service
    memtrace-canary, and each flight has a memory scope of its own.
    """
    from memtrace_otel.annotate.target import read_target
    from memtrace_otel.canary import CanaryMetrics, Stage, fly, write_history
    from memtrace_otel.launch import sending_environment
    from memtrace_otel.pipeline.export_metrics import export_metrics
    from memtrace_otel.sources import open_source

    target = read_target("traces", environ=sending_environment(os.environ, endpoint) if endpoint else None)
    if target is None:
        raise click.UsageError("name the receiver of the spans: --otlp-endpoint or OTEL_EXPORTER_OTLP_ENDPOINT")
    tell_of_settings()
    open_source(source).close()  # refuse a bad address before the flight
    export_metrics(socket.gethostname())  # alerts are by instance: the next flight is of the same
    metrics = CanaryMetrics()
    lost = True  # until a verdict has come
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: sys.exit(NOTHING_FOUND if lost else 0))
    while True:
        started = time.monotonic()
        with closing(open_source(source, timeout=min(timeout, settings.SOURCE_TIMEOUT.read()))) as backend:
            outcome = fly(write_history(time.time_ns()), target, backend, timeout)
        lost = outcome.lost is not None
        if outcome.lost is None:
            click.echo(f"canary: {outcome.message}, read back after {outcome.seconds:.1f} s")
        else:
            message = (
                f"canary: lost at stage {outcome.lost} after {outcome.seconds:.1f} s: {outcome.message}\n"
                f"  {_ADVICE[outcome.lost]}"
            )
            if outcome.lost != Stage.SEND:  # else no backend has the trace
                message += f"\n  {_shown(outcome.trace_id, target.endpoint, page)}"
            click.echo(f"memtrace-otel: {message}", err=True)
        metrics.record(outcome, time.time())
        if not interval:
            sys.exit(NOTHING_FOUND if lost else 0)
        time.sleep(max(0.0, started + interval - time.monotonic()))


def _shown(trace_id: str, endpoint: str, page: Page | None) -> str:
    """Return the address of the page of a trace: the named page, else a found page."""
    from memtrace_otel.pages import NO_PAGE, UNSURE, FoundPage, find_page

    found = FoundPage(page, True) if page else find_page(endpoint, trace_id, patience=0)
    if found is None:
        return f"trace {trace_id}: {NO_PAGE}"
    return found.page.trace(trace_id) + ("" if found.sure else f", {UNSURE}")
