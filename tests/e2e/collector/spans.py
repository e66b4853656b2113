"""Spans with content of one's own choice, sent as an exporter sends them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Sequence
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs

from memtrace_otel.annotate.send import send
from memtrace_otel.annotate.target import read_target
from memtrace_otel.model import AttributeValue, Event, OperationSpan, Variable
from memtrace_otel.otlp import encode_request
from memtrace_otel.otlp.values import encode_any, encode_pairs


def new_trace() -> str:
    """A trace id."""
    return secrets.token_hex(16)


def span(trace_id: str, name: str = "GET /", kind: str = "", **fields: Any) -> OperationSpan:
    """A span that ended now; without `kind` it is none of a memory."""
    now = time.time_ns()
    given: dict[str, Any] = {"start": now - 1_000_000, "end": now, "resource": {"service.name": "e2e"}, **fields}
    if kind:
        given = {"system": "e2e", "scope": "0" * 16, "instrumentation_scope": "memtrace_otel.e2e", **given}
    return OperationSpan(trace_id, secrets.token_hex(8), "", name, kind, **given)


def memory(trace_id: str, *contents: str, **fields: Any) -> OperationSpan:
    """An operation that read and wrote these contents."""
    read = tuple(Variable(f"message:{number}", "message", content=text) for number, text in enumerate(contents))
    wrote = tuple(
        Variable(f"memory:{number}", "other", content=text, action="ADD") for number, text in enumerate(contents)
    )
    return span(trace_id, "create_memory", "create", inputs=read, outputs=wrote, **fields)


def evaluation(label: str, **attributes: str) -> Event:
    """The standard event of an evaluation."""
    return Event("gen_ai.evaluation.result", time.time_ns(), {"gen_ai.evaluation.score.label": label, **attributes})


def tell(endpoint: str, spans: Iterable[OperationSpan]) -> Sequence[OperationSpan]:
    """Send to `endpoint` (host:port, gRPC) and return the spans; raises SendError when they are not taken."""
    told = list(spans)
    target = read_target("traces", f"http://{endpoint}", environ={})
    assert target is not None
    send(target, encode_request(told))
    return told


def tell_log(
    endpoint: str, answer: OperationSpan, scope: str, event: str, body: AttributeValue = "", **attributes: str
) -> None:
    """Send a log record `event` in the context of `answer`, a failed evaluation if that is what it is called."""
    record = LogRecord(
        time_unix_nano=time.time_ns(),
        event_name=event,
        trace_id=bytes.fromhex(answer.trace_id),
        span_id=bytes.fromhex(answer.span_id),
        body=encode_any(body),
        attributes=encode_pairs(
            {"gen_ai.evaluation.score.label": "fail", "gen_ai.evaluation.name": "e2e", **attributes}
        ),
    )
    logs = ResourceLogs(scope_logs=[ScopeLogs(scope=InstrumentationScope(name=scope), log_records=[record])])
    target = read_target("logs", f"http://{endpoint}", environ={})
    assert target is not None
    send(target, ExportLogsServiceRequest(resource_logs=[logs]).SerializeToString())
