"""The part of a store that one trace depends on, or one memory, as a graph."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from memtrace_otel.graph.assembly import Assembly, assemble
from memtrace_otel.graph.build import build_graph
from memtrace_otel.graph.queries import EvolutionGraph
from memtrace_otel.graph.shared_records import Meetings
from memtrace_otel.graph.sharing import SharingSource, traces_sharing
from memtrace_otel.graph.slicing import LineageSource
from memtrace_otel.model import OperationSpan, is_origin, is_unique
from memtrace_otel.semconv import Incomplete, OpKind
from memtrace_otel.sources.errors import SourceLimitError
from memtrace_otel.sources.protocols import TraceSource

T = TypeVar("T")
_logger = logging.getLogger(__name__)
MAX_SPANS = 500_000
"""Most spans loaded for one graph; past it nothing more is asked for and `incomplete` says `bounded`."""


def load_graph(source: TraceSource, trace_id: str, *, max_spans: int = MAX_SPANS) -> EvolutionGraph:
    """Build the graph around one trace; an empty one when the trace is unknown.

    It holds the trace; what its spans name as origins, and the origins of those; every span of the memory
    scopes met on that way; the judgements of the trace's answers; and of each of these spans the whole trace. Where the
    source knows writers, also those of universally unique ids that are read without an origin, what another scope, or
    none, changed in these memories and said so, and what tells whose records these changed in these traces by name
    alone. Raises StoreError when the source cannot answer.
    """
    return next(load_graphs(source, [trace_id], max_spans=max_spans))[1]


def load_graphs(
    source: TraceSource, trace_ids: Iterable[str], *, max_spans: int = MAX_SPANS
) -> Iterator[tuple[list[str], EvolutionGraph]]:
    """Build the graphs around traces, one after the other: traces of just the same memories are in one, named beside
    it; one that has none is alone.

    Each graph holds what `load_graph` builds around each of its traces; the one before can be dropped by then.
    """
    left = dict.fromkeys(trace_ids)
    numbers = {trace_id: number for number, trace_id in enumerate(left)}
    while left:
        first = next(iter(left))
        loading = _Loading(source, max_spans)
        scopes = loading.scopes_behind(first)
        loading.judgements([first])  # not after memories that may take all there is: it would not seem to fail
        loading.memories(scopes)
        likely = sorted((loading.traces.keys() & left.keys()) - {first}, key=numbers.__getitem__)
        together = [first, *(trace_id for trace_id in likely if scopes and loading.scopes_behind(trace_id) == scopes)]
        loading.judgements(together[1:])
        loading.lineage()
        yield together, loading.graph()
        for trace_id in together:
            del left[trace_id]


def load_scope(source: TraceSource, scope: str | None = None, *, max_spans: int = MAX_SPANS) -> EvolutionGraph:
    """Build the graph of one memory, None: of the whole source; an empty one when nothing has that scope.

    Of the whole source gaps in the sequence numbers say that spans were lost; a part has gaps anyhow.

    It holds every trace with a span of the scope, and the traces that those name as origins: what a span of another
    memory in these traces read has no writer here unless it names one, by an origin or an id that is unique; what one
    of no memory read by a name alone is looked for in what is loaded. Where the source knows writers, it also holds
    what another scope, or none, did to a record and said so, by its origin or an id that is unique; where it knows
    their scopes, too (a file), what those memories wrote by its name that go on with it under that name. Raises
    StoreError when the source cannot answer.
    """
    loading = _Loading(source, max_spans)
    loading.memories([scope])
    if scope is not None:
        loading.lineage()
    return loading.graph(whole=scope is None)


def load_around(source: LineageSource, names: Iterable[str], *, max_spans: int = MAX_SPANS) -> EvolutionGraph:
    """Build the graph around nodes, each named as exports name it or by its ref alone; an empty one when nothing is
    called so.

    It holds what the traces of the nodes are connected with by origins, before and after them, and the memory scopes
    that they are of. Where a ref alone names several, a memory that only reads it from an unknown writer is not one of
    them: name its scope, as `ref|~scope`. A message or question, which nothing has written, is searched for among all
    spans; memory does not grow with them. Raises StoreError when the source cannot answer.
    """
    loading = _Loading(source, max_spans)
    source.decode()
    scoped = [name.partition("|~") for name in names]
    starts = {trace_id for name, _, _ in scoped for trace_id in _traces_of(source, name)}
    behind = {scope for trace_id in sorted(starts) for scope in loading.scopes_behind(trace_id)}
    loading.memories(behind.union(scope for *_, scope in scoped if scope))
    loading.changes(list(loading.traces))
    loading.owners()
    loading.connected()
    return loading.graph()


def _traces_of(source: LineageSource, name: str) -> Iterable[str]:
    """The ids of the traces that tell of a node."""
    origin = name.rpartition("|")[2]
    if is_origin(origin):
        return [origin[:32], *(reader.trace_id for reader in source.readers(origin))]
    return source.writers(name) or (s.trace_id for s in source.spans() if any(v.ref == name for v in s.inputs))


@lru_cache(256)
def _warn(reason: str) -> None:
    """Say once why graphs are made of a part: of fifty failing traces each may meet the same bound."""
    _logger.warning("not all is read, so that graphs and verdicts are incomplete: %s", reason)


class _Loading:
    """Traces asked for so far, each once."""

    def __init__(self, source: TraceSource, max_spans: int) -> None:
        self._source = source
        self._left = max_spans
        self._bounded = False
        self.traces: dict[str, list[OperationSpan]] = {}
        self._assembled: dict[str, Assembly] = {}
        self._sought: set[str] = set()
        self._memories: set[str | None] = set()

    @property
    def full(self) -> bool:
        """Whether the limit is reached."""
        return self._left <= 0

    def trace(self, trace_id: str) -> list[OperationSpan]:
        """Return the spans of a trace."""
        if trace_id not in self.traces and not self.full:
            spans = self._asked(lambda: self._source.trace(trace_id)) or []
            self.traces[trace_id] = spans
            self._left -= len(spans)
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
            judges = self._asked(lambda answer=answer: self._source.readers(answer.origin, kinds=(OpKind.JUDGE,)))
            for judge in judges or ():
                self.trace(judge.trace_id)

    def memories(self, scopes: Iterable[str | None]) -> None:
        """Load the traces that have a span of one of these scopes, None: of any."""
        self._memories.update(scopes := sorted(scopes, key=str))
        for scope in scopes:
            for trace_id in self._asked(lambda scope=scope: self._source.trace_ids(scope=scope)) or ():
                self.trace(trace_id)
                if self.full:
                    return

    def lineage(self) -> None:
        """Load what loaded spans came from, what others did to their records, what tells whether these are theirs, and
        what that came from.

        The changes are last: of a backend they may cost more than there is.
        """
        memories = list(self.traces)
        self._origins(memories)
        self._origins(self.changes(memories))
        self._origins(self.owners())

    def changes(self, trace_ids: Iterable[str]) -> list[str]:
        """Load the traces in which others did something to records of these, and to what came of that, where the source
        can tell; return the ids of those that are new."""
        return self._followed([span for trace_id in trace_ids for span in self.traces[trace_id]])

    def _followed(self, spans: Collection[OperationSpan]) -> list[str]:
        """Load the traces in which others did something to what these wrote, and to what came of that."""
        found: list[str] = []
        known: set[str] = set()
        while spans and not self.full:
            known.update(span.origin for span in spans)
            fresh = self._changed(spans)
            found += fresh
            # Whose changes these are goes on with them as anybody does: of no scope all who read them are others.
            spans = [replace(span, scope="") for trace_id in fresh for span in self._rewriting(trace_id, known)]
        return found

    def owners(self) -> list[str]:
        """Load the traces that tell which records of these memories others mean by the same name, and what they wrote
        there by that name alone; and what was done to that. Return the ids of those that are new."""
        if None in self._memories:
            return []
        meetings = Meetings(self.traces, self._assembly, self._memories)
        shared = meetings.shared() if isinstance(self._source, SharingSource) else meetings.doubtful()
        found = [self._asked(lambda told=told: self._sharing(*told)) for told in shared.items()]
        self._bounded |= None in found
        owned = self._fresh(trace_id for traces in found for trace_id in traces or ())
        return [*owned, *self._followed([span for id in owned for span in self._listing(id, shared)])]

    def _sharing(self, ref: str, scopes: Collection[str]) -> Collection[str] | None:
        """The traces that tell who wrote a record, None where that cannot be told."""
        if isinstance(self._source, SharingSource):
            return traces_sharing(self._source, ref, scopes)
        return self._source.writers(ref)

    def _rewriting(self, trace_id: str, known: Collection[str]) -> Iterator[OperationSpan]:
        """Yield the spans of the operations that wrote anew what their trace read from `known` origins. What others
        derived from it is theirs, and not followed: it may be all they ever did."""
        assembly, trace = self._assembly(trace_id), self.traces[trace_id]
        refs = {v.ref for span in trace for v in span.inputs if v.origin in known}
        rewrote = {assembly.main(s.origin) for s in trace if not refs.isdisjoint(output.ref for output in s.outputs)}
        yield from (span for span in trace if assembly.main(span.origin) in rewrote)

    def _listing(self, trace_id: str, refs: Collection[str]) -> Iterator[OperationSpan]:
        """Yield the spans of the operations that list one of these refs, each with the scope that it is of."""
        assembly, trace = self._assembly(trace_id), self.traces[trace_id]
        listing = {assembly.main(s.origin) for s in trace if any(output.ref in refs for output in s.outputs)}
        for span in trace:
            if (main := assembly.main(span.origin)) in listing:
                yield replace(span, scope=assembly.scopes.get(main, ""))

    def _changed(self, spans: Collection[OperationSpan]) -> list[str]:
        try:
            changed: Collection[str] = self._source.changed_elsewhere(spans)
        except SourceLimitError as error:
            self._limited(error)
            changed = error.found
        return self._fresh(changed)

    def _origins(self, trace_ids: Iterable[str]) -> None:
        """Load the traces that these name, as origins or by unique ids, until nothing new is named."""
        waiting = list(trace_ids)
        while waiting and not self.full:
            trace_id = waiting.pop()
            waiting += self._fresh((*(origin[:32] for origin in self._named(trace_id)), *self._writers(trace_id)))

    def connected(self) -> None:
        """Load the traces that name one of the origins that loaded spans have or name, too."""
        waiting, seen = list(self.traces), set[str]()
        while waiting and not self.full:
            trace_id = waiting.pop()
            origins = self._named(trace_id).union(span.origin for span in self.traces[trace_id]) - seen
            seen |= origins
            found = [self._asked(lambda origin=origin: self._source.readers(origin)) for origin in origins]
            readers = {reader.trace_id for spans in found for reader in spans or ()}
            waiting += self._fresh((*(origin[:32] for origin in origins), *readers))

    def _asked(self, question: Callable[[], T]) -> T | None:
        """Return the answer of the source, None where it cannot be had. Past what it may cost the limit is reached."""
        try:
            return question()
        except SourceLimitError as error:
            self._limited(error)
            return None

    def _limited(self, error: SourceLimitError) -> None:
        _warn(str(error))
        self._bounded = True
        if not error.is_reply:
            self._left = 0

    def _named(self, trace_id: str) -> set[str]:
        """The origins of what the spans of a loaded trace read."""
        return {v.origin for span in self.traces[trace_id] for v in span.inputs if is_origin(v.origin)}

    def _writers(self, trace_id: str) -> set[str]:
        """The traces that write what the spans of a loaded trace read by a unique id alone."""
        refs = {v.ref for span in self.traces[trace_id] for v in span.inputs if not v.origin and is_unique(v.ref)}
        new = refs - self._sought
        self._sought |= new
        found = [self._asked(lambda ref=ref: self._source.writers(ref)) for ref in new]
        return {writer for writers in found for writer in writers or ()}

    def _fresh(self, trace_ids: Iterable[str]) -> list[str]:
        """Load those traces; return the ids of those that are new."""
        fresh = sorted(set(trace_ids) - self.traces.keys())
        for trace_id in fresh:
            self.trace(trace_id)
        return [trace_id for trace_id in fresh if trace_id in self.traces]

    def graph(self, *, whole: bool = False) -> EvolutionGraph:
        """Build the graph of what was loaded; `whole` says that it is everything, unless the limit was reached."""
        bounded = self.full or self._bounded or bool(getattr(self._source, "incomplete", ()))
        graph = build_graph((span for spans in self.traces.values() for span in spans), whole=whole and not bounded)
        if bounded:
            graph.incomplete[str(Incomplete.BOUNDED)] = 1
        return graph
