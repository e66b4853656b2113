"""Redaction: what is taken out of a content before it leaves the process, and the note that stays in its place."""

from memtrace_otel.capture.redaction.callback import Callback
from memtrace_otel.capture.redaction.redact import Redacted, Redaction, read_redaction

__all__ = ["Callback", "Redacted", "Redaction", "read_redaction"]
