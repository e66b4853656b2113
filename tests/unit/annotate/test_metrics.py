"""Metrics of attribution, with exemplars on the failing span."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricsData

from memtrace_otel.annotate import AttributionMetrics
from memtrace_otel.model import DURATION_BUCKETS
from tests.unit.annotate.conftest import ANSWER, ASKED, UPDATE, verdict_on


def points(data: MetricsData | None) -> dict[str, list[object]]:
    assert data is not None
    return {
        metric.name: list(metric.data.data_points)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_failures_are_counted_by_type_with_the_failing_span_as_exemplar() -> None:
    reader = InMemoryMetricReader()
    measured = AttributionMetrics(MeterProvider([reader]))
    measured.attributed(verdict_on(UPDATE), 0.25)
    found = points(reader.get_metrics_data())
    (failures,) = found["memtrace.attribution.failures"]
    assert failures.value == 1
    assert failures.attributes == {
        "memtrace.failure.type": "update",
        "memtrace.system": "mem0",
        "service.name": "assistant",
    }
    (duration,) = found["memtrace.attribution.duration"]
    assert (duration.sum, duration.explicit_bounds) == (0.25, DURATION_BUCKETS)
    for (point,) in found.values():
        (exemplar,) = point.exemplars
        assert (exemplar.trace_id, exemplar.span_id) == (int(ASKED, 16), int(ANSWER.span_id, 16))


def test_verdicts_made_with_something_missing_are_counted_on_top() -> None:
    reader = InMemoryMetricReader()
    measured = AttributionMetrics(MeterProvider([reader]))
    measured.attributed(verdict_on(UPDATE), 1)
    assert "memtrace.attribution.incomplete" not in points(reader.get_metrics_data())
    measured.attributed(verdict_on(UPDATE, complete=False), 1)
    found = points(reader.get_metrics_data())
    (incomplete,) = found["memtrace.attribution.incomplete"]
    assert (incomplete.value, incomplete.attributes) == (1, {"memtrace.system": "mem0", "service.name": "assistant"})
    assert [point.value for point in found["memtrace.attribution.failures"]] == [2]


def test_an_answer_is_counted_once_under_each_type_whatever_replaces_its_verdict() -> None:
    reader = InMemoryMetricReader()
    measured = AttributionMetrics(MeterProvider([reader]))
    measured.attributed(verdict_on(UPDATE, complete=False), 1)
    measured.attributed(verdict_on(UPDATE, complete=False, earlier_types=frozenset({"update"})), 1)
    measured.attributed(verdict_on(UPDATE, failure_type="extraction", earlier_types=frozenset({"update"})), 1)
    found = points(reader.get_metrics_data())
    failures = [(one.attributes["memtrace.failure.type"], one.value) for one in found["memtrace.attribution.failures"]]
    assert sorted(failures) == [("extraction", 1), ("update", 1)]
    assert [point.value for point in found["memtrace.attribution.incomplete"]] == [1]
    assert [point.value for point in found["memtrace.attribution.runs"]] == [3]


@pytest.mark.parametrize(
    ("failure_type", "outcome"),
    [("extraction", "attributed"), ("unknown", "abstained"), ("judge", "non_system"), ("annotation", "non_system")],
)
def test_runs_are_counted_by_outcome(failure_type: str, outcome: str) -> None:
    reader = InMemoryMetricReader()
    AttributionMetrics(MeterProvider([reader])).attributed(verdict_on(None, failure_type=failure_type), 1)
    (run,) = points(reader.get_metrics_data())["memtrace.attribution.runs"]
    assert run.attributes == {"memtrace.attribution.outcome": outcome}


def test_an_attribution_that_broke_counts_as_an_error() -> None:
    reader = InMemoryMetricReader()
    AttributionMetrics(MeterProvider([reader])).failed(2)
    found = points(reader.get_metrics_data())
    assert "memtrace.attribution.failures" not in found
    (run,) = found["memtrace.attribution.runs"]
    assert run.attributes == {"memtrace.attribution.outcome": "error"}
