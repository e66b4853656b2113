"""Counters and durations of attribution. No ids and no free text: every attribute has few values."""

from __future__ import annotations

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from memtrace_otel import semconv
from memtrace_otel.model import DURATION_BUCKETS, Attributed, Verdict
from memtrace_otel.version import __version__


class AttributionMetrics:
    """Records verdicts; the exemplars of every instrument point at the failing span."""

    def __init__(self, provider: metrics.MeterProvider | None = None) -> None:
        meter = metrics.get_meter(semconv.ATTRIBUTION_SCOPE, __version__, provider, semconv.SCHEMA_URL)
        self._failures = meter.create_counter(
            semconv.METRIC_FAILURES, "{failure}", "Failing answers by attributed failure type."
        )
        self._incomplete = meter.create_counter(
            semconv.METRIC_INCOMPLETE, "{failure}", "Verdicts that guess, or that lack spans, contents or origins."
        )
        self._duration = meter.create_histogram(
            semconv.METRIC_DURATION,
            "s",
            "Time to attribute one failing answer.",
            explicit_bucket_boundaries_advisory=DURATION_BUCKETS,
        )
        self._replays = meter.create_counter(
            semconv.METRIC_REPLAYS, "{replay}", "Failing answers that were run again, by outcome."
        )
        self._runs = meter.create_counter(semconv.METRIC_RUNS, "{run}", "Attributions by outcome.")

    def attributed(self, verdict: Verdict, seconds: float) -> None:
        """Record one finished attribution."""
        told = Attributed.of(verdict, seconds)
        context = _context(told.trace_id, told.span_id)
        labels = {semconv.SYSTEM: told.system, semconv.SERVICE_NAME: told.service}
        if not told.again:
            self._failures.add(1, {semconv.FAILURE_TYPE: told.failure_type, **labels}, context)
            if not told.complete:
                self._incomplete.add(1, labels, context)
        if verdict.replay:
            self._replays.add(1, {semconv.FAILURE_REPLAY: verdict.replay.outcome, **labels}, context)
        self._record(told.outcome, seconds, context)

    def failed(self, seconds: float) -> None:
        """Record an attribution that ended in an error of ours."""
        self._record("error", seconds, None)

    def _record(self, outcome: str, seconds: float, context: Context | None) -> None:
        self._duration.record(seconds, {semconv.OUTCOME: outcome}, context)
        self._runs.add(1, {semconv.OUTCOME: outcome}, context)


def _context(trace_id: str, span_id: str) -> Context:
    """Return a context in which the failing span is current, sampled so that exemplars are taken."""
    where = SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return trace.set_span_in_context(NonRecordingSpan(where))
