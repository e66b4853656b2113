"""What a watch shows to a scrape."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client import CollectorRegistry

from memtrace_otel.monitoring.watching import WatchScrape
from tests.unit.serve.test_progress import TOLD

LABELS = {"memtrace_failure_type": "update", "memtrace_system": "mem0", "service_name": "assistant"}


def test_a_service_begins_at_zero_and_verdicts_count() -> None:
    registry = CollectorRegistry()
    scrape = WatchScrape(registry)
    scrape.expects("mem0", "assistant")
    values = [registry.get_sample_value("memtrace_attribution_failures_total", LABELS)]
    for _ in range(2):
        scrape.attributed(TOLD)
        values.append(registry.get_sample_value("memtrace_attribution_failures_total", LABELS))
    assert values == [0, 1, 2]
    scrape.attributed(replace(TOLD, failure_type="deletion"))
    assert (
        registry.get_sample_value("memtrace_attribution_runs_total", {"memtrace_attribution_outcome": "attributed"})
        == 3
    )


def test_an_answer_is_counted_once_under_each_type_whatever_replaces_its_verdict() -> None:
    registry = CollectorRegistry()
    scrape = WatchScrape(registry)
    for told in (TOLD, replace(TOLD, again=True), replace(TOLD, failure_type="deletion")):
        scrape.attributed(told)
    for failure_type in ("update", "deletion"):
        labels = {**LABELS, "memtrace_failure_type": failure_type}
        assert registry.get_sample_value("memtrace_attribution_failures_total", labels) == 1
    service = {"memtrace_system": "mem0", "service_name": "assistant"}
    assert registry.get_sample_value("memtrace_attribution_incomplete_total", service) == 2  # neither was complete
    outcome = {"memtrace_attribution_outcome": "attributed"}
    assert registry.get_sample_value("memtrace_attribution_runs_total", outcome) == 3


def test_a_trace_that_cannot_be_attributed_counts() -> None:
    registry = CollectorRegistry()
    WatchScrape(registry).failed()
    errors = {"memtrace_attribution_outcome": "error"}
    assert registry.get_sample_value("memtrace_attribution_runs_total", errors) == 1


def test_searches_are_counted_by_whether_the_backend_answered() -> None:
    registry = CollectorRegistry()
    scrape = WatchScrape(registry)
    for succeeded, waiting in ((True, 3), (False, 4), (True, 0)):
        scrape.searched(succeeded, waiting)
    counts = {
        outcome: registry.get_sample_value("memtrace_watch_searches_total", {"outcome": outcome})
        for outcome in ("ok", "error")
    }
    assert counts == {"ok": 2, "error": 1}
    assert registry.get_sample_value("memtrace_watch_waiting_traces") == 0
