"""The lineage contract: every hit leads to its writer, its source text and its owner, and is recorded once."""

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
    """Part of `InstrumentorContract`."""

    remembers_answers: bool = False
    """Whether the memory holds earlier answers of the model: then a record may come from a question."""

    def test_a_hit_has_its_writer_and_no_later_ancestor(
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

    def test_a_hit_has_the_digest_of_its_write(
        self, program: Factory, instrument: Callable[[], None], spans: Started
    ) -> None:
        graph = self._played(program, instrument, spans)
        assert [hit for hit, digests in self._hits(graph).items() if digests != self._written(graph, hit)] == []

    def test_a_hit_comes_from_its_text(self, program: Factory, instrument: Callable[[], None], spans: Started) -> None:
        """A record with a text of the program comes from that text; a record with words of a model has some source, and
        at least one record comes from a text of the program."""
        graph = self._played(program, instrument, spans)
        texts = {digest(text, config()) for text in TEXTS}
        reached: set[str] = set()
        for version, digests in self._hits(graph).items():
            roots = {graph.digest(source) for source in graph.ancestors(version) if _is_root(source)}
            assert roots, f"{version} has no source"
            assert digests & texts <= roots, f"{version} does not come from its text"
            reached |= roots & texts
        assert reached, "no hit comes from a text of the program"

    def test_a_search_reads_its_query(self, program: Factory, instrument: Callable[[], None], spans: Started) -> None:
        began: list[int] = []

        async def mark() -> None:
            began.append(time.time_ns())

        instrument()
        asyncio.run(play(program, pause=mark))
        searches = [s for s in self._searches(build_graph(recorded(spans))) if s.start >= began[-1]]
        assert searches
        asked = digest(QUERY, config())
        assert [search.name for search in searches if asked not in {read.digest for read in search.inputs}] == []

    def test_no_record_is_listed_twice(self, program: Factory, instrument: Callable[[], None], spans: Started) -> None:
        """An operation and an operation below it do not list the same record in the same way."""
        graph = self._played(program, instrument, spans)
        kind, role = self.reading
        listed = {
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
            if (both := listed[below.origin] & listed[above.origin])
        }
        assert twice == {}

    def test_two_owners_have_two_scopes(self, program: Factory, instrument: Callable[[], None], spans: Started) -> None:
        """Every fresh program is another owner."""
        owners: list[Program] = []

        def owner() -> Program:
            owners.append(program())  # a live object keeps its id
            return owners[-1]

        one = self._scopes(self._played(owner, instrument, spans))
        spans.ended.clear()
        other = self._scopes(self._played(owner, lambda: None, spans))
        assert one, "no operation on memory has a scope"
        assert other, "no operation on memory has a scope"
        assert not one & other, "two owners have one scope"

    def _played(self, program: Factory, instrument: Callable[[], None], spans: Started) -> EvolutionGraph:
        instrument()
        asyncio.run(play(program))
        return build_graph(recorded(spans))

    def _searches(self, graph: EvolutionGraph) -> Iterator[OperationSpan]:
        """The searches with a hit."""
        kind, role = self.reading
        return (span for span in graph.operations(kind=kind) if any(read.role == role for read in span.inputs))

    def _hits(self, graph: EvolutionGraph) -> dict[VersionKey, set[str]]:
        """The versions that a search found, with the digests of the hits."""
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
