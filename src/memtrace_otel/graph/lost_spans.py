"""Spans that never arrived: counted by gaps in the sequence numbers of a process, or by the process itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from memtrace_otel import semconv
from memtrace_otel.model import OperationSpan

_PROCESS = (semconv.SERVICE_NAME, semconv.SERVICE_INSTANCE_ID, "host.name", semconv.PROCESS_PID)


def lost_spans(spans: Iterable[OperationSpan]) -> int:
    """Return how many numbers are missing between the first and the last number of each process.

    The spans must be everything that the processes sent. The upper bits of a number distinguish processes that share
    one resource (a fork, a restart). A number on two spans shows a writer without these bits: its gaps are not counted.
    Losses before the first or after the last number are unknown.
    """
    seen: defaultdict[tuple[object, ...], dict[int, str]] = defaultdict(dict)
    shared: set[tuple[object, ...]] = set()
    for span in spans:
        if span.seq is None:
            continue
        process = (span.seq >> semconv.SEQ_BITS, *(str(span.resource.get(name, "")) for name in _PROCESS))
        if seen[process].setdefault(span.seq, span.origin) != span.origin:
            shared.add(process)
    return sum(
        max(numbers) - min(numbers) + 1 - len(numbers) for process, numbers in seen.items() if process not in shared
    )


def dropped_spans(spans: Iterable[OperationSpan]) -> int:
    """Return how many spans the processors of the processes report as dropped."""
    dropped: dict[str, int] = {}
    for span in spans:
        count = span.attributes.get(semconv.LOST)
        if isinstance(count, int):
            dropped[span.origin] = max(count, dropped.get(span.origin, 0))
    return sum(dropped.values())
