"""The verdict as the standard event `gen_ai.evaluation.result`: a span event, and an OTLP log record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from memtrace_otel import semconv
from memtrace_otel.annotate.attributes import EXPLANATION_BYTES, clip
from memtrace_otel.model import AttributeValue, Event, Verdict, split_origin
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
    groups: list[ResourceLogs] = []
    for verdict, time in verdicts:
        answer = verdict.failure.answer_span
        event = evaluation_event(verdict, time)
        groups.append(evaluation_logs(answer.origin, answer.resource, event, "WARN"))
    return ExportLogsServiceRequest(resource_logs=groups).SerializeToString()


def evaluation_logs(
    origin: str, resource: Mapping[str, AttributeValue], event: Event, severity: str = "INFO"
) -> ResourceLogs:
    """Return an event as a log record in the context of the span `origin`."""
    trace_id, span_id = split_origin(origin)
    record = LogRecord(
        time_unix_nano=event.time,
        observed_time_unix_nano=event.time,
        severity_number=SeverityNumber.Value(f"SEVERITY_NUMBER_{severity}"),
        severity_text=severity,
        event_name=event.name,
        attributes=encode_pairs(event.attributes),
        trace_id=bytes.fromhex(trace_id),
        span_id=bytes.fromhex(span_id),
        flags=_SAMPLED,
    )
    scope = InstrumentationScope(name=semconv.ATTRIBUTION_SCOPE, version=__version__)
    return ResourceLogs(
        resource=Resource(attributes=encode_pairs(resource)),
        scope_logs=[ScopeLogs(scope=scope, log_records=[record], schema_url=semconv.SCHEMA_URL)],
    )
