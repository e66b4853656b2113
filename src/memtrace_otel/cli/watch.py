"""`watch`: failing traces of a tracing backend, as they come."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from threading import Event
from typing import TYPE_CHECKING

import click

from memtrace_otel import settings
from memtrace_otel.cli.errors import clear_errors, fail, tell_of_settings
from memtrace_otel.cli.options import DAY, examples, since_option, source_option

if TYPE_CHECKING:
    from memtrace_otel.annotate import Annotation
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
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="Answer Prometheus on this port of loopback.")
@clear_errors
def watch(source: str, since: int | None, interval: float, metrics_port: int | None) -> None:
    """Attribute failing traces of a tracing backend as they come, and send the verdicts to
    OTEL_EXPORTER_OTLP_ENDPOINT, each once.

    A trace is attributed when nothing more arrived for MEMTRACE_QUIET_SECONDS, and again when late spans change the
    picture. What the backend shows already is not sent again: after a restart it goes on where it was. One line a new
    verdict on standard error, counted when it is made. Without an endpoint nothing is remembered: each start tells of
    what failed since --since, and counts it, again. Ends after its round on SIGTERM and SIGINT, at once on a second
    one. --metrics-port needs memtrace-otel[serve].
    """
    from memtrace_otel.annotate.target import read_targets
    from memtrace_otel.monitoring import export_metrics
    from memtrace_otel.pipeline.watch import Watch, summary
    from memtrace_otel.sources import open_source

    if not source:
        raise click.UsageError("--source is needed, for example --source tempo+http://localhost:3200")
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

    def told(made: Annotation) -> None:
        click.echo(f"memtrace-otel: {summary(made)}", err=True)

    with closing(open_source(source)) as opened, _scraped(metrics_port) as observed:
        where = f"verdicts go to {target}" if target else "verdicts go nowhere: OTEL_EXPORTER_OTLP_ENDPOINT is not set"
        click.echo(f"memtrace-otel: watching {opened}; {where}", err=True)
        start = time.time_ns() - DAY if since is None else since
        Watch(opened, since=start, quiet=settings.QUIET_SECONDS.read(), told=told, **observed).run(interval, stopped)


@contextmanager
def _scraped(port: int | None) -> Generator[dict[str, Observer]]:
    """Answer scrapes of what the observer, an argument of `Watch`, is told; nothing without a port."""
    if port is None:
        yield {}
        return
    try:
        from prometheus_client import CollectorRegistry

        from memtrace_otel.monitoring.scrape import listen
        from memtrace_otel.monitoring.watching import WatchScrape
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        fail(f"{error.name} is missing: pip install 'memtrace-otel[serve]'")
    registry = CollectorRegistry()
    observer = WatchScrape(registry)
    try:
        bound, stop = listen(registry, port)
    except OSError as error:
        fail(f"cannot listen on 127.0.0.1:{port}: {error.strerror or error}")
    click.echo(f"memtrace-otel: metrics on http://127.0.0.1:{bound}/metrics", err=True)
    try:
        yield {"observer": observer}
    finally:
        stop()
