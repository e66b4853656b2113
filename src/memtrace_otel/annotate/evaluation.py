"""The verdict as the standard event `gen_ai.evaluation.result`: a span event, and an OTLP log record."""

from __future__ import annotations

from collections.abc import Iterable

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import SEVERITY_NUMBER_WARN, LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from memtrace_otel import semconv
from memtrace_otel.annotate.attributes import EXPLANATION_BYTES, clip
from memtrace_otel.model import AttributeValue, Event, Verdict
from memtrace_otel.otlp.values import encode_pairs
from memtrace_otel.version import __version__

_SAMPLED = 1


def evaluation_event(verdict: Verdict, time: int) -> Event:
    """Return the event: label = failure type, score = confidence, explanation = reason."""
    attributes: dict[str, AttributeValue] = {
        semconv.EVALUATION_NAME: semconv.ATTRIBUTION_EVALUATION,
        semconv.EVALUATION_SCORE: verdict.confidence,
        semconv.EVALUATION_LABEL: verdict.failure_type,
        semconv.ATTRIBUTION_ID: verdict.attribution_id,
    }
    if verdict.reason:
        attributes[semconv.EVALUATION_EXPLANATION] = clip(verdict.reason, EXPLANATION_BYTES)
    response_id = verdict.failure.answer_span.attributes.get(semconv.GEN_AI_RESPONSE_ID)
    if response_id:
        attributes[semconv.GEN_AI_RESPONSE_ID] = response_id
    return Event(semconv.EVALUATION_EVENT, time, attributes)


def encode_evaluations(verdicts: Iterable[tuple[Verdict, int]]) -> bytes:
    """Return an ExportLogsServiceRequest: per verdict and time one record, in the context of the failing answer."""
    return ExportLogsServiceRequest(
        resource_logs=[_resource_logs(verdict, time) for verdict, time in verdicts]
    ).SerializeToString()


def _resource_logs(verdict: Verdict, time: int) -> ResourceLogs:
    answer = verdict.failure.answer_span
    record = LogRecord(
        time_unix_nano=time,
        observed_time_unix_nano=time,
        severity_number=SEVERITY_NUMBER_WARN,
        severity_text="WARN",
        event_name=semconv.EVALUATION_EVENT,
        attributes=encode_pairs(evaluation_event(verdict, time).attributes),
        trace_id=bytes.fromhex(answer.trace_id),
        span_id=bytes.fromhex(answer.span_id),
        flags=_SAMPLED,
    )
    scope = InstrumentationScope(name=semconv.ATTRIBUTION_SCOPE, version=__version__)
    return ResourceLogs(
        resource=Resource(attributes=encode_pairs(answer.resource)),
        scope_logs=[ScopeLogs(scope=scope, log_records=[record], schema_url=semconv.SCHEMA_URL)],
    )
