"""The metrics of attribution for a Prometheus scrape, under the names that OpenTelemetry's have there.

Counters begin with the process, as Prometheus expects. `increase` misses the first value of a series, so that each
failure type of a service is there with 0 as soon as the service is known to answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, start_http_server

from memtrace_otel import semconv
from memtrace_otel.hosts import is_own_name
from memtrace_otel.model import DURATION_BUCKETS, OUTCOMES, Attributed

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

_MOST_PAIRS = 200
"""Systems and services that have series of their own: their names come from whoever sends spans."""
_MOST_CHARACTERS = 200
_REST = (semconv.OpKind.OTHER, semconv.OpKind.OTHER)

disable_created_metrics()  # they double the series, and Prometheus 2 does nothing with them


class Pairs:
    """Bounds the values that the labels system and service have: past `most` pairs, all are `other`."""

    def __init__(self, most: int = _MOST_PAIRS) -> None:
        self._most = most
        self._known: set[tuple[str, str]] = set()

    def bounded(self, system: str, service: str) -> tuple[str, str]:
        """Return the values to use for the labels."""
        pair = system[:_MOST_CHARACTERS], service[:_MOST_CHARACTERS]
        if pair not in self._known and len(self._known) >= self._most:
            return _REST
        self._known.add(pair)
        return pair


class AttributionScrape:
    """`memtrace_attribution_*` in a registry; the exemplars point at failing spans (OpenMetrics only)."""

    def __init__(self, registry: CollectorRegistry, pairs: Pairs | None = None) -> None:
        self._pairs = pairs or Pairs()
        service = (label(semconv.SYSTEM), label(semconv.SERVICE_NAME))
        self._failures = Counter(
            label(semconv.METRIC_FAILURES),
            "Failing answers by attributed failure type.",
            (label(semconv.FAILURE_TYPE), *service),
            registry=registry,
        )
        self._incomplete = Counter(
            label(semconv.METRIC_INCOMPLETE),
            "Verdicts made while spans, contents or origins were missing.",
            service,
            registry=registry,
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
        """Show that a service which answers has had no failure as yet; one that has keeps its counts."""
        pair = self._pairs.bounded(system, service)
        self._incomplete.labels(*pair)
        for failure_type in semconv.FailureType:
            self._failures.labels(failure_type, *pair)

    def attributed(self, told: Attributed) -> None:
        """Count one finished attribution whose verdict is new."""
        pair = self._pairs.bounded(told.system, told.service)
        exemplar = {"trace_id": told.trace_id, "span_id": told.span_id}
        if not told.again:
            self._failures.labels(told.failure_type, *pair).inc(exemplar=exemplar)
            if not told.complete:
                self._incomplete.labels(*pair).inc(exemplar=exemplar)
        self._runs.labels(told.outcome).inc(exemplar=exemplar)
        self._duration.labels(told.outcome).observe(told.seconds, exemplar)

    def failed(self, count: int = 1) -> None:
        """Count attributions that ended in an error of ours."""
        self._runs.labels("error").inc(count)


def label(name: str) -> str:
    """Return the Prometheus name of an OpenTelemetry attribute or metric."""
    return name.replace(".", "_")


def listen(registry: CollectorRegistry, port: int, host: str = "127.0.0.1") -> tuple[int, Callable[[], None]]:
    """Answer scrapes of `/metrics` in a thread of this process; return the port (0: any free one) and what ends it.

    Answers only under a loopback name. Raises OSError when the address cannot be had.
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
