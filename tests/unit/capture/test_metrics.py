"""Metrics of our own work: what is counted, under which names, and what it costs while nobody collects."""

from __future__ import annotations

import ast
import gc
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from memtrace_otel import semconv
from memtrace_otel.capture import drops, metrics, operation
from memtrace_otel.capture.delivery import LosslessSpanProcessor
from memtrace_otel.capture.guard import note_drop

Points = dict[str, dict[tuple[str, ...], Any]]
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryMetricReader]:
    tallies = (metrics._operations, metrics._truncations, metrics._unknown_origins, drops)
    for tally in tallies:
        tally.clear()
    monkeypatch.setattr(metrics, "_duration", None)
    made = InMemoryMetricReader()
    provider = MeterProvider([made], shutdown_on_exit=False)
    metrics.publish(provider)
    yield made
    provider.shutdown()
    for tally in tallies:
        tally.clear()


def collected(reader: InMemoryMetricReader) -> Points:
    """Metric name -> attribute values, in order of the names -> value, or (count, sum) of a histogram."""
    data = reader.get_metrics_data()
    found: Points = {}
    for of_resource in data.resource_metrics if data else ():
        for of_scope in of_resource.scope_metrics:
            for metric in of_scope.metrics:
                for point in metric.data.data_points:
                    values = tuple(str(value) for _, value in sorted((point.attributes or {}).items()))
                    histogram = (point.count, point.sum) if hasattr(point, "count") else None
                    found.setdefault(metric.name, {})[values] = histogram or point.value  # type: ignore[union-attr]
    return found


def test_operations_are_counted_by_system_and_kind(reader: InMemoryMetricReader) -> None:
    for _ in range(3):
        metrics.operation_ended("mem0", "create", "create_memory", 0.5, "", ())
    metrics.operation_ended("mem0", "create", "create_memory", 0.5, "ValueError", ("truncated", "unknown_origin"))
    metrics.operation_ended("rag", "extract", "memtrace.extract", 0.5, "", ("unknown_origin",))
    note_drop("span:full", 2)
    note_drop("variables")
    found = collected(reader)
    assert found[semconv.METRIC_OPERATIONS] == {("create", "mem0"): 4, ("extract", "rag"): 1}
    assert found[semconv.METRIC_TRUNCATIONS] == {("mem0",): 1}
    assert found[semconv.METRIC_UNKNOWN_ORIGINS] == {("mem0",): 1, ("rag",): 1}
    assert found[semconv.METRIC_DROPS] == {("span:full",): 2, ("variables",): 1}
    assert found[semconv.METRIC_OPERATION_DURATION] == {
        ("create_memory",): (3, 1.5),
        ("ValueError", "create_memory"): (1, 0.5),
    }


def test_only_memory_operations_have_a_duration(reader: InMemoryMetricReader) -> None:
    for name in ("chat", "retrieval", "memtrace.decide", "search_memory"):
        metrics.operation_ended("s", "other", name, 0.5, "", ())
    assert set(collected(reader)[semconv.METRIC_OPERATION_DURATION]) == {("search_memory",)}


def test_duration_has_the_attributes_of_the_service(reader: InMemoryMetricReader) -> None:
    given = {"gen_ai.provider.name": "mem0", "server.address": "api.mem0.ai", "server.port": 443, "other": "no"}
    tracer = TracerProvider().get_tracer("t")
    with operation("search_memory", kind="retrieve", system="mem0", attributes=given, tracer=tracer):
        pass
    assert ("search_memory", "mem0", "api.mem0.ai", "443") in collected(reader)[semconv.METRIC_OPERATION_DURATION]


def test_number_of_series_is_bounded(reader: InMemoryMetricReader) -> None:
    for n in range(1000):
        metrics.operation_ended(f"user {n}", "create", "memtrace.create", 0.1, "", ("truncated",))
    found = collected(reader)
    assert sum(found[semconv.METRIC_OPERATIONS].values()) == 1000
    assert len(found[semconv.METRIC_OPERATIONS]) <= 257
    assert len(found[semconv.METRIC_TRUNCATIONS]) <= 257


def test_counts_of_threads_add_up(reader: InMemoryMetricReader) -> None:
    def work() -> None:
        for _ in range(5000):
            metrics.operation_ended("s", "create", "memtrace.create", 0.1, "", ())

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert collected(reader)[semconv.METRIC_OPERATIONS] == {("create", "s"): 40_000}


def test_queue_and_spool_are_measured(reader: InMemoryMetricReader, tmp_path: Path) -> None:
    exporter = InMemorySpanExporter()
    exporter.shutdown()  # fails from now on
    processor = LosslessSpanProcessor(exporter, spool_dir=tmp_path, delay_seconds=60.0)
    gc.collect()  # processors of other tests count as long as they live
    before = collected(reader)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    for _ in range(5):
        provider.get_tracer("t").start_span("s").end()
    assert collected(reader)[semconv.METRIC_QUEUE][()] == before[semconv.METRIC_QUEUE][()] + 5
    assert not processor.force_flush(10_000)
    deadline = time.monotonic() + 60
    while not processor.spooled_bytes and time.monotonic() < deadline:  # written by a thread, after the failure
        time.sleep(0.01)
    assert collected(reader)[semconv.METRIC_SPOOL][()] - before[semconv.METRIC_SPOOL][()] == processor.spooled_bytes > 0
    processor.shutdown(0.1)


def test_the_page_lists_every_metric() -> None:
    names = {value for name, value in vars(semconv).items() if name.startswith("METRIC_")}
    rows = {line.split("|")[1].strip(" `") for line in PAGE.read_text().splitlines() if line.startswith("| `")}
    assert names <= rows


def reasons_in(code: str) -> set[str]:
    """What `note_drop(reason)` and `losses.note(span, reason)` are called with, `<>` for what is filled in."""
    found: set[str] = set()
    for call in (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)):
        match call:
            case ast.Call(func=ast.Name("note_drop"), args=[ast.Constant(str(reason)), *_]):
                found.add(reason)
            case ast.Call(func=ast.Name("note_drop"), args=[ast.JoinedStr(parts), *_]):
                found.add("".join(str(part.value) if isinstance(part, ast.Constant) else "<>" for part in parts))
            case ast.Call(func=ast.Attribute(attr="note"), args=[_, ast.Constant(str(reason))]):
                found.add(f"span:{reason}")
    return found


def test_the_page_lists_every_reason_of_a_loss() -> None:
    source = Path(metrics.__file__).parents[1]
    used = set[str]().union(*(reasons_in(path.read_text()) for path in source.rglob("*.py")))
    used -= {"span:<>"}
    table = PAGE.read_text().partition("\n| reason | what was lost |\n")[2].partition("\n\n")[0]
    rows = {line.split("|")[1].strip(" `") for line in table.splitlines() if line.startswith("| `")}
    told = {re.sub(r"<\w+>", "<>", row) for row in rows}
    assert used | {"error:<>"} == told
