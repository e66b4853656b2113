"""What a scrape of the server gets."""

from __future__ import annotations

from collections import Counter

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from memtrace_otel.otlp.receiver import Cause
from memtrace_otel.semconv import FailureType
from memtrace_otel.serve.metrics import Metrics
from memtrace_otel.serve.progress import Progress, Seen
from tests.unit.pipeline.test_metrics import DONE, OPENMETRICS

OF_ASSISTANT = {"memtrace_system": "mem0", "service_name": "assistant"}


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def value(metrics: Metrics, name: str, **labels: str) -> float:
    families = read_text(metrics.exposition("")[0].decode())
    (found,) = [s.value for family in families for s in family.samples if (s.name, s.labels) == (name, labels)]
    return found


def test_plain_prometheus_text_is_the_default(metrics: Metrics) -> None:
    metrics.acknowledged(5, 100, 1)
    metrics.refused(Cause.LATE)
    metrics.inbox(7, 100, 0.5)
    assert metrics.exposition("")[1].startswith("text/plain; version=0.0.4")
    assert value(metrics, "memtrace_serve_acknowledged_spans_total") == 5
    assert value(metrics, "memtrace_serve_inbox_bytes") == 7
    assert value(metrics, "memtrace_serve_inbox_limit_bytes") == 100
    assert value(metrics, "memtrace_serve_refused_requests_total", reason="late") == 1


def test_openmetrics_on_request_has_exemplars_that_point_at_the_failing_span(metrics: Metrics) -> None:
    metrics.progressed(Progress(verdicts=1, attributed=(DONE,)))
    body, content_type = metrics.exposition(OPENMETRICS)
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    samples = [sample for family in read_openmetrics(body.decode()) for sample in family.samples]
    shown = {sample.name: sample.exemplar for sample in samples if sample.exemplar}
    assert set(shown) == {
        "memtrace_attribution_failures_total",
        "memtrace_attribution_incomplete_total",
        "memtrace_attribution_runs_total",
        "memtrace_attribution_duration_seconds_bucket",
    }
    ids = {"trace_id": DONE.trace_id, "span_id": DONE.span_id}
    assert all(exemplar.labels == ids for exemplar in shown.values())


@pytest.mark.parametrize("reported", ["seen", "answering"])
def test_a_service_that_answers_has_every_failure_type_at_zero(metrics: Metrics, reported: str) -> None:
    seen = Counter({(Seen.ANSWERS, "mem0", "assistant"): 2})
    answering = frozenset({("mem0", "assistant")})
    metrics.progressed(Progress(2, seen=seen) if reported == "seen" else Progress(answering=answering))
    name = "memtrace_attribution_failures_total"
    for kind in FailureType:
        assert value(metrics, name, memtrace_failure_type=kind, **OF_ASSISTANT) == 0
    metrics.progressed(Progress(verdicts=1, attributed=(DONE,)))
    metrics.progressed(Progress(2, seen=seen))
    assert value(metrics, name, memtrace_failure_type="update", **OF_ASSISTANT) == 1
    assert value(metrics, "memtrace_attribution_incomplete_total", **OF_ASSISTANT) == 1
    assert value(metrics, "memtrace_serve_answers_total", **OF_ASSISTANT) == (4 if reported == "seen" else 2)


def test_attributions_are_counted_by_outcome(metrics: Metrics) -> None:
    metrics.progressed(Progress(verdicts=1, attributed=(DONE,)))
    metrics.progressed(Progress(errors=1))
    runs = {
        outcome: value(metrics, "memtrace_attribution_runs_total", memtrace_attribution_outcome=outcome)
        for outcome in ("attributed", "abstained", "non_system", "error")
    }
    assert runs == {"attributed": 1, "abstained": 0, "non_system": 0, "error": 1}


def test_names_that_senders_choose_make_a_bounded_number_of_series(metrics: Metrics) -> None:
    for number in range(300):
        metrics.progressed(Progress(1, seen=Counter({(Seen.ANSWERS, "mem0", f"service {number}"): 1})))
    families = {family.name: family.samples for family in read_text(metrics.exposition("")[0].decode())}
    answers = families["memtrace_serve_answers"]
    assert (len(answers), sum(sample.value for sample in answers)) == (201, 300)
    assert len(families["memtrace_attribution_failures"]) == 201 * len(FailureType)
