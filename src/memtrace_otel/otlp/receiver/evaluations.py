"""Log records `gen_ai.evaluation.result` as judge spans: what says that an answer failed is then in its trace."""

from __future__ import annotations

import hashlib
import time as clock

from google.protobuf.message import DecodeError as ProtobufError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from memtrace_otel import semconv
from memtrace_otel.model import make_origin, make_ref
from memtrace_otel.otlp.receiver.intake import RequestError
from memtrace_otel.otlp.receiver.limits import Limits
from memtrace_otel.otlp.receiver.pieces import Cutter, Piece, wrapped
from memtrace_otel.otlp.receiver.requests import Checked
from memtrace_otel.otlp.receiver.wire import WireError

_SYSTEM = "evaluation"
_EVENT_NAME = "event.name"
"""The attribute that was the name of an event before OTLP had a field for it."""
_OTHER = f"only {semconv.EVALUATION_EVENT} records in the context of a span are taken"


def check_logs(body: bytes, limits: Limits) -> Checked:
    """Return the evaluations of an ExportLogsServiceRequest as a trace request; other log records are refused.

    The same record is the same span however often it is sent. Our own verdicts, which come back to a server that sends
    them to itself, are no evaluations: they are taken and not kept, since who sends them takes a refusal for a loss.
    Raises RequestError when the request cannot be read.
    """
    cutter = Cutter(body, limits, ExportLogsServiceRequest)
    try:
        groups = cutter.cut()
        resources = [ExportLogsServiceRequest.FromString(wrapped(group.shared, 1)) for group in groups]
    except (WireError, ProtobufError):
        raise RequestError("not an OTLP logs request in protobuf, cut off, or nested too deeply") from None
    if body and not groups:
        raise RequestError("not an OTLP logs request: it holds no resourceLogs")
    converted: list[ResourceSpans] = []
    refusals: list[str] = []
    kept = 0
    for group, shared in zip(groups, resources, strict=True):
        read = [_evaluation(cutter, piece, limits) for piece in group.pieces]
        refusals += (refusal for refusal in read if isinstance(refusal, str))
        records = (record for record in read if isinstance(record, LogRecord))
        spans = [_judge_span(record) for record in records if not _is_verdict(record)]
        kept += len(spans)
        if spans:
            scope = ScopeSpans(scope=InstrumentationScope(name=semconv.EVALUATION_EVENT), spans=spans)
            converted.append(ResourceSpans(resource=shared.resource_logs[0].resource, scope_spans=[scope]))
    # who sends all logs here is told first why an evaluation was refused
    reason = next((refusal for refusal in refusals if refusal != _OTHER), _OTHER if refusals else "")
    taken = ExportTraceServiceRequest(resource_spans=converted)
    return Checked(taken.SerializeToString(), kept, len(refusals), reason)


def _evaluation(cutter: Cutter, piece: Piece, limits: Limits) -> LogRecord | str:
    """Return the log record when it is an evaluation that can be taken, else why not."""
    size = piece.end - piece.start
    if size > limits.span_bytes:
        return f"a log record of {size} bytes, at most {limits.span_bytes} are taken"
    try:
        request = ExportLogsServiceRequest.FromString(cutter.piece(piece))
    except ProtobufError:
        return "a log record that is no valid protobuf, or nested too deeply, past 100 levels"
    record = request.resource_logs[0].scope_logs[0].log_records[0]
    if not _is_evaluation(record):
        return _OTHER
    if len(record.attributes) > limits.entries:
        return f"a log record with {len(record.attributes)} attributes, at most {limits.entries} are taken"
    return record


def _is_evaluation(record: LogRecord) -> bool:
    return (
        semconv.EVALUATION_EVENT in ([record.event_name] if record.event_name else _values(record, _EVENT_NAME))
        and len(record.trace_id) == 16
        and any(record.trace_id)
        and len(record.span_id) == 8
        and any(record.span_id)
    )


def _is_verdict(record: LogRecord) -> bool:
    return semconv.ATTRIBUTION_EVALUATION in _values(record, semconv.EVALUATION_NAME)


def _values(record: LogRecord, name: str) -> list[str]:
    return [pair.value.string_value for pair in record.attributes if pair.key == name]


def _judge_span(record: LogRecord) -> Span:
    """A span without duration under the judged one, now when the record says no time."""
    origin = make_origin(record.trace_id.hex(), record.span_id.hex())
    time = record.time_unix_nano or record.observed_time_unix_nano or clock.time_ns()
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
