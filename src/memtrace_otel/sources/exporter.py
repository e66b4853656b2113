"""The exporter of `OTEL_TRACES_EXPORTER=memtrace`: spans of this process go straight into the database file.

The file is opened for one export and closed again: no connection crosses a fork, and nothing is open in an idle
process. Every export is one synced transaction, so that spans that `force_flush` has seen survive kill -9.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from memtrace_otel import settings
from memtrace_otel.otlp.sdk import encode_sdk_spans
from memtrace_otel.sources.database import BUSY_SECONDS, TranslatedErrors, connect, is_busy
from memtrace_otel.sources.errors import SourceError
from memtrace_otel.sources.ingest import add_requests

_logger = logging.getLogger(__name__)
_TRY_SECONDS = 0.02
"""Longest wait of one try for another process. Between two tries a fork may happen."""
_PAUSE_SECONDS = 0.01
_FORK_WAIT_SECONDS = 0.1
"""Longest wait of a fork for an export."""


class MemtraceSpanExporter(SpanExporter):
    """Commits spans as OTLP to the inbox of the database at `path` (default: the setting `MEMTRACE_DB`).

    Never raises and never logs a content. Spans that cannot be written are lost and counted in `lost_spans`; the first
    failure is logged. Several processes may write the same file.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        # Absolute now: the program may change its working directory before the first export.
        self.path = Path(path or settings.DB_PATH.read()).absolute()
        self._lock = threading.Lock()
        self.lost_spans = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Write `spans` in one transaction; SUCCESS when they are on disk."""
        try:
            body = encode_sdk_spans(spans)
        except Exception as error:  # the program must not suffer from any failure
            self._lose(len(spans), error)
            return SpanExportResult.FAILURE
        return self.export_request(body, len(spans))

    def export_request(self, body: bytes, spans: int = 1) -> SpanExportResult:
        """Write an encoded ExportTraceServiceRequest of so many spans."""
        try:
            self._commit(body)
        except Exception as error:
            self._lose(spans, error)
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Nothing is held open."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing is buffered here."""
        return True

    def _commit(self, body: bytes) -> None:
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                with (
                    TranslatedErrors(self.path),
                    _fork_gate,
                    closing(connect(self.path, create=True, busy_seconds=_TRY_SECONDS)) as connection,
                ):
                    return add_requests(connection, (body,))
            except SourceError as error:
                if not is_busy(error.__cause__) or time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE_SECONDS)

    def _lose(self, spans: int, error: Exception) -> None:
        with self._lock:
            first, self.lost_spans = self.lost_spans == 0, self.lost_spans + spans
        if first:
            reason = str(error) if isinstance(error, SourceError) else f"{self.path}: {type(error).__name__}"
            _logger.warning("memtrace cannot write spans, further failures are only counted: %s", reason)


class _ForkGate:
    """Keeps forks and exports apart: a child made during an export would inherit SQLite's locks as held for ever.

    A fork waits 0.1 s at most. A child that was made during an export nevertheless writes nothing: it could hang.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forking = 0  # thread that holds the lock for a fork
        self._during_export = False

    def __enter__(self) -> None:
        if self._during_export:
            raise OSError("this process was forked during an export of its parent")
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def before(self) -> None:
        if self._lock.acquire(timeout=_FORK_WAIT_SECONDS):
            self._forking = threading.get_ident()

    def after_in_parent(self) -> None:
        if self._forking == threading.get_ident():
            self._forking = 0
            self._lock.release()

    def after_in_child(self) -> None:
        self._during_export |= self._forking != threading.get_ident()
        self._lock = threading.Lock()
        self._forking = 0


_fork_gate = _ForkGate()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_fork_gate.before,
        after_in_parent=_fork_gate.after_in_parent,
        after_in_child=_fork_gate.after_in_child,
    )
