"""Metrics of a running server: what was attributed in its third process, by scrape and by OTLP."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import NumberDataPoint
from opentelemetry.trace import set_span_in_context
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from memtrace_otel.otlp.sdk import encode_sdk_spans
from memtrace_otel.semconv import FailureType
from memtrace_otel.serve.progress import Process
from memtrace_otel.sources import SqliteStore
from tests.conftest import Recording
from tests.integration.serve.conftest import Server, Start
from tests.unit.test_cli import tell

FAILURES = "memtrace.attribution.failures"


def samples(server: Server, name: str) -> list[Sample]:
    """What a scrape of Prometheus gets of a metric."""
    request = Request(f"{server.http}/metrics", headers={"accept": "application/openmetrics-text"})
    with urlopen(request, timeout=10) as reply:
        families = text_string_to_metric_families(reply.read().decode())
        return [sample for family in families for sample in family.samples if sample.name == f"memtrace_{name}_total"]


def test_a_failure_is_scraped_with_the_failing_trace_and_counted_once(
    start: Start, recording: Recording, content_on: None
) -> None:
    server = start(MEMTRACE_QUIET_SECONDS="0.3")
    tell(recording)
    (failing,) = recording.named("chat")
    told = [span for span in recording.spans() if span.name != "memtrace.judge"]
    server.post("/v1/traces", encode_sdk_spans(told))
    server.until(lambda: len(samples(server, "attribution_failures")) == len(FailureType))
    assert {sample.value for sample in samples(server, "attribution_failures")} == {0}  # known before it fails

    server.post("/v1/traces", encode_sdk_spans(recording.spans()))
    server.until(lambda: server.metric("verdicts") == 1)
    recording.clear()
    with recording.tracer.start_as_current_span("late", context=set_span_in_context(failing)):  # type: ignore[arg-type]
        pass
    server.post("/v1/traces", encode_sdk_spans(recording.spans()))
    time.sleep(1)  # the trace is attributed again, to the same verdict
    os.kill(server.child(Process.ATTRIBUTING), signal.SIGKILL)
    server.until(lambda: server.restarts(Process.ATTRIBUTING) == 1)
    failed = [sample for sample in samples(server, "attribution_failures") if sample.value]
    assert [(one.labels["memtrace_failure_type"], one.labels["memtrace_system"], one.value) for one in failed] == [
        ("update", "t", 1)
    ]
    assert failed[0].exemplar is not None
    context = failing.get_span_context()
    assert context is not None
    assert failed[0].exemplar.labels == {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}
    for name in ("answers", "evaluations"):
        assert sum(sample.value for sample in samples(server, f"serve_{name}")) == 1


def test_after_a_restart_who_answered_is_known_before_it_fails(
    start: Start, recording: Recording, content_on: None
) -> None:
    tell(recording)
    told = [span for span in recording.spans() if span.name != "memtrace.judge"]
    for _ in range(2):
        server = start()
        server.post("/v1/traces", encode_sdk_spans(told))
        told = []
        server.until(lambda server=server: len(samples(server, "attribution_failures")) == len(FailureType))
        assert {sample.value for sample in samples(server, "attribution_failures")} == {0}
        assert server.terminate() == 0


class Receiver:
    """Takes OTLP metrics over HTTP on loopback."""

    def __init__(self) -> None:
        self.requests: list[ExportMetricsServiceRequest] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.path == "/v1/metrics":
                    receiver.requests.append(ExportMetricsServiceRequest.FromString(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.environ = {
            "OTEL_METRICS_EXPORTER": "otlp",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"http://127.0.0.1:{self.server.server_port}/v1/metrics",
            "OTEL_METRIC_EXPORT_INTERVAL": "200",
        }

    def points(self, name: str) -> list[NumberDataPoint]:
        """The data points of a counter, oldest first."""
        metrics = [
            metric
            for request in list(self.requests)
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]
        return [point for metric in metrics if metric.name == name for point in metric.sum.data_points]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    thread = threading.Thread(target=receiver.server.serve_forever)
    thread.start()
    yield receiver
    receiver.server.shutdown()
    receiver.server.server_close()
    thread.join()


def check(points: list[NumberDataPoint], recording: Recording) -> None:
    point = points[-1]
    attributes = {pair.key: pair.value.string_value for pair in point.attributes}
    assert (point.as_int, attributes["memtrace.failure.type"], attributes["memtrace.system"]) == (1, "update", "t")
    (failing,) = recording.named("chat")
    context = failing.get_span_context()
    assert context is not None
    exemplars = [exemplar for point in points for exemplar in point.exemplars]  # each is sent once
    assert [exemplar.trace_id.hex() for exemplar in exemplars] == [f"{context.trace_id:032x}"]


def test_the_server_sends_its_failures_by_otlp(
    start: Start, recording: Recording, content_on: None, receiver: Receiver
) -> None:
    server = start(MEMTRACE_QUIET_SECONDS="0.3", **receiver.environ)
    tell(recording)
    server.post("/v1/traces", encode_sdk_spans(recording.spans()))
    server.until(lambda: bool(receiver.points(FAILURES)))
    check(receiver.points(FAILURES), recording)


def test_attribute_sends_its_failures_by_otlp(
    tmp_path: Path, recording: Recording, content_on: None, receiver: Receiver
) -> None:

    tell(recording)
    with SqliteStore.open(tmp_path / "spans.db") as store:
        store.add_request(encode_sdk_spans(recording.spans()))
    command = [sys.executable, "-m", "memtrace_otel.cli", "attribute", "--all", "--db", str(tmp_path / "spans.db")]
    for _ in range(2):  # the second time nothing is new
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, **receiver.environ})
    check(receiver.points(FAILURES), recording)
    assert {point.as_int for point in receiver.points(FAILURES)} == {1}
