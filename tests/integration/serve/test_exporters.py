"""The exporters of the SDK against a running server: acknowledged spans are in the file."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from typing import Any

import grpc
import pytest
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import set_span_in_context

from memtrace_otel.capture import operation, scope_id
from memtrace_otel.serve.progress import Process
from memtrace_otel.sources import SqliteStore
from tests.integration.serve.conftest import Server, Start

EXPORTERS = ("grpc", "grpc+gzip", "http", "http+gzip")


def exporter(server: Server, kind: str) -> SpanExporter:
    if kind.startswith("grpc"):
        compression = grpc.Compression.Gzip if kind.endswith("gzip") else grpc.Compression.NoCompression
        return GrpcExporter(endpoint=server.grpc, insecure=True, compression=compression)
    compression = Compression.Gzip if kind.endswith("gzip") else Compression.NoCompression
    return HttpExporter(endpoint=f"{server.http}/v1/traces", compression=compression)


def spans(count: int) -> list[ReadableSpan]:
    tracer = TracerProvider().get_tracer("memtrace_otel.test")
    made: list[Any] = []
    for number in range(count):
        with tracer.start_as_current_span(f"span {number}", attributes={"number": number}) as span:
            made.append(span)
    return made


def ids(some: list[ReadableSpan]) -> set[str]:
    return {f"{span.get_span_context().span_id:016x}" for span in some}  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", EXPORTERS)
def test_spans_of_the_sdk_exporters_are_stored(start: Start, kind: str) -> None:
    server = start()
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter(server, kind)))
    with operation(
        "search_memory",
        kind="retrieve",
        system="t",
        scope=scope_id("store", user="ana"),
        tracer=provider.get_tracer("memtrace_otel.t"),
    ) as search:
        search.read("memory:1", role="hit")
        search.wrote("context:1", role="context")
    provider.shutdown()
    trace_id = search.origin.partition("-")[0]
    server.until(lambda: server.metric("decoded_spans") == 1)
    assert server.terminate() == 0
    with SqliteStore.open(server.database, create=False) as store:
        (span,) = store.trace(trace_id)
    assert (span.kind, span.inputs[0].ref, span.outputs[0].ref) == ("retrieve", "memory:1", "context:1")


@pytest.mark.parametrize("kind", EXPORTERS)
def test_acknowledged_spans_survive_kill_9(start: Start, kind: str) -> None:
    server = start()
    acknowledged: set[str] = set()

    def export() -> None:
        sender = exporter(server, kind)
        while server.process.poll() is None:
            some = spans(50)
            if sender.export(some) is SpanExportResult.SUCCESS:
                acknowledged.update(ids(some))
            elif server.process.poll() is not None:
                return

    threads = [threading.Thread(target=export, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    server.until(lambda: len(acknowledged) > 2000)
    time.sleep(random.random() / 10)
    server.kill()
    for thread in threads:
        thread.join(15)
    assert len(acknowledged) > 2000
    assert acknowledged <= server.span_ids()


def test_a_killed_decoding_process_is_restarted_and_loses_no_span(start: Start) -> None:
    server = start()
    sender = exporter(server, "http")
    first, second = spans(20), spans(20)
    assert sender.export(first) is SpanExportResult.SUCCESS
    os.kill(server.child(Process.DECODING), signal.SIGKILL)
    assert sender.export(second) is SpanExportResult.SUCCESS
    server.until(lambda: server.restarts(Process.DECODING) == 1)
    server.until(lambda: server.metric("inbox_bytes") == 0)
    assert server.terminate() == 0
    assert ids([*first, *second]) <= server.span_ids()


@pytest.mark.parametrize("kind", ["grpc", "http"])
def test_evaluations_in_logs_become_judge_spans(start: Start, kind: str) -> None:
    server = start()
    provider = LoggerProvider()
    log_exporter = (
        GrpcLogExporter(endpoint=server.grpc, insecure=True)
        if kind == "grpc"
        else HttpLogExporter(endpoint=f"{server.http}/v1/logs")
    )
    provider.add_log_record_processor(SimpleLogRecordProcessor(log_exporter))
    (answer,) = spans(1)
    provider.get_logger("judge").emit(
        LogRecord(
            timestamp=time.time_ns(),
            context=set_span_in_context(answer),  # type: ignore[arg-type]
            severity_number=SeverityNumber.WARN,
            event_name="gen_ai.evaluation.result",
            attributes={"gen_ai.evaluation.name": "correctness", "gen_ai.evaluation.score.label": "fail"},
        )
    )
    context = answer.get_span_context()
    assert context is not None
    server.until(lambda: server.metric("decoded_spans") == 1)
    with SqliteStore.open(server.database, create=False) as store:
        (judge,) = store.trace(f"{context.trace_id:032x}")
    assert (judge.kind, judge.parent_id) == ("judge", f"{context.span_id:016x}")
    assert judge.attributes["gen_ai.evaluation.score.label"] == "fail"
