"""Queries of the graph: ancestors and descendants, slices, paths, the state of a memory and its changes."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from memtrace_otel.graph.graph import GraphData
from memtrace_otel.graph.keys import RECORD_KINDS, NodeKey, OperationKey, VersionKey
from memtrace_otel.graph.memory_state import Change, changes_between, state_at
from memtrace_otel.graph.paths import Paths, paths_between
from memtrace_otel.graph.walk import feeding, following, reach, sources_of
from memtrace_otel.model import OperationSpan, ref_kind
from memtrace_otel.semconv import Incomplete, OpKind, RefKind

_ANSWERING = frozenset({OpKind.RESPOND, OpKind.JUDGE})
_OF_THE_WHOLE = (Incomplete.BOUNDED, Incomplete.LOST_SPANS)


class EvolutionGraph(GraphData):
    """The graph of operations and versions with its queries; made by `build_graph`. `GraphData` lists the attributes.

    A node is an `OperationKey` or a `VersionKey`. Every query ends on bad data: a node is visited at most once a phase.
    """

    def sources(self, version: VersionKey, *, without: Collection[str] = ()) -> list[VersionKey]:
        """Return the versions that directly fed a version, except those read in a role of `without`."""
        nodes = feeding(self, self.version(*version), frozenset(without))
        return list(dict.fromkeys(node for node in nodes if isinstance(node, VersionKey)))

    def ancestors(self, node: NodeKey) -> set[NodeKey]:
        """Return every operation and version that information in `node` came through, without `node`."""
        return reach(self.existing(node), lambda found: sources_of(self, found))

    def descendants(self, node: NodeKey) -> set[NodeKey]:
        """Return every operation and version that information in `node` went to, without `node`."""
        return reach(self.existing(node), lambda found: following(self, found))

    def slice_of_answer(self, origin: str) -> set[NodeKey]:
        """Return an answering operation, its outputs and all their sources: context, versions, writers, messages.

        Nodes of other questions are left out, in two phases. Before the first record, another answering operation is
        entered only when it worked on the same question. Behind a record, no question and no answering operation is
        entered: this part is the history of the record. A judgement without a question has the question of the answer.
        """
        answer = self.existing(OperationKey(origin))
        if answer not in self:
            return set()
        found: set[NodeKey] = {answer, *self.outputs(origin)}
        inputs = [read.version for read in self.inputs(origin)]
        own = {version.ref for version in inputs if ref_kind(version.ref) == RefKind.QUERY}
        if not own and not any(isinstance(made, VersionKey) and ref_kind(made.ref) == RefKind.ANSWER for made in found):
            own = self._judged_questions(inputs)

        def is_allowed(operation: NodeKey, behind_record: bool) -> bool:
            asked = self._questions(operation)
            if operation == answer or asked is None:
                return True
            return not behind_record and (not asked or not own.isdisjoint(asked))

        waiting: list[tuple[VersionKey, bool]] = [(version, False) for version in inputs]
        seen: set[tuple[VersionKey, bool]] = set()
        while waiting:
            version, behind_record = waiting.pop()
            kind = ref_kind(version.ref)
            if (version, behind_record) in seen or (behind_record and kind == RefKind.QUERY):
                continue
            seen.add((version, behind_record))
            found.add(version)
            behind_record = behind_record or kind in RECORD_KINDS
            for place, node in enumerate(feeding(self, version)):
                if isinstance(node, VersionKey):
                    waiting.append((node, behind_record))
                elif is_allowed(node, behind_record):
                    found.add(node)
                elif place == 0:  # the producer
                    break
        return found

    def slice_of_message(self, message: VersionKey) -> set[NodeKey]:
        """Return a message and all nodes that descend from the message, up to the answers and their judgements.

        The search ends at an answer: records made from an answer belong to the slice of the answer.
        """
        message = self.version(*message)
        found: set[NodeKey] = {message} if message in self else set()
        waiting: list[NodeKey] = list(found)
        while waiting:
            for node in following(self, waiting.pop()):
                if node in found:
                    continue
                found.add(node)
                if isinstance(node, VersionKey):
                    if ref_kind(node.ref) == RefKind.ANSWER:
                        readers = (read.operation for read in self.readers(node))
                        found.update(reader for reader in readers if self._kind(reader) == OpKind.JUDGE)
                    else:
                        waiting.append(node)
        return found

    def part(self, nodes: Iterable[NodeKey]) -> EvolutionGraph:
        """Return a graph of these nodes and the edges between them. An operation keeps its span.

        `incomplete` counts the operations of the part; reasons of the whole, such as `bounded`, stay.
        """
        part = EvolutionGraph()
        part.graph.update(self.graph)
        chosen = set(nodes)
        part.add_nodes_from((node, data) for node, data in self.nodes(data=True) if node in chosen)
        for source, target, key, edge in self.edges(chosen, keys=True, data=True):
            if target in chosen:
                part.add_edge(source, target, key=key, **edge)
        counted = self.count_reasons()
        of_whole = {
            reason: count
            for reason, count in self.incomplete.items()
            if reason in _OF_THE_WHOLE or counted.get(reason) != count
        }
        part.graph["incomplete"] = dict(sorted((part.count_reasons() | of_whole).items()))
        return part

    def paths(self, source: NodeKey, target: NodeKey, *, limit: int = 100) -> Paths:
        """Return the paths of information from one node to another, at most `limit`, shortest first."""
        return paths_between(self, self.existing(source), self.existing(target), limit)

    def state(self, scope: str, time: int | None = None) -> list[VersionKey]:
        """Return the version of every record that a scope held at `time` (ns since the epoch, None: now), by ref."""
        return state_at(self, scope, time)

    def diff(self, scope: str, since: int, until: int | None = None) -> list[Change]:
        """Return the records that a scope learnt, changed and forgot between two times, in time order.

        Raises ValueError when `since` is later than `until`.
        """
        return changes_between(self, scope, since, until)

    def _judged_questions(self, inputs: Iterable[VersionKey]) -> set[str]:
        """Return the questions of the answers among the inputs of a judgement."""
        answers = [version for version in inputs if ref_kind(version.ref) == RefKind.ANSWER]
        producers = [next(feeding(self, version), None) for version in answers]
        return {ref for node in producers if isinstance(node, OperationKey) for ref in self._questions(node) or ()}

    def _questions(self, operation: NodeKey) -> set[str] | None:
        """Return the questions that an answering operation worked on, None for any other operation."""
        span: OperationSpan | None = self.nodes[operation]["span"]
        if span is None or span.kind not in _ANSWERING:
            return None
        return {variable.ref for variable in span.inputs if ref_kind(variable.ref) == RefKind.QUERY}

    def _kind(self, operation: NodeKey) -> str:
        span: OperationSpan | None = self.nodes[operation]["span"]
        return span.kind if span else ""
