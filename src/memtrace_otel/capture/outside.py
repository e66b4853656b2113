"""Texts that a person gives outside the observed program: on the command line, and to `serve`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from memtrace_otel import settings
from memtrace_otel.capture.config import read_config, redaction
from memtrace_otel.capture.content import describe
from memtrace_otel.otlp.feedback import TEXT_BYTES, Text
from memtrace_otel.semconv import Incomplete


def outside() -> Callable[[str], Text]:
    """Return what says how much of a text may be kept: redacted as every content, and nothing of it where contents are
    switched off. The default is no such decision: who gives a text here wants it kept."""
    off = settings.CAPTURE_CONTENT.find().source != "default" and not settings.captures_content()
    limits = replace(read_config(), content=not off, preview_bytes=TEXT_BYTES, redaction=redaction())

    def described(text: str) -> Text:
        found = describe(text, limits, inline=True)
        reasons = (*found.reasons, Incomplete.CONTENT_OFF) if off and text else found.reasons
        return Text(found.digest, found.shown, "", tuple(map(str, reasons)))

    return described
