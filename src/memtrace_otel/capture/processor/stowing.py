"""Spans to the spool."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan

from memtrace_otel.capture.guard import note_error
from memtrace_otel.capture.processor.loss import Losses
from memtrace_otel.capture.processor.segment import MAX_RECORD, Record
from memtrace_otel.capture.processor.spool import Spool, SpoolFull
from memtrace_otel.otlp.sdk import encode_sdk_spans

PIECE = 64
"""Spans that are written in one step. A thread that writes gives up the interpreter lock, and may wait long for it."""


def stow(
    spans: Sequence[ReadableSpan], spool: Spool, losses: Losses, bound: int | None = None
) -> tuple[list[Record], Sequence[ReadableSpan]]:
    """Write each span to the spool, as a request of its own; return what was written and the spans it has no room for.

    They fill it to `bound` bytes, see `Spool`. A span that cannot be encoded, or is too long for the spool, is lost.
    """
    records: list[Record] = []
    done, step = 0, 1 if spool.stuck else PIECE
    while done < len(spans):
        piece = spans[done : done + step]
        encoded = [(span, _encode(span)) for span in piece]
        try:
            if bodies := [body for _, body in encoded if body is not None]:
                records += spool.append(*bodies, bound=bound)
        except OSError as error:
            if isinstance(error, SpoolFull) and len(piece) > 1:  # fewer may have room
                step = len(piece) // 2
                continue
            if not isinstance(error, SpoolFull | TimeoutError):
                note_error("spool", error)
            break
        for span, body in encoded:
            if body is None:
                losses.note(span, "unencodable")
        done += len(piece)
    return records, spans[done:]


def _encode(span: ReadableSpan) -> bytes | None:
    try:
        body = encode_sdk_spans((span,))
    except Exception as error:
        note_error("spool.encode", error)
        return None
    return body if len(body) <= MAX_RECORD else None
