"""Load the graph around a trace, a memory scope, a node or an answer from a source."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Protocol, runtime_checkable

from memtrace_otel.graph.assembly import Assembly, assemble
from memtrace_otel.graph.build import build_graph
from memtrace_otel.graph.keys import RECORD_KINDS, NodeKey, VersionKey
from memtrace_otel.graph.queries import EvolutionGraph
from memtrace_otel.model import OperationSpan, is_origin, is_unique, ref_kind
from memtrace_otel.semconv import Incomplete, OpKind
from memtrace_otel.sources.protocols import TraceSource

MAX_SPANS = 500_000
"""Most spans of one graph. Past the bound nothing more is read, and `incomplete` of the graph says `bounded`."""
ELSEWHERE_SPANS = 50_000
"""Most spans of a graph of every memory (`load_everywhere`)."""


def load_graph(source: TraceSource, trace_id: str, *, max_spans: int = MAX_SPANS) -> EvolutionGraph:
    """Build the graph around one trace; an empty graph when the trace is unknown.

    The graph holds the trace, its origins and their origins; every span of their memory scopes; the judgements of the
    answers of the trace; and changes of these records by other scopes. Traces are loaded whole.
    Where the source could not read a part, the graph is `bounded`. Raises SourceError when the source cannot answer.
    """
    return next(load_graphs(source, [trace_id], max_spans=max_spans))[1]


def load_graphs(
    source: TraceSource, trace_ids: Iterable[str], *, max_spans: int = MAX_SPANS
) -> Iterator[tuple[list[str], EvolutionGraph]]:
    """Yield (ids of traces, the graph around them) until every trace has a graph.

    Traces of exactly the same memory scopes share a graph; a trace without a scope has its own. A graph holds what
    `load_graph` loads for each of its traces. Each graph is built when the caller asks for the next pair.
    """
    left = dict.fromkeys(trace_ids)
    numbers = {trace_id: number for number, trace_id in enumerate(left)}
    while left:
        first = next(iter(left))
        loading = _Loading(source, max_spans)
        scopes = loading.scopes_behind(first)
        loading.judgements([first])  # before the scopes, which may use up the bound: the failure must be loaded
        loading.memories(scopes)
        likely = sorted((loading.traces.keys() & left.keys()) - {first}, key=numbers.__getitem__)
        together = [first, *(trace_id for trace_id in likely if scopes and loading.scopes_behind(trace_id) == scopes)]
        loading.judgements(together[1:])
        loading.lineage()
        yield together, loading.graph()
        for trace_id in together:
            del left[trace_id]


def load_scope(source: TraceSource, scope: str | None = None, *, max_spans: int = MAX_SPANS) -> EvolutionGraph:
    """Build the graph of one memory scope, None: of the whole source; an empty graph when no span has the scope.

    Only in a graph of the whole source, gaps in sequence numbers mean lost spans.

    The graph holds every trace with a span of the scope, the traces that these name as origins, and the traces in
    which other scopes changed records of these. A read without an origin has a writer only among the loaded spans.
    Raises SourceError when the source cannot answer.
    """
    loading = _Loading(source, max_spans)
    loading.memories([scope])
    if scope is not None:
        loading.lineage()
    return loading.graph(whole=scope is None)


def load_everywhere(
    source: TraceSource, trace_ids: Iterable[str], *, max_spans: int = ELSEWHERE_SPANS
) -> EvolutionGraph:
    """Build the graph of these traces and of every memory scope, the newest traces first.

    Used when the memory of an answer does not contain the expected answer. Raises SourceError when the source cannot
    answer.
    """
    loading = _Loading(source, max_spans)
    for trace_id in (*trace_ids, *reversed(source.trace_ids())):
        loading.trace(trace_id)
    return loading.graph()


def load_around(source: TraceSource, names: Iterable[str], *, max_spans: int = MAX_SPANS) -> EvolutionGraph:
    """Build the graph around nodes, each named as in an export or by its ref alone; an empty graph for unknown nodes.

    The graph holds every trace that is connected with the traces of the nodes by origins, and the memory scopes of all
    these traces. `ref|~scope` names a record of an unknown writer, by the scope of its readers. No span writes a
    message or a question: all spans are searched for these. Raises SourceError when the source cannot answer.
    """
    loading = _Loading(source, max_spans)
    scoped = [name.partition("|~") for name in names]
    starts = {trace_id for name, _, _ in scoped for trace_id in _traces_of(source, name)}
    behind = {scope for trace_id in sorted(starts) for scope in loading.scopes_behind(trace_id)}
    loading.memories(behind.union(scope for *_, scope in scoped if scope))
    loading.changes(list(loading.traces))
    loading.connected()
    return loading.graph()


@runtime_checkable
class SliceSource(TraceSource, Protocol):
    """A source with a query for the operations that lead to an operation: a database, whose reads cost no request."""

    def lineage(self, origins: Iterable[str]) -> list[str]:
        """Return the origins of the operations that lead to these operations."""
        ...


def load_slice(source: SliceSource, origin: str) -> EvolutionGraph:
    """Build the graph of the slice of an answer, an empty graph when the operation is unknown. Raises SourceError.

    A query finds the traces behind the answer. When a record of the slice has no known writer, the graph of the whole
    memory is loaded: another trace may have written the record under the same ref.
    """
    traces = dict.fromkeys(found[:32] for found in source.lineage([origin]))
    graph = build_graph((span for trace_id in traces for span in source.trace(trace_id)), whole=False)
    if any(_has_no_writer(node) for node in graph.slice_of_answer(origin)):
        graph = load_graph(source, origin[:32])
    return graph.part(graph.slice_of_answer(origin))


def _has_no_writer(node: NodeKey) -> bool:
    return isinstance(node, VersionKey) and not node.origin and ref_kind(node.ref) in RECORD_KINDS


def _traces_of(source: TraceSource, name: str) -> Iterable[str]:
    """Return the ids of the traces with a node."""
    origin = name.rpartition("|")[2]
    if is_origin(origin):
        return [origin[:32], *(reader.trace_id for reader in source.readers(origin))]
    return source.writers(name) or (s.trace_id for s in source.spans() if any(v.ref == name for v in s.inputs))


class _Loading:
    """The traces of one graph, each read once."""

    def __init__(self, source: TraceSource, max_spans: int) -> None:
        self._source = source
        self._noted = len(source.incomplete)
        self._left = max_spans
        self.traces: dict[str, list[OperationSpan]] = {}
        self._assembled: dict[str, Assembly] = {}
        self._sought: set[str] = set()

    @property
    def full(self) -> bool:
        """Whether the bound of spans is reached."""
        return self._left <= 0

    def trace(self, trace_id: str) -> list[OperationSpan]:
        """Return the spans of a trace, [] past the bound."""
        if trace_id not in self.traces and not self.full:
            self.traces[trace_id] = self._source.trace(trace_id)
            self._left -= len(self.traces[trace_id])
        return self.traces.get(trace_id, [])

    def scopes_behind(self, trace_id: str) -> set[str]:
        """Return the scopes of the trace and of every span that its spans came from by recorded origins."""
        scopes: set[str] = set()
        waiting = [span.origin for span in self.trace(trace_id)]
        seen: set[str] = set(waiting)
        while waiting:
            origin = waiting.pop()
            assembly = self._assembly(origin[:32])
            origin = assembly.main(origin)
            scopes.add(assembly.scopes.get(origin, ""))
            span = assembly.operations.get(origin)
            for variable in span.inputs if span else ():
                if is_origin(variable.origin) and variable.origin not in seen:
                    seen.add(variable.origin)
                    waiting.append(variable.origin)
        return scopes - {""}

    def _assembly(self, trace_id: str) -> Assembly:
        if trace_id not in self._assembled:
            self._assembled[trace_id] = assemble(self.trace(trace_id))
        return self._assembled[trace_id]

    def judgements(self, trace_ids: Iterable[str]) -> None:
        """Load the traces that judge answers of these."""
        spans = [span for trace_id in trace_ids for span in self.traces.get(trace_id, ())]
        for answer in [span for span in spans if span.kind == OpKind.RESPOND]:
            for judge in self._source.readers(answer.origin, kinds=(OpKind.JUDGE,)):
                self.trace(judge.trace_id)

    def memories(self, scopes: Iterable[str | None]) -> None:
        """Load the traces that have a span of one of these scopes, None: of any."""
        for scope in sorted(scopes, key=str):
            for trace_id in self._source.trace_ids(scope=scope):
                self.trace(trace_id)
                if self.full:
                    return

    def lineage(self) -> None:
        """Load the origins of loaded spans, then changes of their records by other scopes with the origins of these.

        The changes come last: in a backend they may exceed the bounds of the session.
        """
        memories = list(self.traces)
        self._origins(memories)
        self._origins(self.changes(memories))

    def changes(self, trace_ids: Iterable[str]) -> list[str]:
        """Load the traces in which other scopes changed records of these traces, and so on; return the new ids."""
        spans = [span for trace_id in trace_ids for span in self.traces[trace_id]]
        found: list[str] = []
        known: set[str] = set()
        while spans and not self.full:
            known.update(span.origin for span in spans)
            fresh = self._fresh(self._source.changed_elsewhere(spans))
            found += fresh
            # Without a scope every reader counts as another scope, the scope of the change included.
            spans = [replace(span, scope="") for trace_id in fresh for span in self._rewriting(trace_id, known)]
        return found

    def _rewriting(self, trace_id: str, known: Collection[str]) -> Iterator[OperationSpan]:
        """Yield the spans of the operations that rewrote a record that their trace read from a `known` origin.

        Records that another scope derived from the record are not followed.
        """
        assembly, trace = self._assembly(trace_id), self.traces[trace_id]
        refs = {v.ref for span in trace for v in span.inputs if v.origin in known}
        rewrote = {assembly.main(s.origin) for s in trace if not refs.isdisjoint(output.ref for output in s.outputs)}
        yield from (span for span in trace if assembly.main(span.origin) in rewrote)

    def _origins(self, trace_ids: Iterable[str]) -> None:
        """Load the traces that these traces name, as origins or by unique ids, until no new trace is named."""
        waiting = list(trace_ids)
        while waiting and not self.full:
            trace_id = waiting.pop()
            waiting += self._fresh((*(origin[:32] for origin in self._named(trace_id)), *self._writers(trace_id)))

    def connected(self) -> None:
        """Load the traces that read an origin of a loaded span, or an origin that a loaded span reads."""
        waiting, seen = list(self.traces), set[str]()
        while waiting and not self.full:
            trace_id = waiting.pop()
            origins = self._named(trace_id).union(span.origin for span in self.traces[trace_id]) - seen
            seen |= origins
            readers = {reader.trace_id for origin in origins for reader in self._source.readers(origin)}
            waiting += self._fresh((*(origin[:32] for origin in origins), *readers))

    def _named(self, trace_id: str) -> set[str]:
        """The origins that the spans of a loaded trace read."""
        return {v.origin for span in self.traces[trace_id] for v in span.inputs if is_origin(v.origin)}

    def _writers(self, trace_id: str) -> set[str]:
        """The traces that write a record that the spans of a loaded trace read by a unique id, without an origin."""
        refs = {v.ref for span in self.traces[trace_id] for v in span.inputs if not v.origin and is_unique(v.ref)}
        new = refs - self._sought
        self._sought |= new
        return {writer for ref in new for writer in self._source.writers(ref)}

    def _fresh(self, trace_ids: Iterable[str]) -> list[str]:
        """Load traces; return the ids of the new traces."""
        fresh = sorted(set(trace_ids) - self.traces.keys())
        for trace_id in fresh:
            self.trace(trace_id)
        return [trace_id for trace_id in fresh if trace_id in self.traces]

    def graph(self, *, whole: bool = False) -> EvolutionGraph:
        """Build the graph of the loaded traces. `whole`: the source has no other trace."""
        bounded = self.full or len(self._source.incomplete) > self._noted
        graph = build_graph((span for spans in self.traces.values() for span in spans), whole=whole and not bounded)
        if bounded:
            graph.incomplete[str(Incomplete.BOUNDED)] = 1
        return graph
