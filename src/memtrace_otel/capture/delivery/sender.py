"""`Sender`: exports batches, with smaller batches after failures and growing pauses while the exporter is down."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, cast

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from memtrace_otel.capture.delivery.losses import Losses
from memtrace_otel.capture.delivery.rebuild import rebuild_spans
from memtrace_otel.capture.delivery.segment import Record
from memtrace_otel.capture.delivery.spool import Spool
from memtrace_otel.capture.guard import guard, note_drop, note_error
from memtrace_otel.otlp.reply import refusal

_logger = logging.getLogger(__name__)

_REPLAY_BYTES = 1 << 20  # a quarter of the default limit of a gRPC receiver
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 30.0
_MOST_SUSPECTS, _SECOND_CHANCES = 100, 2
_QUICK_SECONDS = 1.0  # a slower failure may be a timeout: a smaller batch waits for the pause, too


class Sender:
    """Sends batches of at most `batch_size` spans; used by one thread, read by others."""

    def __init__(self, exporter: SpanExporter, batch_size: int) -> None:
        self.exports = 0
        """Exports that succeeded."""
        self.failures = 0
        """Exports that failed since the last success."""
        self.limit = batch_size
        """Spans of the next batch: halved by a failure, doubled by a success."""
        self.retry_at = 0.0
        """Monotonic time of the next attempt."""
        self._exporter = exporter
        check_replies(exporter)
        self._batch_size = batch_size
        self._busy_since = 0.0
        # Hash of a span that failed alone -> (failures with successes in between, successes before the last failure).
        self._suspects: dict[int, tuple[int, int]] = {}

    @property
    def busy_seconds(self) -> float:
        """Seconds since the running export began, 0 without one."""
        since = self._busy_since
        return time.monotonic() - since if since else 0.0

    def send(self, spans: Sequence[ReadableSpan]) -> bool:
        """Export a batch; False after a failure."""
        delivered = self._attempt(lambda: self._exporter.export(spans))
        if not delivered:
            self._shrink(len(spans))
            self._back_off()
        return delivered

    def replay(self, spool: Spool, losses: Losses) -> bool:
        """Send the oldest spans of the spool; False for an empty spool and after a failure."""
        while records := spool.oldest(self.limit, _REPLAY_BYTES):
            started = time.monotonic()
            if self._attempt(lambda records=records: self._export_records(records)):
                spool.acknowledge(records)
                return True
            self._shrink(len(records))
            if len(records) == 1 or time.monotonic() - started > _QUICK_SECONDS:
                self._back_off()  # before the write below, which may fail
                if len(records) == 1:
                    self._set_aside(records[0], spool, losses)
                return False
        return False

    def shutdown(self) -> None:
        """Shut the exporter down."""
        with guard("exporter.shutdown"):
            self._exporter.shutdown()

    def _export_records(self, records: Sequence[Record]) -> SpanExportResult:
        direct: Callable[[bytes], SpanExportResult] | None = getattr(self._exporter, "export_request", None)
        if direct is not None:
            return direct(b"".join(record.body for record in records))  # requests in a row are one request
        spans = _spans(records)
        return self._exporter.export(spans) if spans else SpanExportResult.SUCCESS

    def _attempt(self, export: Callable[[], SpanExportResult]) -> bool:
        self._busy_since = time.monotonic()
        try:
            # Some exporters return None: only FAILURE is a failure.
            delivered = export() is not SpanExportResult.FAILURE
        except BaseException as error:  # CancelledError or SystemExit would end our thread
            if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                raise  # Ctrl-C of the user during a flush
            if not self.failures:  # no loss: the batch is exported again
                _logger.warning("memtrace: the exporter raised %s; its spans are kept", type(error).__name__)
            delivered = False
        finally:
            self._busy_since = 0.0
        if delivered:
            self.exports += 1
            self.failures = 0
            self.retry_at = 0.0
            self.limit = min(2 * self.limit, self._batch_size)
        return delivered

    def _shrink(self, failed: int) -> None:
        self.limit = max(1, failed // 2)

    def _back_off(self) -> None:
        self.failures += 1
        pause = min(_PAUSE_SECONDS * 2 ** min(self.failures - 1, 10), _LONGEST_PAUSE_SECONDS)
        self.retry_at = time.monotonic() + pause

    def _set_aside(self, record: Record, spool: Spool, losses: Losses) -> None:
        """Move a span that failed alone behind all others; drop it after three failures with successes in between."""
        key = hash(record.body)
        times, exports = self._suspects.pop(key, (0, -1))
        times += exports != self.exports
        if times > _SECOND_CHANCES:
            for span in _spans((record,)):
                losses.note(span, "rejected")
            spool.acknowledge((record,))
        else:
            if len(self._suspects) < _MOST_SUSPECTS:
                self._suspects[key] = times, self.exports
            spool.put_last(record)


def check_replies(exporter: SpanExporter) -> None:
    """Make an OTLP/HTTP exporter count a redirect, and a web page with status 200, as a failure; the spans are kept.

    The exporter has no public way to do this. Other exporters are not changed.
    """
    with guard("exporter.replies"):
        transport: Any = getattr(getattr(exporter, "_client", None), "_transport", None)
        session: Any = getattr(exporter, "_session", None) or getattr(transport, "_session", None)
        hooks = getattr(session, "hooks", None)
        if isinstance(hooks, dict):
            replies: list[Any] = cast(dict[str, list[Any]], hooks).setdefault("response", [])
            if _refuse not in replies:
                replies.append(_refuse)


def _refuse(response: Any, *_: Any, **__: Any) -> Any:
    """A hook of `requests`: give such a reply the status 400."""
    with guard("exporter.replies"):
        if response.status_code < 400 and (
            why := refusal(response.status_code, response.headers.get("content-type", ""), response.content)
        ):
            response.status_code, response.reason = HTTPStatus.BAD_REQUEST, why
    return response


def _spans(records: Sequence[Record]) -> list[ReadableSpan]:
    spans: list[ReadableSpan] = []
    for record in records:
        try:
            spans += rebuild_spans(record.body)
        except Exception as error:
            note_error("spool.decode", error)
            note_drop("spool_damaged")
    return spans
