"""What attribution shows to a Prometheus scrape."""

from __future__ import annotations

import time
from dataclasses import replace
from http.client import HTTPConnection
from urllib.request import Request, urlopen

import pytest
from prometheus_client import CollectorRegistry

from memtrace_otel.annotate import Annotation
from memtrace_otel.model import Attributed, OperationSpan
from memtrace_otel.pipeline.metrics import AttributionCounters, WatchCounters, listen
from tests.unit.annotate.conftest import ANSWER, UPDATE, verdict_on

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
SERVICE = {"memtrace_system": "mem0", "service_name": "assistant"}
LABELS = {"memtrace_failure_type": "update", **SERVICE}
FAILURES = "memtrace_attribution_failures_total"
DONE = Attributed("update", "mem0", "assistant", False, 0.5, "a" * 32, "b" * 16)


def annotation(*spans: OperationSpan) -> Annotation:
    return Annotation(verdict_on(UPDATE, complete=False), spans, 1, is_new=True)


def test_a_service_begins_at_zero_and_its_verdicts_count() -> None:
    registry = CollectorRegistry()
    counters = WatchCounters(registry)
    counters.expects("mem0", "assistant")
    assert registry.get_sample_value(FAILURES, LABELS) == 0
    for _ in range(2):
        counters.attributed(annotation(ANSWER))
    counters.attributed(annotation())  # OTLP could not encode this one: its ids may be anything
    counters.expects("mem0", "assistant")
    assert registry.get_sample_value(FAILURES, LABELS) == 2


def test_an_answer_counts_once_for_each_type_whatever_replaces_its_verdict() -> None:
    registry = CollectorRegistry()
    counters = AttributionCounters(registry)
    for done in (DONE, replace(DONE, again=True), replace(DONE, failure_type="deletion")):
        counters.attributed(done)
    for failure_type in ("update", "deletion"):
        assert registry.get_sample_value(FAILURES, {**LABELS, "memtrace_failure_type": failure_type}) == 1
    assert registry.get_sample_value("memtrace_attribution_incomplete_total", SERVICE) == 2
    outcome = {"memtrace_attribution_outcome": "attributed"}
    assert registry.get_sample_value("memtrace_attribution_runs_total", outcome) == 3


def test_errors_and_rounds_are_counted() -> None:
    registry = CollectorRegistry()
    counters = WatchCounters(registry)
    counters.failed()
    for succeeded, waiting in ((True, 3), (False, 4), (True, 0)):
        counters.searched(succeeded, waiting)
    errors = {"memtrace_attribution_outcome": "error"}
    assert registry.get_sample_value("memtrace_attribution_runs_total", errors) == 1
    rounds = {
        outcome: registry.get_sample_value("memtrace_watch_searches_total", {"outcome": outcome})
        for outcome in ("ok", "error")
    }
    assert rounds == {"ok": 2, "error": 1}
    assert registry.get_sample_value("memtrace_watch_waiting_traces") == 0


def test_invented_service_names_make_a_bounded_number_of_series_and_age_out(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    registry = CollectorRegistry()
    counters = AttributionCounters(registry)
    for number in range(300):
        counters.attributed(replace(DONE, service=f"invented {number} {'x' * 500}"))
    other = {"memtrace_failure_type": "update", "memtrace_system": "other", "service_name": "other"}
    assert registry.get_sample_value(FAILURES, other) == 100
    now += 500
    counters.attributed(DONE)
    assert registry.get_sample_value(FAILURES, LABELS) is None
    now += 200
    for _ in range(250):
        counters.attributed(DONE)
    assert registry.get_sample_value(FAILURES, LABELS) == 250
    (family,) = [one for one in registry.collect() if one.name == "memtrace_attribution_failures"]
    assert len(family.samples) == 201
    assert max(len(sample.labels["service_name"]) for sample in family.samples) == 200


def test_a_port_of_loopback_shows_the_counters_with_exemplars() -> None:
    registry = CollectorRegistry()
    AttributionCounters(registry).attributed(DONE)
    port, stop = listen(registry, 0)
    try:
        with urlopen(Request(f"http://127.0.0.1:{port}/metrics", headers={"accept": OPENMETRICS}), timeout=10) as reply:
            text = reply.read().decode()
    finally:
        stop()
    (line,) = [line for line in text.splitlines() if 'type="update"' in line]
    labels = 'memtrace_failure_type="update",memtrace_system="mem0",service_name="assistant"'
    assert line.startswith(f"{FAILURES}{{{labels}}} 1.0 # {{span_id=")


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost", 200), ("127.0.0.1:1", 200), ("[::1]:1", 200), ("evil.example", 403), ("[::", 403), ("", 403)],
)
def test_a_request_under_a_foreign_name_is_refused(host: str, status: int, capfd: pytest.CaptureFixture[str]) -> None:
    registry = CollectorRegistry()
    AttributionCounters(registry).attributed(DONE)
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
