"""Traces as far as lineage goes, from the outlines of their spans."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from memtrace_otel import semconv
from memtrace_otel.graph.assembly import assemble, flow_within, operates
from memtrace_otel.graph.keys import VersionKey
from memtrace_otel.graph.outputs import Versions, is_writing
from memtrace_otel.model import OperationSpan, is_origin
from memtrace_otel.store.outlines import Outline


@dataclass(slots=True)
class OutlinedOperation:
    """What an operation read, (ref, origin or ''), and wrote, (ref, whether it is a new version); `flow` by indices."""

    kind: str
    inputs: Sequence[tuple[str, str]]
    outputs: Sequence[tuple[str, bool]]
    flow: Sequence[tuple[int, int]] | None = None

    def sources(self, ref: str) -> set[int] | None:
        """Return the places of the inputs that fed what it wrote of `ref`, None for all."""
        if self.flow is None:
            return None
        places = {o for o, (written, writes) in enumerate(self.outputs) if writes and written == ref}
        return {i for i, o in self.flow if o in places} if places else None


@dataclass(slots=True)
class OutlinedTraces:
    """Operations, parents of spans and scopes by origin; `mains` and `repeats` as in `Assembly` and `Versions`.

    All traces share these tables: a walk meets thousands of traces of two or three spans.
    """

    operations: dict[str, OutlinedOperation] = field(default_factory=dict[str, OutlinedOperation])
    parents: dict[str, str] = field(default_factory=dict[str, str])
    scopes: dict[str, str] = field(default_factory=dict[str, str])
    mains: dict[str, str] = field(default_factory=dict[str, str])
    repeats: dict[VersionKey, VersionKey] = field(default_factory=dict[VersionKey, VersionKey])
    writers: dict[str, dict[str, Sequence[str]]] = field(default_factory=dict[str, dict[str, Sequence[str]]])
    """By the id of each trace added: the refs among its outputs, each with the origins of those that list it."""
    failed: set[str] = field(default_factory=set[str])
    """The origins of operations that ended with an error."""

    def add(self, trace_id: str, outlines: Sequence[Outline]) -> None:
        """Add a trace. One with continuations, ragged arrays or several writers of a ref is read in full."""
        writers: dict[str, Sequence[str]] = {}
        for outline in outlines:
            _, span_id, parent_id, kind, scope, part, inputs, origins, outputs, actions, *_ = outline
            if outline.source[1] == semconv.ATTRIBUTION_SCOPE:
                continue
            ragged = len(origins) != len(inputs) or len(actions) != len(outputs) or "" in inputs or "" in outputs
            if part or ragged or not writers.keys().isdisjoint(outputs):
                self._add_assembled(trace_id, outlines)  # puts what was added of it so far right
                return
            origin = f"{trace_id}-{span_id}"
            writers.update(dict.fromkeys(outputs, (origin,)))
            if parent_id:
                self.parents[origin] = f"{trace_id}-{parent_id}"
            if scope:
                self.scopes[origin] = scope
            if outline.failed:
                self.failed.add(origin)
            if kind or inputs or outputs or operates(outline.span()):
                read = [(ref, s if s and is_origin(s) else "") for ref, s in zip(inputs, origins, strict=True)]
                wrote = [(ref, is_writing(kind, ref, action)) for ref, action in zip(outputs, actions, strict=True)]
                within = flow_within(outline.span()) if outline.has_flow else None
                self.operations[origin] = OutlinedOperation(kind, read, wrote, within)
        self.writers[trace_id] = writers

    def _add_assembled(self, trace_id: str, outlines: Sequence[Outline]) -> None:
        assembly = assemble(outline.span() for outline in outlines)
        operations = {origin: _whole(span) for origin, span in assembly.operations.items()}
        self.operations.update(operations)
        self.parents.update(assembly.parents)
        self.scopes.update(assembly.scopes)
        self.mains.update(assembly.mains)
        self.failed.update(origin for origin, span in assembly.operations.items() if span.status == "error")
        self.repeats.update(Versions(assembly).repeats)
        writers: defaultdict[str, list[str]] = defaultdict(list)
        for origin, operation in operations.items():
            for ref in {ref for ref, _ in operation.outputs}:
                writers[ref].append(origin)
        self.writers[trace_id] = {**writers}

    def spans_of(self, origin: str) -> set[str]:
        """Return the origins of the spans that make up an operation."""
        return {origin, *(part for part, main in self.mains.items() if main == origin)}

    def around(self, origin: str) -> Iterator[str]:
        """Yield the origins of a span and those around it, innermost first."""
        seen: set[str] = set()
        while origin and origin not in seen:
            yield origin
            seen.add(origin)
            parent = self.parents.get(origin, "")
            origin = self.mains.get(parent, parent)

    def scope(self, origin: str) -> str:
        """Return the scope of an operation, its own or that of the nearest span around it."""
        own = self.scopes.get(origin, "")
        return own or next((scope for span in self.around(origin) if (scope := self.scopes.get(span, ""))), "")


def _whole(span: OperationSpan) -> OutlinedOperation:
    inputs = [(v.ref, v.origin if is_origin(v.origin) else "") for v in span.inputs]
    outputs = [(output.ref, is_writing(span.kind, output.ref, output.action)) for output in span.outputs]
    return OutlinedOperation(span.kind, inputs, outputs, span.flow)
