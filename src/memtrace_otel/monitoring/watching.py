"""What a watch shows to a Prometheus scrape."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from memtrace_otel.model import Attributed
from memtrace_otel.monitoring.scrape import AttributionScrape


class WatchScrape:
    """Failures by type as in `serve`, whether the backend answers, and how many failing traces wait."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._attribution = AttributionScrape(registry)
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
        """Show that this service has had no failure as yet, before its first one is counted."""
        self._attribution.expect(system, service)

    def attributed(self, told: Attributed) -> None:
        """Count a verdict."""
        self._attribution.attributed(told)

    def failed(self) -> None:
        """Count a trace that could not be attributed."""
        self._attribution.failed()

    def searched(self, succeeded: bool, waiting: int) -> None:
        """Count a search and say how many failing traces wait."""
        self._searches.labels("ok" if succeeded else "error").inc()
        self._waiting.set(waiting)
