"""Spans to the spool; what does not get there is dropped and counted."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan

from memtrace_otel.capture.guard import note_error
from memtrace_otel.capture.processor.loss import Losses
from memtrace_otel.capture.processor.segment import Record
from memtrace_otel.capture.processor.spool import Spool, SpoolFull


def stow(spans: Sequence[ReadableSpan], spool: Spool, losses: Losses) -> list[Record]:
    """Write each span to the spool, as a request of its own; return what was written."""
    records: list[Record] = []
    refused = ""
    for span in spans:
        if not refused:
            try:
                records.append(spool.append(encode_spans((span,)).SerializeToString()))
                continue
            except SpoolFull:
                refused = "spool_full"
            except OSError as error:
                note_error("spool", error)
                refused = "spool_error"
            except Exception as error:  # this span cannot be encoded, the next one may
                note_error("spool.encode", error)
                losses.note(span, "unencodable")
                continue
        losses.note(span, refused)
    return records
