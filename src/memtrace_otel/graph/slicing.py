"""The slice of an answer straight from a store: what it costs goes with the slice, not with the store.

Origins are followed from trace to trace. Only a version without a recorded origin makes the writers of its ref be
looked at. What is more than plain in a trace (continuations, several writers of one ref) is worked out by the rules
that build a graph, from that trace alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from itertools import groupby
from operator import itemgetter
from typing import Protocol, runtime_checkable

from memtrace_otel.graph.assembly import assemble
from memtrace_otel.graph.build import build_graph
from memtrace_otel.graph.evolution import EvolutionGraph
from memtrace_otel.graph.keys import RECORD_KINDS, TRACED_KINDS, TURN_KINDS, NodeKey, OperationKey, VersionKey
from memtrace_otel.graph.outlined import OutlinedOperation, OutlinedTraces
from memtrace_otel.graph.outputs import Versions, passes_on
from memtrace_otel.graph.sharing import SharingSource, traces_sharing
from memtrace_otel.graph.walk import ANSWERING, question_slice
from memtrace_otel.model import OperationSpan, is_origin, ref_kind
from memtrace_otel.semconv import READING_KINDS, RefKind
from memtrace_otel.sources.outlines import Outline
from memtrace_otel.sources.protocols import RecordSource

_NO_TRACES: AbstractSet[str] = frozenset()
_SOLE_STEPS, _MOST_AHEAD = 4, 256
"""A record's history is read trace by trace at first, then more and more traces at once."""


@runtime_checkable
class LineageSource(RecordSource, Protocol):
    """A source that is asked about what it has made of requests so far."""

    def decode(self) -> int:
        """Turn waiting requests into spans; the other methods here do not."""
        ...


class SliceSource(LineageSource, SharingSource, Protocol):
    """A source that finds what a slice asks for without a search."""

    def outlines(self, trace_ids: Collection[str]) -> Iterable[Outline]:
        """Return the spans of several traces, trace by trace, without what they say."""
        ...

    def writers_before(self, ref: str, trace_id: str, most: int) -> list[str]:
        """Return up to `most` of them that arrived just before a trace; a few others may be among them."""
        ...


def slice_of_answer(source: SliceSource, origin: str) -> set[NodeKey]:
    """Return what `EvolutionGraph.slice_of_answer` does in the graph of the whole source. Raises StoreError."""
    return _slice(StoredFlow(source), origin)


def load_slice(source: SliceSource, origin: str) -> EvolutionGraph:
    """Build the graph of the slice of an answer, an empty one when the operation is unknown. Raises StoreError.

    It has the nodes and edges that the slice has in the graph of the whole source, and what is known of them from the
    traces of the slice and the writers of those records of which it has several versions, or that its operations read
    without an origin.
    """
    flow = StoredFlow(source)
    nodes = _slice(flow, origin)
    versions = [node for node in nodes if isinstance(node, VersionKey)]
    times = Counter(version.ref for version in versions if ref_kind(version.ref) not in TURN_KINDS)
    for version in versions:
        if times[version.ref] > 1:
            flow.deciding(version.ref, version.scope or flow.scope(version.origin))  # what replaced what
    for node in nodes:
        if isinstance(node, OperationKey):
            flow.decide(node, times.keys())
    graph = build_graph((outline.span() for outline in source.outlines(flow.traces)), whole=False)
    return graph.part(nodes)


def _slice(flow: StoredFlow, origin: str) -> set[NodeKey]:
    answer = OperationKey(flow.main(origin))
    return question_slice(flow, answer, flow.outputs(answer)) if flow.knows(answer) else set()


class StoredFlow:
    """The `Flow` of a store: traces are read when they are needed, those of one step of the walk together."""

    def __init__(self, source: SliceSource) -> None:
        self._source = source
        source.decode()
        self._known = OutlinedTraces()
        self._versions: dict[str, tuple[set[str], Versions]] = {}
        self._deciding: dict[tuple[str, str], set[str]] = {}
        self._traced: dict[tuple[str, str], set[str]] = {}
        self._steps: dict[str, int] = {}

    @property
    def traces(self) -> set[str]:
        """The ids of the traces read so far, and of those that have a say in what was asked."""
        return set(self._known.writers).union(*self._deciding.values(), *self._traced.values())

    def main(self, origin: str) -> str:
        """Return the origin of the operation that a span belongs to."""
        return origin if self._operation(origin) else self._known.mains.get(origin, origin)

    def knows(self, operation: OperationKey) -> bool:
        """Tell whether the store has the operation."""
        return self._operation(operation.origin) is not None

    def scope(self, origin: str) -> str:
        """Return the scope of an operation that was read."""
        return self._known.scope(origin)

    def outputs(self, operation: OperationKey) -> set[VersionKey]:
        """Return what an operation produced, listed because one inside it did, or is said by readers to have made."""
        origin, known = operation.origin, self._known
        found = known.operations[origin]
        made = {VersionKey(ref, origin) for ref, writes in found.written() if writes}
        spans = known.spans_of(origin)
        said = {
            VersionKey(variable.ref, origin): reader.trace_id
            for reader in self._readers(origin)
            for variable in reader.inputs
            if variable.origin in spans and reader.origin not in spans
            if not passes_on(found.kind, found.outputs, variable.ref)
        }
        self._load({*said.values()})
        return {known.repeats.get(version, version) for version in made}.union(said)

    # --- Flow ----------------------------------------------------------------------------------------------------
    def fetch(self, nodes: Iterable[NodeKey]) -> None:
        """Read the traces that the producers of versions name as origins."""
        operations, known = self._known.operations, self._known.writers
        wanted: dict[str, str] = {}
        for node in nodes:
            if found := operations.get(node.origin):
                for place in range(found.reads):
                    source = found.texts[found.reads + place]
                    if source and source not in operations and source[:32] not in known and is_origin(source):
                        wanted[source[:32]] = found.texts[place]
        if wanted:
            self._load({*wanted, *(t for trace_id, ref in wanted.items() for t in self._ahead(ref, trace_id))})

    def _ahead(self, ref: str, trace_id: str) -> list[str]:
        """The traces that a walk along the history of a record comes to next: about as many as it has come along."""
        if ref_kind(ref) not in RECORD_KINDS:
            return []
        steps = self._steps[ref] = self._steps.get(ref, 0) + 1
        if steps < _SOLE_STEPS:
            return []
        return self._source.writers_before(ref, trace_id, min(1 << (steps - _SOLE_STEPS), _MOST_AHEAD))

    def reads(self, operation: OperationKey) -> Iterator[VersionKey]:
        """As `Flow`."""
        found = self._operation(operation.origin)
        if found is None:
            return
        yield from self._inputs(operation.origin, found)
        repeats = self._known.repeats
        listed = found.written()
        written = {ref for ref, writes in listed if writes and (ref, operation.origin, "") not in repeats}
        for place, (ref, writes) in enumerate(listed):
            if not writes and ref not in found.inputs and ref not in written:
                yield self._unrecorded(ref, operation.origin, ~place, operation.origin, ())

    def feeding(self, version: VersionKey) -> Iterator[NodeKey]:
        """As `Flow`."""
        origin = version.origin
        if not origin:
            return
        yield OperationKey(origin)
        found = self._operation(origin)
        if found is None:
            return
        fed = None if found.flow is None else found.sources(version.ref)
        if found.reads or fed is not None:
            yield from self._inputs(origin, found, fed)
            return
        for outer in self._known.around(origin):  # a writing step without inputs worked on those around it
            around = self._operation(outer)
            if around is not None and around.kind in READING_KINDS:
                return
            if around is not None and around.reads:
                yield OperationKey(outer)
                yield from self._inputs(outer, around, None)
                return

    def asked(self, operation: OperationKey) -> set[str] | None:
        """As `Flow`."""
        found = self._operation(operation.origin)
        if found is None or found.kind not in ANSWERING:
            return None
        return {ref for ref in found.inputs if ref_kind(ref) == RefKind.QUERY}

    # --- versions ------------------------------------------------------------------------------------------------
    def _inputs(self, origin: str, found: OutlinedOperation, places: set[int] | None = None) -> list[VersionKey]:
        operations, repeats = self._known.operations, self._known.repeats
        versions: list[VersionKey] = []
        for place in range(found.reads) if places is None else sorted(places):
            ref, source = found.texts[place], found.texts[found.reads + place]
            if source in operations and source != origin and operations[source].writes(ref):
                version = VersionKey(ref, source)
                if version not in repeats:
                    versions.append(version)  # nearly all are of this kind
                    continue
            versions.append(self._read(origin, place, ref, source))
        return versions

    def _read(self, reader: str, place: int, ref: str, origin: str) -> VersionKey:
        """Return the version that an operation read, as `Versions.read` does."""
        if origin and is_origin(origin) and (origin := self.main(origin)) != reader:
            return self._follow(ref, origin, reader, place)
        return self._unrecorded(ref, reader, place, reader, ())

    def _follow(self, ref: str, origin: str, reader: str, place: int) -> VersionKey:
        """Go from an operation that merely passed a version on to the one that wrote it."""
        seen: list[str] = []
        known, last = self._known, reader
        while origin not in seen:
            seen.append(origin)
            version = VersionKey(ref, origin)
            if version in known.repeats:
                origin = known.repeats[version].origin
                continue
            found = self._operation(origin)
            if found is None or found.writes(ref) or not passes_on(found.kind, found.outputs, ref):
                return version
            last = origin
            origin = next((s for read, s in zip(found.inputs, found.origins, strict=True) if read == ref), "")
            if not is_origin(origin):
                break
            origin = self.main(origin)
        return self._unrecorded(ref, reader, place, last, seen)

    def _unrecorded(self, ref: str, reader: str, place: int, last: str, passed: Iterable[str]) -> VersionKey:
        """Resolve a read whose origin nobody recorded: by who wrote the ref, as building a graph does.

        `place` counts the inputs of `reader`, its complement the outputs; `last` of those that `passed` the version on
        does not know where it is from.
        """
        scope = self._known.scope(last)
        kind, trace_id = ref_kind(ref), last[:32]
        traces = _NO_TRACES if kind in TURN_KINDS else self.deciding(ref, scope)
        if kind in TRACED_KINDS and ref in self._known.writers[trace_id]:
            traces = traces | self._in_trace(ref, trace_id)
        if not traces:
            return VersionKey(ref, "", scope)
        versions = self._built(ref, {*traces, *(origin[:32] for origin in (reader, *passed))})
        span = versions.operations[reader]
        if place < 0:
            return versions.looked_at(span, span.outputs[~place])[0]
        return versions.read(span, span.inputs[place])[0]

    def deciding(self, ref: str, scope: str = "") -> set[str]:
        """Return the ids of the traces that have a say in the versions of a record, for a reader in a scope.

        These are its writers in the memories that mean the same by it, and the readers that tell which these are and
        whether a failed operation wrote it.
        """
        if (found := self._deciding.get((ref, scope))) is None:
            found = traces_sharing(self._source, ref, {scope})
            self._load(found)
            found |= self._doubting(ref, found)
            self._deciding[ref, scope] = found
        return found

    def decide(self, operation: OperationKey, refs: Collection[str]) -> None:
        """Read the traces that have a say in which versions of `refs` an operation read without a recorded origin, also
        where nothing that it wrote came from them."""
        found = self._operation(operation.origin)
        if found and any(ref in refs for ref in (*found.inputs, *found.outputs)):
            for _ in self.reads(operation):
                pass

    def _in_trace(self, ref: str, trace_id: str) -> set[str]:
        """As `deciding`, for a reader in the trace of a writer: whatever their scopes."""
        if (found := self._traced.get((ref, trace_id))) is None:
            found = self._traced[ref, trace_id] = {trace_id} | self._doubting(ref, {trace_id})
        return found

    def _doubting(self, ref: str, traces: set[str]) -> set[str]:
        """Return the ids of the traces that tell whether failed operations in these wrote a ref."""
        writers = (origin for trace_id in traces for origin in self._known.writers[trace_id].get(ref, "").split())
        failed = [origin for origin in writers if origin in self._known.failed]
        return {reader.trace_id for origin in failed for reader in self._readers(origin)}

    def _readers(self, origin: str) -> list[OperationSpan]:
        """Return the spans that name an operation, or a part of it, as the origin of what they read."""
        return [reader for span in self._known.spans_of(origin) for reader in self._source.readers(span)]

    def _built(self, ref: str, traces: set[str]) -> Versions:
        """Return the versions of `ref` in the traces that have a say in them, `traces` among these."""
        known, versions = self._versions.get(ref, (set[str](), None))
        if versions is None or not traces <= known:
            traces |= known
            versions = Versions(assemble(outline.span() for outline in self._source.outlines(traces)))
            self._versions[ref] = traces, versions
        return versions

    # --- traces --------------------------------------------------------------------------------------------------
    def _operation(self, origin: str) -> OutlinedOperation | None:
        found = self._known.operations.get(origin)
        if found is None and origin[:32] not in self._known.writers:
            self._load({origin[:32]})
            found = self._known.operations.get(origin)
        return found

    def _load(self, trace_ids: set[str]) -> None:
        if new := trace_ids - self._known.writers.keys():
            for trace_id, outlines in groupby(self._source.outlines(new), itemgetter(0)):
                self._known.add(trace_id, list(outlines))
            for trace_id in new - self._known.writers.keys():
                self._known.add(trace_id, ())
