"""The command `watch`: attribute failing traces of a tracing backend as they arrive."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import click

from memtrace_otel import settings
from memtrace_otel.cli.errors import clear_errors, fail, tell_of_settings
from memtrace_otel.cli.options import DAY, examples, repair_option, since_option, source_option

if TYPE_CHECKING:
    from memtrace_otel.pipeline.watch import Observer


@click.command(
    epilog=examples(
        "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4317 memtrace-otel watch --source tempo+http://localhost:3200",
        "memtrace-otel watch --source jaeger+http://localhost:16686 --interval 5 --since 1h",
    )
)
@source_option
@since_option
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 86_400),
    default=10.0,
    show_default=True,
    help="Seconds between searches for new failures.",
)
@click.option(
    "--metrics-port", type=click.IntRange(0, 65535), help="Serve metrics for Prometheus on this port of loopback."
)
@repair_option
@clear_errors
def watch(source: str, since: int | None, interval: float, metrics_port: int | None, run: Path | None) -> None:
    """Attribute failing traces of a tracing backend as they arrive, and send each verdict once.

    Verdicts go to OTEL_EXPORTER_OTLP_ENDPOINT. A trace is attributed when no span arrived for MEMTRACE_QUIET_SECONDS,
    and again later, for late spans. A verdict that the backend shows is not sent again. Each new verdict is one line on
    standard error. Without an endpoint each start reports and counts the failures since --since again. SIGTERM and
    SIGINT end the watch after its round, a second signal at once. --metrics-port needs memtrace-otel[serve].
    """
    from memtrace_otel.annotate import BackendLog, MemoryLog
    from memtrace_otel.annotate.target import read_targets
    from memtrace_otel.pipeline.diagnose import shown_by
    from memtrace_otel.pipeline.export_metrics import export_metrics
    from memtrace_otel.pipeline.watch import Watcher, summary
    from memtrace_otel.sources import open_source

    if not source:
        raise click.UsageError("--source is needed, for example --source tempo+http://localhost:3200")
    if run and metrics_port is None:
        raise click.UsageError("--repair needs --metrics-port")
    tell_of_settings()
    logging.basicConfig(format="memtrace-otel: %(message)s")
    export_metrics()
    target, _ = read_targets()
    stopped = Event()

    def stop(number: int, frame: object) -> None:
        stopped.set()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)

    with closing(open_source(source)) as opened, _counted(metrics_port, run) as observer:
        where = f"verdicts go to {target}" if target else "verdicts go nowhere: OTEL_EXPORTER_OTLP_ENDPOINT is not set"
        click.echo(f"memtrace-otel: watching {opened}; {where}", err=True)
        start = time.time_ns() - DAY if since is None else since
        watcher = Watcher(
            opened,
            BackendLog(shown_by(opened), MemoryLog()),
            quiet=settings.QUIET_SECONDS.read(),
            since=start,
            interval=interval,
            told=lambda made: click.echo(f"memtrace-otel: {summary(made)}", err=True),
            observer=observer,
        )
        watcher.run(stopped)


@contextmanager
def _counted(port: int | None, run: Path | None) -> Generator[Observer | None]:
    """Yield counters that are scraped on a port; None without a port."""
    if port is None:
        yield None
        return
    try:
        from prometheus_client import CollectorRegistry

        from memtrace_otel.pipeline.metrics import WatchCounters, listen, show_repair
        from memtrace_otel.repair.apply import applied_seconds
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        fail(f"{error.name} is missing: pip install 'memtrace-otel[serve]', in a checkout pip install '.[serve]'")
    registry = CollectorRegistry()
    counters = WatchCounters(registry)
    if run:
        show_repair(registry, partial(applied_seconds, run))
    try:
        bound, stop = listen(registry, port)
    except OSError as error:
        fail(f"cannot listen on 127.0.0.1:{port}: {error.strerror or error}")
    click.echo(f"memtrace-otel: metrics on http://127.0.0.1:{bound}/metrics", err=True)
    try:
        yield counters
    finally:
        stop()
