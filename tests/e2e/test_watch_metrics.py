"""`watch` on a real Tempo, as Prometheus sees it."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import Request, urlopen

from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.e2e.application import SYSTEM
from tests.e2e.backends.service import Service, running, wait_for
from tests.e2e.backends.tempo import Tempo
from tests.e2e.monitored import application, otlp_environment

SERVICE = "watched assistant"


def test_failures_are_scraped_with_their_traces_after_a_zero(tempo: Tempo, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "memtrace_otel.cli", "watch", "--source", f"tempo+{tempo.url}"]
    now = datetime.now(UTC).isoformat(timespec="seconds")  # other tests have left failures in this Tempo
    command += ["--since", now.replace("+00:00", "Z"), "--interval", "0.5", "--metrics-port", "0"]
    environ = otlp_environment(tempo.otlp_http) | {"MEMTRACE_QUIET_SECONDS": "4"}
    service = Service("watch", command, tmp_path, healthy=lambda: "/metrics" in service.tail(), environ=environ)
    with running(service):
        url = re.findall(r"metrics on (\S+)", service.tail())[0]
        failing = application(SERVICE, 2, 1, tempo.otlp_http)
        seen: list[float] = []

        def updates() -> list[Sample]:
            found = [
                sample
                for sample in scrape(url, "memtrace_attribution_failures_total")
                if (sample.labels["service_name"], sample.labels["memtrace_failure_type"]) == (SERVICE, "update")
            ]
            seen.extend(sample.value for sample in found)
            return found

        wait_for(lambda: [sample.value for sample in updates()] == [2], "failures")
        assert seen[0] == 0
        (sample,) = updates()
        assert sample.labels["memtrace_system"] == SYSTEM
        assert sample.exemplar is not None
        assert sample.exemplar.labels["trace_id"] in failing
        searches = {one.labels["outcome"]: one.value for one in scrape(url, "memtrace_watch_searches_total")}
        assert searches["ok"] > 0


def scrape(url: str, name: str) -> list[Sample]:
    with urlopen(Request(url, headers={"accept": "application/openmetrics-text"}), timeout=10) as reply:
        families = text_string_to_metric_families(reply.read().decode())
        return [sample for family in families for sample in family.samples if sample.name == name]
