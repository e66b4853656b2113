"""Log records `gen_ai.evaluation.result` as judge spans: what says that an answer failed is then in its trace."""

from __future__ import annotations

import hashlib

from google.protobuf.message import DecodeError as ProtobufError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from memtrace_otel import semconv
from memtrace_otel.model import make_origin, make_ref
from memtrace_otel.otlp.receiver.intake import RequestError, TooLargeError
from memtrace_otel.otlp.receiver.limits import Limits
from memtrace_otel.otlp.receiver.requests import Checked

_SYSTEM = "evaluation"


def check_logs(body: bytes, limits: Limits) -> Checked:
    """Return the evaluations of an ExportLogsServiceRequest as a trace request; other log records are refused.

    The same record is the same span however often it is sent. Raises RequestError when the request cannot be read.
    """
    try:
        request = ExportLogsServiceRequest.FromString(body)
    except ProtobufError:
        raise RequestError("not an OTLP logs request in protobuf, cut off, or nested too deeply") from None
    if body and not request.resource_logs:
        raise RequestError("not an OTLP logs request: it holds no resourceLogs")
    total = sum(len(scope_logs.log_records) for group in request.resource_logs for scope_logs in group.scope_logs)
    if total > limits.spans:
        raise TooLargeError(f"{total} log records in one request, at most {limits.spans} are taken")
    converted: list[ResourceSpans] = []
    for group in request.resource_logs:
        records = [record for scope_logs in group.scope_logs for record in scope_logs.log_records]
        spans = [_judge_span(record) for record in records if _is_evaluation(record, limits)]
        if spans:
            scope = ScopeSpans(scope=InstrumentationScope(name=semconv.EVALUATION_EVENT), spans=spans)
            converted.append(ResourceSpans(resource=group.resource, scope_spans=[scope]))
    taken = sum(len(group.scope_spans[0].spans) for group in converted)
    reason = f"only {semconv.EVALUATION_EVENT} records in the context of a span are taken" if taken < total else ""
    return Checked(
        ExportTraceServiceRequest(resource_spans=converted).SerializeToString(), taken, total - taken, reason
    )


def _is_evaluation(record: LogRecord, limits: Limits) -> bool:
    return (
        record.event_name == semconv.EVALUATION_EVENT
        and len(record.trace_id) == 16
        and any(record.trace_id)
        and len(record.span_id) == 8
        and any(record.span_id)
        and len(record.attributes) <= limits.entries
    )


def _judge_span(record: LogRecord) -> Span:
    """A span without duration under the judged one."""
    origin = make_origin(record.trace_id.hex(), record.span_id.hex())
    time = record.time_unix_nano or record.observed_time_unix_nano
    named = hashlib.sha256(record.SerializeToString(deterministic=True)).digest()[:8]
    return Span(
        trace_id=record.trace_id,
        span_id=named,
        parent_span_id=record.span_id,
        name=semconv.SPAN_NAME_PREFIX + semconv.OpKind.JUDGE,
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=time,
        end_time_unix_nano=time,
        attributes=[
            *record.attributes,
            _text(semconv.OP_KIND, semconv.OpKind.JUDGE),
            _text(semconv.SYSTEM, _SYSTEM),
            _texts(semconv.INPUTS, make_ref(semconv.RefKind.ANSWER, record.span_id.hex())),
            _texts(semconv.INPUTS_ROLES, semconv.Role.ANSWER),
            _texts(semconv.INPUTS_ORIGINS, origin),
        ],
    )


def _text(key: str, text: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=text))


def _texts(key: str, text: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(array_value=ArrayValue(values=[AnyValue(string_value=text)])))
