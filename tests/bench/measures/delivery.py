"""A burst of 200,000 spans, faster than they can be encoded: what is lost of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from tempfile import TemporaryDirectory

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from memtrace_otel.capture.delivery import LosslessSpanProcessor
from memtrace_otel.otlp.sdk import encode_sdk_spans
from tests.bench.measure import Measure, at_most, progress

SPANS = 200_000
ATTRIBUTES = {f"memtrace.bench.{n}": "a short value" for n in range(11)}


class Encoding(SpanExporter):
    """Encodes, as every exporter has to, and counts."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        encode_sdk_spans(spans)
        self.numbers.update(span.start_time or 0 for span in spans)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None: ...


def measure() -> Iterator[Measure]:
    progress(f"a burst of {SPANS:,} spans")
    with TemporaryDirectory() as folder:
        exporter, provider = Encoding(), TracerProvider()
        provider.add_span_processor(LosslessSpanProcessor(exporter, spool_dir=folder))
        tracer = provider.get_tracer("bench")
        for number in range(1, SPANS + 1):
            tracer.start_span("burst", attributes=ATTRIBUTES, start_time=number).end()
        provider.force_flush(120_000)
        provider.shutdown()
    lost = SPANS - len(exporter.numbers)
    yield at_most(f"burst of {SPANS:,} spans: lost spans over sent spans", lost, SPANS, 0, "spans")
