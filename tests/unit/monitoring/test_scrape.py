"""A process that attributes answers scrapes by itself."""

from __future__ import annotations

from http.client import HTTPConnection
from urllib.request import Request, urlopen

import pytest
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


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost", 200), ("127.0.0.1:1", 200), ("[::1]:1", 200), ("evil.example", 403), ("[::", 403), ("", 403)],
)
def test_a_foreign_name_that_leads_here_is_refused(host: str, status: int, capfd: pytest.CaptureFixture[str]) -> None:
    registry = CollectorRegistry()
    AttributionScrape(registry).attributed(TOLD)
    port, stop = listen(registry, 0)
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/metrics", headers={"host": host})
        reply = connection.getresponse()
        assert (reply.status, b"assistant" in reply.read()) == (status, status == 200)
    finally:
        connection.close()
        stop()
    assert capfd.readouterr().err == ""
