"""The OTLP replies."""

from __future__ import annotations

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from memtrace_otel.otlp.receiver.intake import Acknowledgement, Signal


def export_response(
    signal: Signal, acknowledgement: Acknowledgement
) -> ExportTraceServiceResponse | ExportLogsServiceResponse:
    """Return the reply to a request that was taken; without a partial success when nothing was rejected."""
    rejected, reason = acknowledgement.rejected, acknowledgement.reason
    if signal is Signal.TRACES:
        traces = ExportTraceServiceResponse()
        if rejected:
            traces.partial_success.rejected_spans, traces.partial_success.error_message = rejected, reason
        return traces
    logs = ExportLogsServiceResponse()
    if rejected:
        logs.partial_success.rejected_log_records, logs.partial_success.error_message = rejected, reason
    return logs
