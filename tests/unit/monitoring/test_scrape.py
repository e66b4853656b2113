"""A process that attributes answers scrapes by itself."""

from __future__ import annotations

from urllib.request import Request, urlopen

from prometheus_client import CollectorRegistry

from memtrace_otel.monitoring.scrape import AttributionScrape, listen
from tests.unit.serve.test_metrics import OPENMETRICS
from tests.unit.serve.test_progress import TOLD


def test_what_was_attributed_is_on_its_port_of_loopback() -> None:
    registry = CollectorRegistry()
    AttributionScrape(registry).attributed(TOLD)
    port, stop = listen(registry, 0)
    try:
        with urlopen(Request(f"http://127.0.0.1:{port}/metrics", headers={"accept": OPENMETRICS}), timeout=10) as reply:
            text = reply.read().decode()
    finally:
        stop()
    (line,) = [line for line in text.splitlines() if 'type="update"' in line]
    labels = 'memtrace_failure_type="update",memtrace_system="mem0",service_name="assistant"'
    assert line.startswith(f"memtrace_attribution_failures_total{{{labels}}} 1.0 # {{span_id=")
