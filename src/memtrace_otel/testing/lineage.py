"""What is recorded leads somewhere: from a record that is found to the text that was written, its owner's, and once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import TypeGuard

from memtrace_otel.capture import config
from memtrace_otel.capture.content import digest
from memtrace_otel.graph import EvolutionGraph, NodeKey, VersionKey, build_graph
from memtrace_otel.graph.keys import ROOT_KINDS
from memtrace_otel.model import OperationSpan, Variable, ref_kind
from memtrace_otel.semconv import RefKind
from memtrace_otel.testing.fixtures import Observed
from memtrace_otel.testing.programs import QUERY, TEXTS, Factory, Program, Started, play, recorded


class LineageContract(Observed):
    """Part of `InstrumentorContract`. What a system cannot have is said with its reason, in a flag of the subclass."""

    remembers_answers: bool = False
    """A memory that holds the model's earlier answers comes from the questions they were given to."""
    unasked: str = ""
    """Why reading names no query: the system is read without one."""
    shown_otherwise: str = ""
    """Why a record is found with another digest than it was written with: the system shows it in another form."""
    unowned: str = ""
    """Why two programs have the same scopes, or none: the system knows no owners."""

    def test_what_is_found_has_its_writer_and_no_later_ancestor(
        self, program: Factory, instrument: Callable[[], None], spans: Started
    ) -> None:
        graph = self._played(program, instrument, spans)
        found = set(self._hits(graph))
        assert found
        assert {version for version in found if version not in graph.outputs(version.origin)} == set()
        for version in found:
            written = graph.operation(version.origin)
            assert written is not None
            for ancestor in graph.ancestors(version):
                is_query = isinstance(ancestor, VersionKey) and ref_kind(ancestor.ref) == RefKind.QUERY
                assert self.remembers_answers or not is_query, ancestor
                made = graph.operation(ancestor.origin) if ancestor.origin else None
                assert made is None or made.start <= written.end, (ancestor, version)

    def test_what_is_found_is_what_was_written(
        self, program: Factory, instrument: Callable[[], None], spans: Started
    ) -> None:
        """A record is found with the digest that it was written with, and comes from the text that it holds; what holds
        other words (of a model, say) comes from something, and one record at least from a text of the program."""
        graph = self._played(program, instrument, spans)
        texts = {digest(text, config()) for text in TEXTS}
        told: set[str] = set()
        hits = self._hits(graph)
        otherwise = [hit for hit, digests in hits.items() if digests != self._written(graph, hit)]
        assert bool(otherwise) == bool(self.shown_otherwise), f"{otherwise}; said of it: {self.shown_otherwise!r}"
        for version, digests in hits.items():
            roots = {graph.digest(source) for source in graph.ancestors(version) if _is_root(source)}
            assert roots, f"{version} comes from nothing"
            assert digests & texts <= roots, f"{version} does not come from its text"
            told |= roots & texts
        assert told, "nothing that was found comes from a text that was written"

    def test_what_is_found_was_asked_for(
        self, program: Factory, instrument: Callable[[], None], spans: Started
    ) -> None:
        """What the program searches, it searches with its question."""
        began: list[int] = []

        async def mark() -> None:
            began.append(time.time_ns())

        instrument()
        asyncio.run(play(program, pause=mark))
        searches = [s for s in self._searches(build_graph(recorded(spans))) if s.start >= began[-1]]
        assert searches
        asked = digest(QUERY, config())
        silent = [search.name for search in searches if asked not in {read.digest for read in search.inputs}]
        assert bool(silent) == bool(self.unasked), f"without the question: {silent}; said of it: {self.unasked!r}"

    def test_nothing_is_recorded_twice(self, program: Factory, instrument: Callable[[], None], spans: Started) -> None:
        """An operation and one below it do not tell the same of the same record."""
        graph = self._played(program, instrument, spans)
        kind, role = self.reading
        told = {
            operation.origin: (
                {(operation.name, wrote.ref) for wrote in operation.outputs}
                | {
                    (operation.name, read.ref)
                    for read in operation.inputs
                    if operation.kind == kind and read.role == role
                }
            )
            for operation in graph.operations()
        }
        twice = {
            (below.origin, above.origin): both
            for below in graph.operations()
            for above in _above(graph, below)
            if (both := told[below.origin] & told[above.origin])
        }
        assert twice == {}

    def test_owners_have_scopes_of_their_own(
        self, program: Factory, instrument: Callable[[], None], spans: Started
    ) -> None:
        """Every fresh program is another owner of memories."""
        owners: list[Program] = []

        def owner() -> Program:
            owners.append(program())  # kept: an object that is gone can have the id of a new one
            return owners[-1]

        one = self._scopes(self._played(owner, instrument, spans))
        spans.ended.clear()
        other = self._scopes(self._played(owner, lambda: None, spans))
        assert self.unowned or (one and other), "nothing says whose the memory is"
        assert self.unowned or not one & other, "two owners are taken for one"

    def _played(self, program: Factory, instrument: Callable[[], None], spans: Started) -> EvolutionGraph:
        instrument()
        asyncio.run(play(program))
        return build_graph(recorded(spans))

    def _searches(self, graph: EvolutionGraph) -> Iterator[OperationSpan]:
        """The operations that found something."""
        kind, role = self.reading
        return (span for span in graph.operations(kind=kind) if any(read.role == role for read in span.inputs))

    def _hits(self, graph: EvolutionGraph) -> dict[VersionKey, set[str]]:
        """What was found, with the digests it was found with."""
        found: dict[VersionKey, set[str]] = {}
        for search in self._searches(graph):
            for read in graph.inputs(search.origin):
                if read.role == self.reading[1]:
                    found.setdefault(read.version, set())
            for read in search.inputs:
                if read.role == self.reading[1] and read.digest:
                    found.setdefault(graph.version(read.ref, read.origin), set()).add(read.digest)
        return found

    def _written(self, graph: EvolutionGraph, version: VersionKey) -> set[str]:
        written = graph.operation(version.origin)
        outputs: tuple[Variable, ...] = written.outputs if written else ()
        return {wrote.digest for wrote in outputs if wrote.ref == version.ref}

    def _scopes(self, graph: EvolutionGraph) -> set[str]:
        kind, _ = self.reading
        touching = [*graph.operations(kind=kind), *(graph.operation(v.origin) for v in self._hits(graph))]
        return {span.scope for span in touching if span is not None and span.scope}


def _above(graph: EvolutionGraph, operation: OperationSpan) -> Iterator[OperationSpan]:
    above = graph.enclosing(operation.origin)
    while above is not None:
        yield above
        above = graph.enclosing(above.origin)


def _is_root(node: NodeKey) -> TypeGuard[VersionKey]:
    return isinstance(node, VersionKey) and ref_kind(node.ref) in ROOT_KINDS
