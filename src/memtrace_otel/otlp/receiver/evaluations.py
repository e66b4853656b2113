"""Log records `gen_ai.evaluation.result` as judge spans, so that the trace itself says that its answer failed."""

from __future__ import annotations

import hashlib
import time as clock

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from memtrace_otel import semconv
from memtrace_otel.model import AttributeValue, make_origin, make_ref
from memtrace_otel.otlp.receiver.requests import Checked, Limits, RequestError, parse
from memtrace_otel.otlp.values import encode_pairs

_SYSTEM = "evaluation"
_OTHER = f"only {semconv.EVALUATION_EVENT} records in the context of a span are taken"


def check_logs(body: bytes, limits: Limits) -> Checked:
    """Return the evaluations of an ExportLogsServiceRequest as a trace request; other log records are rejected.

    The same record always becomes the same span. Verdicts of this program, which come back when a server sends to
    itself, and reviews say nothing of themselves about an answer: they are acknowledged and not kept. Raises
    RequestError for a malformed request, or one past a limit.
    """
    request = parse(body, ExportLogsServiceRequest, "logs")
    if body and not request.resource_logs:
        raise RequestError("not an OTLP logs request: it holds no resourceLogs")
    groups = [(group, [r for scope in group.scope_logs for r in scope.log_records]) for group in request.resource_logs]
    limits.check_count(sum(len(group.scope_logs) + len(records) for group, records in groups))
    limits.check_count(len(groups))
    traces = ExportTraceServiceRequest()
    refusals: list[str] = []
    spans = 0
    for group, records in groups:
        reasons = [limits.refusal(record) if _is_evaluation(record) else _OTHER for record in records]
        refusals += filter(None, reasons)
        good = [record for record, reason in zip(records, reasons, strict=True) if not reason]
        if judges := [_judge_span(record) for record in good if not _is_ours(record)]:
            spans += len(judges)
            scope = ScopeSpans(scope=InstrumentationScope(name=semconv.EVALUATION_EVENT), spans=judges)
            traces.resource_spans.append(ResourceSpans(resource=group.resource, scope_spans=[scope]))
    # A sender of all kinds of logs learns first why an evaluation was refused.
    reason = next((refusal for refusal in refusals if refusal != _OTHER), _OTHER if refusals else "")
    return Checked(traces.SerializeToString(), spans, len(refusals), reason)


def _is_evaluation(record: LogRecord) -> bool:
    names = [record.event_name] if record.event_name else _values(record, semconv.EVENT_NAME)
    ids = (record.trace_id, 16), (record.span_id, 8)
    return semconv.EVALUATION_EVENT in names and all(len(id) == size and any(id) for id, size in ids)


def _is_ours(record: LogRecord) -> bool:
    names = {semconv.ATTRIBUTION_EVALUATION, semconv.REVIEW_EVALUATION}
    return not names.isdisjoint(_values(record, semconv.EVALUATION_NAME))


def _values(record: LogRecord, name: str) -> list[str]:
    return [pair.value.string_value for pair in record.attributes if pair.key == name]


def _judge_span(record: LogRecord) -> Span:
    """Return a span without duration under the judged span; a record without a time gets the present time."""
    origin = make_origin(record.trace_id.hex(), record.span_id.hex())
    time = record.time_unix_nano or record.observed_time_unix_nano or clock.time_ns()
    judge: dict[str, AttributeValue] = {
        semconv.OP_KIND: semconv.OpKind.JUDGE,
        semconv.SYSTEM: _SYSTEM,
        semconv.INPUTS: [make_ref(semconv.RefKind.ANSWER, record.span_id.hex())],
        semconv.INPUTS_ROLES: [semconv.Role.ANSWER],
        semconv.INPUTS_ORIGINS: [origin],
    }
    return Span(
        trace_id=record.trace_id,
        span_id=hashlib.sha256(record.SerializeToString(deterministic=True)).digest()[:8],
        parent_span_id=record.span_id,
        name=semconv.SPAN_NAME_PREFIX + semconv.OpKind.JUDGE,
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=time,
        end_time_unix_nano=time,
        attributes=[*record.attributes, *encode_pairs(judge)],
    )
