"""The one table of settings. `docs/reference/settings.md` is checked against it.

A value is read from the environment when asked for, so that tests and late configuration see the current one; capture
reads its values once per process (`capture.config`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T", str, int, float, bool)

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off", ""})


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """One environment variable: its name, type (that of the default), default and help."""

    env: str
    default: T
    help: str

    def read(self, environ: dict[str, str] | None = None) -> T:
        """Return the current value; a value that cannot be parsed gives the default (observing never harms)."""
        raw = (os.environ if environ is None else environ).get(self.env)
        if raw is None:
            return self.default
        return self.parse(raw)

    def parse(self, raw: str) -> T:
        """Parse `raw` to the type of the default, or return the default."""
        default = self.default
        try:
            if isinstance(default, bool):
                word = raw.strip().lower()
                return True if word in _TRUE else False if word in _FALSE else default  # type: ignore[return-value]
            return type(default)(raw)
        except ValueError:
            return default


CAPTURE_CONTENT = Setting(
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",
    "NO_CONTENT",
    "Standard switch. SPAN_ONLY or SPAN_AND_EVENT puts contents on spans; NO_CONTENT and EVENT_ONLY do not. "
    "Refs, origins, digests and sizes flow either way.",
)
DB_PATH = Setting(
    "MEMTRACE_DB", "memtrace.db", "SQLite file that OTEL_TRACES_EXPORTER=memtrace writes and commands read."
)
DIGEST_KEY = Setting(
    "MEMTRACE_DIGEST_KEY", "", "Key of the content digests and scope ids (HMAC-SHA-256). Empty: plain SHA-256."
)
PREVIEW_BYTES = Setting("MEMTRACE_PREVIEW_BYTES", 1900, "Longest content kept on a span, in UTF-8 bytes per variable.")
SPAN_BYTES = Setting(
    "MEMTRACE_SPAN_BYTES", 8192, "Byte budget of one span; past it variables go to continuation spans."
)
SPAN_LINKS = Setting("MEMTRACE_SPAN_LINKS", 32, "Link budget of one span; past it origins go to continuation spans.")
SPAN_PARTS = Setting(
    "MEMTRACE_SPAN_PARTS", 64, "Most continuation spans of one operation; what does not fit is counted as dropped."
)
ORIGIN_ENTRIES = Setting(
    "MEMTRACE_ORIGIN_ENTRIES", 100_000, "Variable versions whose origin a process remembers (oldest forgotten first)."
)
JUDGE_EXPECTED = Setting(
    "MEMTRACE_JUDGE_EXPECTED",
    r"(?im)^[^\w\n]{0,16}(?:gold|golden|expected|reference|correct|ground[ _-]?truth)(?:[ _-]?answers?)?"
    r"[^\w\n:=]{0,16}[:=][^\S\n]*(?P<expected>\S.*)$",
    "Regular expression that finds the expected answer in the prompt of a judging model call (group `expected`).",
)
EVALUATION_THRESHOLD = Setting(
    "MEMTRACE_EVALUATION_THRESHOLD", 0.5, "An evaluation score below this makes a trace failing."
)
MARKER_STATUS = Setting(
    "MEMTRACE_MARKER_STATUS", "error", "Status of marker spans: `error` (red in the backend) or `unset`."
)
MAX_IMPORT_BYTES = Setting(
    "MEMTRACE_MAX_IMPORT_BYTES", 2 << 30, "Largest file (after decompression) that `import` reads."
)

TABLE: tuple[Setting[str] | Setting[int] | Setting[float] | Setting[bool], ...] = (
    CAPTURE_CONTENT,
    DB_PATH,
    DIGEST_KEY,
    PREVIEW_BYTES,
    SPAN_BYTES,
    SPAN_LINKS,
    SPAN_PARTS,
    ORIGIN_ENTRIES,
    JUDGE_EXPECTED,
    EVALUATION_THRESHOLD,
    MARKER_STATUS,
    MAX_IMPORT_BYTES,
)
