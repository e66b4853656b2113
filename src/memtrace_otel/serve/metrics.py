"""What a server counts of itself, of what arrives and of its verdicts, for a scrape."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from memtrace_otel import semconv
from memtrace_otel.monitoring.scrape import AttributionScrape, Pairs, label
from memtrace_otel.otlp.receiver import Cause
from memtrace_otel.serve.progress import By, Process, Progress, Seen

_PREFIX = "memtrace_serve_"
_DAMAGED_SECONDS = 10.0
_SEEN = {
    Seen.OPERATIONS: "Memory operations received.",
    Seen.ANSWERS: "Answers received.",
    Seen.EVALUATIONS: "Evaluations of answers received.",
    Seen.UNKNOWN_ORIGINS: "Operations received that read a record of unknown origin.",
    Seen.LOST_SPANS: "Spans that applications say they have dropped.",
}


class Metrics(Collector):
    """Counters since the start."""

    def __init__(self) -> None:
        self.requests = 0
        self.spans = 0
        self.bytes = 0
        self.rejected_spans = 0
        self._refused = Counter(dict.fromkeys(Cause, 0))
        self.decoded_spans = 0
        self.quarantined = 0
        self.verdicts = 0
        self.failed_sends = 0
        self._restarts = Counter(dict.fromkeys(Process, 0))
        self._damaged = -math.inf
        self.inbox_bytes = 0
        self.inbox_limit = 0
        self.inbox_seconds = 0.0
        self._pairs = Pairs()
        self._seen: Counter[By] = Counter()
        self._registry = CollectorRegistry(auto_describe=False)
        self._attribution = AttributionScrape(self._registry, self._pairs)
        self._registry.register(self)
        self._lock = threading.Lock()

    def acknowledged(self, spans: int, size: int, rejected: int) -> None:
        """Count a request that was taken."""
        self.requests += 1
        self.spans += spans
        self.bytes += size
        self.rejected_spans += rejected

    def refused(self, cause: Cause) -> None:
        """Count a request that was refused as a whole."""
        self._refused[cause] += 1

    def restarted(self, process: Process) -> None:
        """Count that a background process died and is started again."""
        self._restarts[process] += 1

    @property
    def is_damaged(self) -> bool:
        """Whether a background process cannot work for a damaged page of the file: it tries, and tells, each second."""
        return time.monotonic() < self._damaged + _DAMAGED_SECONDS

    def progressed(self, progress: Progress) -> None:
        """Count what a background process has done. Each is followed by a thread of its own."""
        with self._lock:
            self._progressed(progress)

    def _progressed(self, progress: Progress) -> None:
        if progress.damaged:
            self._damaged = time.monotonic()
        self.decoded_spans += progress.spans
        self.quarantined += progress.quarantined
        self.verdicts += progress.verdicts
        self.failed_sends += progress.failed_sends
        seen = self._seen.copy()  # a scrape reads it in another thread
        for (what, *names), count in progress.seen.items():
            pair = self._pairs.bounded(*names)
            for other in Seen:  # a series begins with 0, unless what it counts is the first that is heard of the pair
                seen[other, *pair] += 0
            seen[what, *pair] += count
        self._seen = seen
        for pair in progress.answering:
            self._attribution.expect(*pair)
        for told in progress.attributed:
            self._attribution.attributed(told)
        self._attribution.failed(progress.errors)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return what a scrape gets, and its content type: OpenMetrics where `accept` asks for it, with exemplars."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def collect(self) -> Iterator[Metric]:
        """What is no metric of attribution."""
        yield _counter("acknowledged_requests", "Requests on disk and acknowledged.", self.requests)
        yield _counter("acknowledged_spans", "Spans and evaluations on disk and acknowledged.", self.spans)
        yield _counter("acknowledged_bytes", "Unpacked bytes of acknowledged requests.", self.bytes)
        yield _counter("rejected_spans", "Spans and log records refused within a request.", self.rejected_spans)
        refused = CounterMetricFamily(f"{_PREFIX}refused_requests", "Requests refused as a whole.", labels=("reason",))
        for reason, count in self._refused.items():
            refused.add_metric((reason,), count)
        yield refused
        yield _counter("decoded_spans", "New spans decoded and indexed.", self.decoded_spans)
        yield _counter("quarantined_requests", "Requests, or parts of one, set aside as unreadable.", self.quarantined)
        yield _counter("verdicts", "New verdicts on failed answers.", self.verdicts)
        yield _counter("failed_sends", "Times that verdicts could not be sent, or looked for.", self.failed_sends)
        restarts = CounterMetricFamily(f"{_PREFIX}restarts", "Restarts of a background process.", labels=("process",))
        for process, count in self._restarts.items():
            restarts.add_metric((process,), count)
        yield restarts
        yield _gauge("inbox_bytes", "Bytes acknowledged and not yet decoded.", self.inbox_bytes)
        yield _gauge("inbox_limit_bytes", "Bytes in the inbox past which requests are refused.", self.inbox_limit)
        yield _gauge("inbox_age_seconds", "How long the oldest request waits to be decoded.", self.inbox_seconds)
        seen = self._seen
        for what, help in _SEEN.items():
            names = (label(semconv.SYSTEM), label(semconv.SERVICE_NAME))
            family = CounterMetricFamily(f"{_PREFIX}{what}", help, labels=names)
            for (counted, *pair), count in seen.items():
                if counted is what:
                    family.add_metric(pair, count)
            yield family


def _counter(name: str, help: str, value: int) -> CounterMetricFamily:
    return CounterMetricFamily(_PREFIX + name, help, value)


def _gauge(name: str, help: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(_PREFIX + name, help, value)
