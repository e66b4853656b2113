"""Traces as far as lineage goes, from the outlines of their spans."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from memtrace_otel import semconv
from memtrace_otel.graph.assembly import assemble, flow_within, operates
from memtrace_otel.graph.keys import VersionKey
from memtrace_otel.graph.outputs import Versions, is_writing
from memtrace_otel.model import OperationSpan, ref_kind
from memtrace_otel.semconv import OpKind, RefKind
from memtrace_otel.sources.outlines import Outline


class OutlinedOperation(NamedTuple):
    """What an operation read and wrote: refs with origins ('' or what is none), refs with actions; `flow` by indices.

    Built for each span on the way of a walk: what few ask for is worked out when they do. All texts are in one tuple:
    the more objects a walk keeps, the more often the garbage collector looks at all that the process has.
    """

    kind: str
    reads: int
    texts: tuple[str, ...]
    actions: Sequence[str]
    flow: Sequence[tuple[int, int]] | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.texts[: self.reads]

    @property
    def origins(self) -> tuple[str, ...]:
        return self.texts[self.reads : 2 * self.reads]

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.texts[2 * self.reads :]

    def written(self) -> list[tuple[str, bool]]:
        """Return the refs among its outputs, and whether each is a new version."""
        listed = zip(self.outputs, self.actions, strict=True)
        return [(ref, is_writing(self.kind, ref, action)) for ref, action in listed]

    def writes(self, ref: str) -> bool:
        """Tell whether one of its outputs is a new version of `ref`."""
        texts, place = self.texts, 2 * self.reads
        for action in self.actions:
            if texts[place] == ref and is_writing(self.kind, ref, action):
                return True
            place += 1
        return False

    def sources(self, ref: str) -> set[int] | None:
        """Return the places of the inputs that fed what it wrote of `ref`, None for all."""
        if self.flow is None:
            return None
        places = {o for o, (written, writes) in enumerate(self.written()) if writes and written == ref}
        return {i for i, o in self.flow if o in places} if places else None


class WideOperation(OutlinedOperation):
    """One with so many outputs that each is looked up: all who read of them ask."""

    FROM = 16

    def writes(self, ref: str) -> bool:
        """As `OutlinedOperation`."""
        return ref in self._places

    def sources(self, ref: str) -> set[int] | None:
        """As `OutlinedOperation`."""
        if self.flow is None or ref not in self._places:
            return None
        return {i for place in self._places[ref] for i in self._fed.get(place, ())}

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        places: defaultdict[str, list[int]] = defaultdict(list)
        for place, (ref, writes) in enumerate(self.written()):
            if writes:
                places[ref].append(place)
        return dict(places)

    @cached_property
    def _fed(self) -> dict[int, list[int]]:
        fed: defaultdict[int, list[int]] = defaultdict(list)
        for i, o in self.flow or ():
            fed[o].append(i)
        return fed


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
    writers: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """By the id of each trace added: the refs among its outputs, each with the origins of those that list it, a blank
    between two. A dict of texts costs the garbage collector nothing."""
    failed: set[str] = field(default_factory=set[str])
    """The origins of operations that ended with an error."""

    def add(self, trace_id: str, outlines: Sequence[Outline]) -> None:
        """Add a trace. One with continuations, ragged arrays, several writers of a ref or a judge that names no answer,
        or the run around one, is read in full."""
        writers: dict[str, str] = {}
        judged: set[str] = set()
        for outline in outlines:
            _, span_id, parent_id, kind, scope, part, inputs, origins, outputs, actions, has_flow, failed, _, source = (
                outline
            )
            if source[1] == semconv.ATTRIBUTION_SCOPE:
                continue
            origin = f"{trace_id}-{span_id}"
            known, width = len(writers), len(outputs)
            for ref in outputs:
                writers[ref] = origin
            ragged = len(origins) != len(inputs) or len(actions) != width or "" in inputs or "" in writers
            if kind == OpKind.JUDGE:
                answers = {at for ref, at in zip(inputs, origins, strict=False) if ref_kind(ref) == RefKind.ANSWER}
                nameless = not answers
                judged |= answers
            else:
                nameless = False
            if part or ragged or nameless or len(writers) != known + width:
                self._add_assembled(trace_id, outlines)  # puts what was added of it so far right
                return
            if parent_id:
                self.parents[origin] = f"{trace_id}-{parent_id}"
            if scope:
                self.scopes[origin] = scope
            if failed:
                self.failed.add(origin)
            if kind or inputs or outputs or operates(outline.span()):
                within = flow_within(outline.span()) if has_flow else None
                texts = (*inputs, *origins, *outputs)
                made = OutlinedOperation if width < WideOperation.FROM else WideOperation
                self.operations[origin] = made(kind, len(inputs), texts, actions, within)
        if judged:
            own = {f"{trace_id}-{outline[1]}" for outline in outlines}
            if not judged & own <= self.operations.keys():
                self._add_assembled(trace_id, outlines)
                return
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
            for ref in dict.fromkeys(operation.outputs):
                writers[ref].append(origin)
        self.writers[trace_id] = {ref: " ".join(origins) for ref, origins in writers.items()}

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
        if own := self.scopes.get(origin):
            return own
        return next((scope for span in self.around(origin) if (scope := self.scopes.get(span, ""))), "")


def _whole(span: OperationSpan) -> OutlinedOperation:
    texts = *(v.ref for v in span.inputs), *(v.origin for v in span.inputs), *(v.ref for v in span.outputs)
    made = OutlinedOperation if len(span.outputs) < WideOperation.FROM else WideOperation
    return made(span.kind, len(span.inputs), texts, [v.action for v in span.outputs], span.flow)
