"""What a watch shows to a Prometheus scrape."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from memtrace_otel.model import Attributed
from memtrace_otel.monitoring.scrape import AttributionScrape

_MOST = 100_000
"""Verdicts that are known to be counted."""


class WatchScrape:
    """Failures by type as in `serve`, whether the backend answers, and how many failing traces wait."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._attribution = AttributionScrape(registry)
        self._counted: set[str] = set()
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

    def attributed(self, attribution_id: str, told: Attributed) -> None:
        """Count a verdict, once."""
        if attribution_id not in self._counted:
            if len(self._counted) >= _MOST:
                self._counted.clear()
            self._counted.add(attribution_id)
            self._attribution.attributed(told)

    def searched(self, succeeded: bool, waiting: int) -> None:
        """Count a search and say how many failing traces wait."""
        self._searches.labels("ok" if succeeded else "error").inc()
        self._waiting.set(waiting)
