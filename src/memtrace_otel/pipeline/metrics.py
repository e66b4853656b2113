"""The metrics of attribution for a Prometheus scrape, under the names that OpenTelemetry's metrics have there.

`prometheus_client` is used directly: OpenTelemetry's Prometheus exporter (0.66) has no exemplars and cannot remove a
series. Counters begin with the process, as Prometheus expects. `increase` misses the first value of a series; so each
failure type of a service is there with 0 as soon as the service is known to answer.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, start_http_server

from memtrace_otel import semconv
from memtrace_otel.annotate import Annotation
from memtrace_otel.hosts import is_own_name
from memtrace_otel.model import DURATION_BUCKETS, OUTCOMES, Attributed
from memtrace_otel.pipeline.watch import Observer

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

_SERVICES = 200
"""Systems and services that have series of their own: their names come from whoever sends spans."""
_IDLE_SECONDS = 600.0
"""A service without a count for so long makes room for another one."""
_CHARACTERS = 200

disable_created_metrics()  # they double the series, and Prometheus 2 does not use them


def label(name: str) -> str:
    """Return the Prometheus name of an OpenTelemetry attribute or metric."""
    return name.replace(".", "_")


class ServiceCounters:
    """Counters by system and service, with a bounded number of series.

    Past `most` services, the service that was idle longest loses its series, if it was idle for ten minutes; until
    then a new service is counted as `other`.
    """

    def __init__(self, registry: CollectorRegistry, most: int = _SERVICES) -> None:
        self._registry = registry
        self._most = most
        self._used: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._counters: list[Counter] = []
        self._lock = threading.Lock()

    def counter(self, name: str, help: str, *labels: str) -> Counter:
        """Return a new counter with `labels`, then system and service."""
        names = (*labels, label(semconv.SYSTEM), label(semconv.SERVICE_NAME))
        self._counters.append(Counter(name, help, names, registry=self._registry))
        return self._counters[-1]

    def labels(self, system: str, service: str) -> tuple[str, str]:
        """Return the values of the labels system and service."""
        pair = system[:_CHARACTERS], service[:_CHARACTERS]
        now = time.monotonic()
        with self._lock:
            if pair not in self._used and len(self._used) >= self._most and not self._make_room(now):
                return semconv.OpKind.OTHER, semconv.OpKind.OTHER
            self._used[pair] = now
            self._used.move_to_end(pair)
        return pair

    def _make_room(self, now: float) -> bool:
        oldest, used = next(iter(self._used.items()))
        if now - used < _IDLE_SECONDS:
            return False
        del self._used[oldest]
        names = dict(zip((label(semconv.SYSTEM), label(semconv.SERVICE_NAME)), oldest, strict=True))
        for counter in self._counters:
            counter.remove_by_labels(names)
        return True


class AttributionCounters:
    """`memtrace_attribution_*` in a registry; the exemplars point at failing spans (OpenMetrics only)."""

    def __init__(self, registry: CollectorRegistry, services: ServiceCounters | None = None) -> None:
        self._services = services or ServiceCounters(registry)
        self._failures = self._services.counter(
            label(semconv.METRIC_FAILURES), "Failing answers by attributed failure type.", label(semconv.FAILURE_TYPE)
        )
        self._incomplete = self._services.counter(
            label(semconv.METRIC_INCOMPLETE), "Verdicts that guess, or that lack spans, contents or origins."
        )
        outcome = (label(semconv.OUTCOME),)
        self._runs = Counter(label(semconv.METRIC_RUNS), "Attributions by outcome.", outcome, registry=registry)
        self._duration = Histogram(
            f"{label(semconv.METRIC_DURATION)}_seconds",
            "Time to attribute one failing answer.",
            outcome,
            buckets=DURATION_BUCKETS,
            registry=registry,
        )
        for value in OUTCOMES:
            self._runs.labels(value)

    def expect(self, system: str, service: str) -> None:
        """Show that a service which answers has had no failure as yet; earlier counts stay."""
        pair = self._services.labels(system, service)
        self._incomplete.labels(*pair)
        for failure_type in semconv.FailureType:
            self._failures.labels(failure_type, *pair)

    def attributed(self, done: Attributed) -> None:
        """Count one finished attribution whose verdict is new."""
        pair = self._services.labels(done.system, done.service)
        exemplar = {"trace_id": done.trace_id, "span_id": done.span_id}
        if not done.again:
            self._failures.labels(done.failure_type, *pair).inc(exemplar=exemplar)
            if not done.complete:
                self._incomplete.labels(*pair).inc(exemplar=exemplar)
        self._runs.labels(done.outcome).inc(exemplar=exemplar)
        self._duration.labels(done.outcome).observe(done.seconds, exemplar)

    def failed(self, count: int = 1) -> None:
        """Count attributions that ended in an error."""
        self._runs.labels("error").inc(count)


def show_repair(registry: CollectorRegistry, applied: Callable[[], float]) -> None:
    """Show at each scrape when a repair was applied."""
    help = "Time of the last application of the repair (seconds since the epoch), 0 for none."
    gauge = Gauge("memtrace_repair_applied_seconds", help, registry=registry)
    gauge.set_function(applied)


class WatchCounters(Observer):
    """The metrics of a watch: failures by type, whether the backend answers, and how many failing traces wait."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._attribution = AttributionCounters(registry)
        self._searches = Counter(
            "memtrace_watch_searches",
            "Searches of the backend, by whether it answered.",
            ("outcome",),
            registry=registry,
        )
        for outcome in ("ok", "error"):
            self._searches.labels(outcome)
        self._waiting = Gauge("memtrace_watch_waiting_traces", "Failing traces that are due.", registry=registry)

    def expects(self, system: str, service: str) -> None:
        """Show the service with 0 before its first failure is counted."""
        self._attribution.expect(system, service)

    def attributed(self, made: Annotation) -> None:
        """Count a verdict; a verdict without spans has ids that may be anything."""
        if made.spans:
            self._attribution.attributed(Attributed.of(made.verdict, made.seconds))

    def failed(self) -> None:
        """Count a trace that could not be attributed."""
        self._attribution.failed()

    def searched(self, succeeded: bool, waiting: int) -> None:
        """Count a round and set how many failing traces wait."""
        self._searches.labels("ok" if succeeded else "error").inc()
        self._waiting.set(waiting)


def listen(registry: CollectorRegistry, port: int, host: str = "127.0.0.1") -> tuple[int, Callable[[], None]]:
    """Answer scrapes of `/metrics` in a thread; return the port (0: any free port) and a function that ends it.

    Only requests under a loopback name are answered. Raises OSError when the address is not free.
    """
    server, _ = start_http_server(port, host, registry)
    scrape = server.get_app()
    assert scrape

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if is_own_name(environ.get("HTTP_HOST", "")):
            return scrape(environ, start_response)
        start_response("403 Forbidden", [("content-type", "text/plain")])
        return [b"not by this name\n"]

    server.set_app(answer)

    def stop() -> None:
        server.shutdown()
        server.server_close()

    return server.server_port, stop
