"""A `TraceSource` in memory that counts reads and can fail, and a clock that tests set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from memtrace_otel.model import OperationSpan, has_evaluation, has_failing_evaluation, judged_traces
from memtrace_otel.sources import SourceError


@dataclass
class Clock:
    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now


class FakeSource:
    """Returns the spans that it was given. `down` fails every read, `broken` fails the read of one trace."""

    def __init__(self, *requests: Sequence[OperationSpan]) -> None:
        self.incomplete: list[str] = []
        self.spans_given: list[OperationSpan] = []
        self.reads = Counter[str]()
        self.searches: list[int] = []
        self.down: SourceError | None = None
        self.broken: dict[str, SourceError] = {}
        self.add(*requests)

    def __str__(self) -> str:
        return "fake"

    def add(self, *requests: Sequence[OperationSpan]) -> None:
        self.spans_given += [span for spans in requests for span in spans]

    def session(self, *, cases: int = 1) -> AbstractContextManager[FakeSource]:
        return nullcontext(self)

    def prefetch(self, trace_ids: Collection[str]) -> None:
        self._check()

    def trace(self, trace_id: str) -> list[OperationSpan]:
        self._check(trace_id)
        self.reads[trace_id] += 1
        return _sorted(span for span in self.spans_given if span.trace_id == trace_id)

    def spans(
        self,
        *,
        scope: str | None = None,
        kinds: Collection[str] = (),
        since: int | None = None,
        until: int | None = None,
    ) -> Iterator[OperationSpan]:
        self._check()
        yield from (
            span
            for span in _sorted(self.spans_given)
            if (scope is None or span.scope == scope)
            and (not kinds or span.kind in kinds)
            and (since is None or span.start >= since)
            and (until is None or span.start < until)
        )

    def readers(self, origin: str, *, kinds: Collection[str] = ()) -> list[OperationSpan]:
        return [span for span in self.spans(kinds=kinds) if any(v.origin == origin for v in span.inputs)]

    def writers(self, ref: str) -> list[str]:
        return sorted({span.trace_id for span in self.spans() if any(v.ref == ref for v in span.outputs)})

    def changed_elsewhere(self, spans: Collection[OperationSpan]) -> set[str]:
        return set()

    def trace_ids(self, *, scope: str | None = None) -> list[str]:
        return list(dict.fromkeys(span.trace_id for span in self.spans(scope=scope)))

    def failing(self, since: int, known: dict[str, None] | None = None) -> list[str]:
        self.searches.append(since)
        known = {} if known is None else known
        new = [span for span in self.spans(since=since) if has_evaluation(span) and span.origin not in known]
        known.update(dict.fromkeys(span.origin for span in new))
        return list(
            dict.fromkeys(id for span in new if has_failing_evaluation(span, 0.5) for id in judged_traces(span))
        )

    def close(self) -> None:
        pass

    def _check(self, trace_id: str = "") -> None:
        if error := self.down or self.broken.get(trace_id):
            raise error


def _sorted(spans: Iterator[OperationSpan] | list[OperationSpan]) -> list[OperationSpan]:
    return sorted({span.origin: span for span in spans}.values(), key=lambda span: span.start)
