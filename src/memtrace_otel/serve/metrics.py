"""What a server counts of itself, as Prometheus text and as its health."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from memtrace_otel.otlp.receiver import Cause


class Metrics:
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
        self.packed_spans = 0
        self.restarts = 0

    def acknowledged(self, spans: int, size: int, rejected: int) -> None:
        """Count a request that was taken."""
        self.requests += 1
        self.spans += spans
        self.bytes += size
        self.rejected_spans += rejected

    def refused(self, cause: Cause) -> None:
        """Count a request that was refused as a whole."""
        self._refused[cause] += 1

    def prometheus(self, inbox_bytes: int) -> str:
        """Return the exposition text (version 0.0.4)."""
        return "\n".join(self._lines(inbox_bytes)) + "\n"

    def _lines(self, inbox_bytes: int) -> Iterator[str]:
        yield from _counter("acknowledged_requests", "Requests on disk and acknowledged.", self.requests)
        yield from _counter("acknowledged_spans", "Spans and evaluations on disk and acknowledged.", self.spans)
        yield from _counter("acknowledged_bytes", "Unpacked bytes of acknowledged requests.", self.bytes)
        yield from _counter("rejected_spans", "Spans and log records refused within a request.", self.rejected_spans)
        yield from _head("refused_requests_total", "counter", "Requests refused as a whole.")
        for reason, count in self._refused.items():
            yield f'memtrace_serve_refused_requests_total{{reason="{reason}"}} {count}'
        yield from _counter("decoded_spans", "New spans decoded and indexed.", self.decoded_spans)
        yield from _counter(
            "quarantined_requests", "Requests, or parts of one, set aside as unreadable.", self.quarantined
        )
        yield from _counter("verdicts", "New verdicts on failed answers.", self.verdicts)
        yield from _counter("packed_spans", "Spans packed.", self.packed_spans)
        yield from _counter("decoder_restarts", "Restarts of the decoding process.", self.restarts)
        yield from _head("inbox_bytes", "gauge", "Bytes acknowledged and not yet decoded.")
        yield f"memtrace_serve_inbox_bytes {inbox_bytes}"


def _counter(name: str, help: str, value: int) -> Iterator[str]:
    yield from _head(f"{name}_total", "counter", help)
    yield f"memtrace_serve_{name}_total {value}"


def _head(name: str, kind: str, help: str) -> Iterator[str]:
    yield f"# HELP memtrace_serve_{name} {help}"
    yield f"# TYPE memtrace_serve_{name} {kind}"
