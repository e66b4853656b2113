"""The spans behind a graph, found by what hangs together: traces and the variables they name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from memtrace_otel.graph.keys import TURN_KINDS
from memtrace_otel.graph.losses import Losses
from memtrace_otel.model import OperationSpan, is_origin, ref_kind


class SpanIndex:
    """Every span, and which traces have a say in the versions of which variable.

    What a graph shows of a trace by itself depends on that trace alone; what it shows of a variable depends on the
    traces that name it or are named as its origin, alone. A variable that nobody writes and everybody names without an
    origin (a prompt, a question) is `lone`: no trace has a say in how another reads it.
    """

    def __init__(self, spans: Iterable[OperationSpan]) -> None:
        self.losses = Losses()
        self._traces: defaultdict[str, defaultdict[str, list[OperationSpan]]] = defaultdict(lambda: defaultdict(list))
        self._naming: defaultdict[str, set[str]] = defaultdict(set)
        self._cited: defaultdict[str, set[str]] = defaultdict(set)
        self._traced: set[str] = set()
        self.add(spans)

    def add(self, spans: Iterable[OperationSpan]) -> set[str]:
        """Keep spans and return the traces that have something new."""
        changed: set[str] = set()
        for span in spans:
            known = self._traces[span.trace_id][span.origin]
            if span not in known:
                known.append(span)
                self.losses.add([span])
                self._index(span)
                changed.add(span.trace_id)
        return changed

    def spans(self, trace_ids: Collection[str] | None = None) -> Iterator[OperationSpan]:
        """Yield the spans of these traces, None: all; of two contents under one id both."""
        for trace_id in self._traces if trace_ids is None else trace_ids:
            for contents in self._traces[trace_id].values():
                yield from contents

    def refs(self, trace_ids: Collection[str]) -> set[str]:
        """Return the variables that these traces have a say in."""
        named = {v.ref for span in self.spans(trace_ids) for v in (*span.inputs, *span.outputs)}
        return named.union(*(self._cited[trace_id] for trace_id in trace_ids))

    def is_lone(self, ref: str) -> bool:
        """Tell whether every span names the variable for itself."""
        return ref_kind(ref) in TURN_KINDS and ref not in self._traced

    def naming(self, refs: Iterable[str]) -> set[str]:
        """Return the traces that have a say in any of these variables."""
        return {trace_id for ref in refs for trace_id in self._naming[ref]}

    def _index(self, span: OperationSpan) -> None:
        self._traced.update(output.ref for output in span.outputs)
        for variable in (*span.inputs, *span.outputs):
            self._naming[variable.ref].add(span.trace_id)
            if variable.origin:
                self._traced.add(variable.ref)
            if is_origin(variable.origin):
                writer = variable.origin[:32]
                self._naming[variable.ref].add(writer)
                self._cited[writer].add(variable.ref)
