"""The evaluation event as an OTLP log record."""

from __future__ import annotations

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from memtrace_otel.annotate.evaluation import encode_evaluations, evaluation_event
from memtrace_otel.otlp.values import attributes, decode_pairs
from tests.unit.annotate.conftest import ANSWER, ASKED, RESOURCE, UPDATE, verdict_on


def test_log_record_is_in_the_context_of_the_failing_answer() -> None:
    verdict = verdict_on(UPDATE, attribution_id="1")
    request = ExportLogsServiceRequest.FromString(encode_evaluations([(verdict, 900)]))
    (resource_logs,) = request.resource_logs
    (scope_logs,) = resource_logs.scope_logs
    (record,) = scope_logs.log_records
    assert attributes(decode_pairs(resource_logs.resource.attributes)) == RESOURCE
    assert scope_logs.scope.name == "memtrace_otel.attribution"
    assert (record.event_name, record.time_unix_nano) == ("gen_ai.evaluation.result", 900)
    assert (record.trace_id.hex(), record.span_id.hex()) == (ASKED, ANSWER.span_id)
    assert attributes(decode_pairs(record.attributes)) == evaluation_event(verdict, 900).attributes


def test_a_verdict_without_reason_has_no_explanation() -> None:
    assert "gen_ai.evaluation.explanation" not in evaluation_event(verdict_on(UPDATE, reason=""), 1).attributes
