"""Spans that never arrived, told by gaps in the sequence numbers of a process or by the process itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from memtrace_otel import semconv
from memtrace_otel.model import OperationSpan

_PROCESS = (semconv.SERVICE_NAME, semconv.SERVICE_INSTANCE_ID, "host.name", semconv.PROCESS_PID)


def lost_spans(spans: Iterable[OperationSpan]) -> int:
    """Count the numbers missing between the first and the last seen of each process.

    The upper bits of a number tell processes apart that share one resource (a fork, a restart). A number seen on two
    spans shows writers that do not set them: their gaps tell nothing and are not counted. Losses at either end cannot
    be told. The spans must be everything that the processes sent.
    """
    seen: dict[tuple[object, ...], dict[int, str]] = defaultdict(dict)
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


def told_losses(spans: Iterable[OperationSpan]) -> int:
    """Count the spans that a processor says it dropped."""
    told = (span.attributes.get(semconv.LOST) for span in {span.origin: span for span in spans}.values())
    return sum(lost for lost in told if isinstance(lost, int) and lost > 0)
