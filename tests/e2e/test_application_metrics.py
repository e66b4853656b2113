"""Metrics of an application reach Prometheus by way of the gateway, and what it lost becomes an alert."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

from tests.e2e.backends.prometheus import running_prometheus
from tests.e2e.backends.service import ROOT, running, wait_for
from tests.e2e.collector.processes import Collector
from tests.e2e.monitored import prometheus_config

_PROGRAM = """
from memtrace_otel.capture import operation

for kind in ("retrieve", "guess"):  # the second one makes no sense: it is recorded as `other` and counted
    with operation(kind=kind, system="notes") as step:
        step.read("memory:1", role="hit")
"""


def test_what_capture_lost_is_an_alert_that_names_service_and_reason(tmp_path: Path) -> None:
    collector = Collector(tmp_path, "gateway", "redaction")
    config = prometheus_config(tmp_path, {"applications": urlsplit(collector.prometheus).netloc}, "127.0.0.1:9")
    with running(collector), running_prometheus(tmp_path, config) as prometheus:
        environ = {
            "OTEL_SERVICE_NAME": "assistant",
            "OTEL_RESOURCE_ATTRIBUTES": "service.namespace=shop",
            "OTEL_TRACES_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
            "OTEL_METRICS_EXPORTER": "otlp",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{collector.otlp}",
        }
        scrapes = "sum_over_time(up{job='applications'}[1h])"  # a drop is new to who has looked before
        wait_for(lambda: any(value > 3 for _, value in prometheus.query(scrapes)), "some scrapes of the gateway")
        command = [Path(sys.executable).parent / "opentelemetry-instrument", sys.executable, "-c", _PROGRAM]
        subprocess.run(command, check=True, env=os.environ | environ, cwd=ROOT)
        wait_for(lambda: any(_name(alert) == "MemoryCaptureDrops" for alert in prometheus.alerts()), "the alert")
        (alert,) = [alert for alert in prometheus.alerts() if _name(alert) == "MemoryCaptureDrops"]
        assert alert["labels"] == {
            "alertname": "MemoryCaptureDrops",
            "severity": "warning",
            "memtrace_drop_reason": "misuse:kind",
            "service_name": "assistant",
        }
        assert "Capture lost 1 items within an hour: misuse:kind (assistant" in alert["annotations"]["summary"]
        operations = prometheus.query("memtrace_capture_operations_total")
        assert {labels["service_name"] for labels, _ in operations} == {"assistant"}
        assert sum(value for _, value in operations) == 2


def _name(alert: dict[str, dict[str, str]]) -> str:
    return alert["labels"]["alertname"]
