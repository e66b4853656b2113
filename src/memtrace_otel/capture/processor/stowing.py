"""Spans to the spool."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan

from memtrace_otel.capture.guard import note_error
from memtrace_otel.capture.processor.loss import Losses
from memtrace_otel.capture.processor.segment import Record
from memtrace_otel.capture.processor.spool import Spool, SpoolFull
from memtrace_otel.otlp.sdk import encode_sdk_spans


def stow(
    spans: Sequence[ReadableSpan], spool: Spool, losses: Losses, lock_seconds: float = 1.0
) -> tuple[list[Record], Sequence[ReadableSpan]]:
    """Write each span to the spool, as a request of its own; return what was written and the spans it has no room for.

    A span that cannot be encoded is lost. Waits at most `lock_seconds` for a disk that another thread writes to.
    """
    records: list[Record] = []
    for number, span in enumerate(spans):
        try:
            body = encode_sdk_spans((span,))
        except Exception as error:
            note_error("spool.encode", error)
            losses.note(span, "unencodable")
            continue
        try:
            records.append(spool.append(body, lock_seconds))
        except OSError as error:
            if not isinstance(error, SpoolFull | TimeoutError):
                note_error("spool", error)
            return records, spans[number:]
    return records, ()
