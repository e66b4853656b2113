"""Spans that never arrived, told by gaps in the sequence numbers of a process or by the process itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from memtrace_otel import semconv
from memtrace_otel.model import OperationSpan

_PROCESS = (semconv.SERVICE_NAME, semconv.SERVICE_INSTANCE_ID, "host.name", semconv.PROCESS_PID)


class Losses:
    """What the spans of some processes tell of others; more spans may be added."""

    def __init__(self, spans: Iterable[OperationSpan] = ()) -> None:
        self._seen: defaultdict[tuple[object, ...], dict[int, str]] = defaultdict(dict)
        self._ends: dict[tuple[object, ...], tuple[int, int]] = {}
        self._shared: set[tuple[object, ...]] = set()
        self._told: dict[str, int] = {}
        self.add(spans)

    def add(self, spans: Iterable[OperationSpan]) -> None:
        """Count more spans; repeated ones change nothing."""
        for span in spans:
            told = span.attributes.get(semconv.LOST)
            if isinstance(told, int) and told > 0:
                self._told[span.origin] = max(told, self._told.get(span.origin, 0))
            if span.seq is None:
                continue
            process = (span.seq >> semconv.SEQ_BITS, *(str(span.resource.get(name, "")) for name in _PROCESS))
            first, last = self._ends.get(process, (span.seq, span.seq))
            self._ends[process] = min(first, span.seq), max(last, span.seq)
            if self._seen[process].setdefault(span.seq, span.origin) != span.origin:
                self._shared.add(process)

    @property
    def missing(self) -> int:
        """The numbers missing between the first and the last seen of each process.

        The upper bits of a number tell processes apart that share one resource (a fork, a restart). A number seen on
        two spans shows writers that do not set them: their gaps tell nothing and are not counted. Losses at either end
        cannot be told. The spans must be everything that the processes sent.
        """
        return sum(
            last - first + 1 - len(self._seen[process])
            for process, (first, last) in self._ends.items()
            if process not in self._shared
        )

    @property
    def told(self) -> int:
        """The spans that processors say they dropped."""
        return sum(self._told.values())


def lost_spans(spans: Iterable[OperationSpan]) -> int:
    """Return `Losses.missing` of the spans."""
    return Losses(spans).missing
