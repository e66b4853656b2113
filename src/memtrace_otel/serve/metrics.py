"""The metrics of a server for a scrape: what it received, what arrived, and its verdicts."""

from __future__ import annotations

import math
import threading
import time
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.exposition import choose_encoder

from memtrace_otel.otlp.receiver import Cause
from memtrace_otel.pipeline.metrics import AttributionCounters, ServiceCounters, show_repair
from memtrace_otel.repair.apply import applied_seconds
from memtrace_otel.serve.progress import Process, Progress, Seen

_PREFIX = "memtrace_serve_"
_DAMAGED_SECONDS = 10.0
_SEEN = {
    Seen.OPERATIONS: "Memory operations received.",
    Seen.ANSWERS: "Answers received.",
    Seen.EVALUATIONS: "Evaluations of answers received.",
    Seen.UNKNOWN_ORIGINS: "Operations received that read a record of unknown origin.",
    Seen.LOST_SPANS: "Spans that applications say they have dropped.",
}


class Metrics:
    """Counters since the start. May be used by several threads."""

    def __init__(self, repair: Path | None = None) -> None:
        """With the directory of a run of `repair optimize`: also when its repair was applied."""
        self._registry = registry = CollectorRegistry(auto_describe=False)

        def counter(name: str, help: str, *labels: str) -> Counter:
            return Counter(_PREFIX + name, help, labels, registry=registry)

        def gauge(name: str, help: str) -> Gauge:
            return Gauge(_PREFIX + name, help, registry=registry)

        self._requests = counter("acknowledged_requests", "Requests on disk and acknowledged.")
        self._spans = counter("acknowledged_spans", "Spans and evaluations on disk and acknowledged.")
        self._bytes = counter("acknowledged_bytes", "Unpacked bytes of acknowledged requests.")
        self._rejected = counter("rejected_spans", "Spans and log records refused within a request.")
        self._refused = counter("refused_requests", "Requests refused as a whole.", "reason")
        self._decoded = counter("decoded_spans", "New spans decoded and indexed.")
        self._quarantined = counter("quarantined_requests", "Requests, or parts of one, set aside as unreadable.")
        self._verdicts = counter("verdicts", "New verdicts on failed answers.")
        self._failed_sends = counter("failed_sends", "Times that verdicts could not be sent, or looked for.")
        self._restarts = counter("restarts", "Restarts of a background process.", "process")
        self._inbox_bytes = gauge("inbox_bytes", "Bytes acknowledged and not yet decoded.")
        self._inbox_limit = gauge("inbox_limit_bytes", "Bytes in the inbox past which requests are refused.")
        self._inbox_seconds = gauge("inbox_age_seconds", "How long the oldest request waits to be decoded.")
        self._services = ServiceCounters(registry)
        self._seen = {what: self._services.counter(_PREFIX + what, help) for what, help in _SEEN.items()}
        self._attribution = AttributionCounters(registry, self._services)
        self._damaged = -math.inf
        if repair:
            show_repair(registry, partial(applied_seconds, repair))
        self._lock = threading.Lock()
        for cause in Cause:
            self._refused.labels(cause)
        for process in Process:
            self._restarts.labels(process)

    def inbox(self, size: int, limit: int, seconds: float) -> None:
        """Set how many bytes wait to be decoded, how many may wait, and how long the oldest waits (s)."""
        self._inbox_bytes.set(size)
        self._inbox_limit.set(limit)
        self._inbox_seconds.set(seconds)

    def acknowledged(self, spans: int, size: int, rejected: int) -> None:
        """Count a request that was taken."""
        self._requests.inc()
        self._spans.inc(spans)
        self._bytes.inc(size)
        self._rejected.inc(rejected)

    def refused(self, cause: Cause) -> None:
        """Count a request that was refused as a whole."""
        self._refused.labels(cause).inc()

    def restarted(self, process: Process) -> None:
        """Count that a background process died and is started again."""
        self._restarts.labels(process).inc()

    @property
    def is_damaged(self) -> bool:
        """Whether a background process cannot work because of a damaged page of the file."""
        return time.monotonic() < self._damaged + _DAMAGED_SECONDS

    def progressed(self, progress: Progress) -> None:
        """Count what a background process has done."""
        if progress.damaged:
            self._damaged = time.monotonic()
        self._decoded.inc(progress.spans)
        self._quarantined.inc(progress.quarantined)
        self._verdicts.inc(progress.verdicts)
        self._failed_sends.inc(progress.failed_sends)
        with self._lock:  # the series of a service may be removed meanwhile
            for (what, *names), count in progress.seen.items():
                pair = self._services.labels(*names)
                for other in Seen:  # a series begins with 0
                    self._seen[other].labels(*pair)
                self._seen[what].labels(*pair).inc(count)
                if what is Seen.ANSWERS:
                    self._attribution.expect(*names)
            for pair in progress.answering:
                self._attribution.expect(*pair)
            for done in progress.attributed:
                self._attribution.attributed(done)
        self._attribution.failed(progress.errors)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return the text of a scrape and its content type: OpenMetrics, with exemplars, where `accept` asks for it."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type
