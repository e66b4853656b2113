"""Build the evolution graph of operation spans: the same graph for any order, with every gap named."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from memtrace_otel import semconv
from memtrace_otel.graph.assembly import Assembly, assemble
from memtrace_otel.graph.contents import ContentChooser, Sightings
from memtrace_otel.graph.keys import (
    ROOT_KINDS,
    TURN_KINDS,
    EdgeType,
    NodeType,
    OperationKey,
    VersionKey,
)
from memtrace_otel.graph.queries import EvolutionGraph
from memtrace_otel.graph.versions import Versions, writes_version
from memtrace_otel.model import OperationSpan, Variable, ref_kind
from memtrace_otel.semconv import READING_KINDS, Incomplete, Role

_PROCESS = (semconv.SERVICE_NAME, semconv.SERVICE_INSTANCE_ID, "host.name", semconv.PROCESS_PID)
_OWN_KINDS = frozenset({"context", "answer"})
"""Kinds whose id is the id of the producing span: the ref names its producer."""


def build_graph(spans: Iterable[OperationSpan], *, whole: bool = True) -> EvolutionGraph:
    """Build the evolution graph of the spans, in any order, repeated or partly missing.

    A missing span becomes a node (an operation with span None, a version with `unknown`) and a reason in
    `graph.incomplete`. `whole`: the spans are everything that their processes sent, so gaps in the sequence numbers
    mean lost spans.
    """
    spans = list(spans)
    builder = _Builder(assemble(spans))
    builder.add_operations()
    builder.add_outputs()
    builder.add_inputs()
    builder.add_contents()
    builder.add_supersessions()
    graph = builder.finish()
    if lost := max(dropped_spans(spans), lost_spans(spans) if whole else 0):
        graph.incomplete[str(Incomplete.LOST_SPANS)] = lost
    graph.graph["incomplete"] = dict(sorted(graph.incomplete.items()))
    return graph


class _Builder:
    """Fills one graph, step by step."""

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._versions = Versions(assembly)
        self._graph = EvolutionGraph()
        self._sightings: defaultdict[VersionKey, Sightings] = defaultdict(Sightings)
        self._previous: defaultdict[VersionKey, list[VersionKey]] = defaultdict(list)

    def add_operations(self) -> None:
        nearest = self._assembly.hierarchy.nearest(self._assembly.operations)
        for origin, span in self._assembly.operations.items():
            self._graph.add_node(
                OperationKey(origin),
                type=NodeType.OPERATION,
                span=span,
                scope=self._assembly.scopes[origin],
                parent=nearest.get(origin, ""),
                judged=self._assembly.judged.get(origin, ""),
                incomplete=(),
            )

    def add_outputs(self) -> None:
        for origin, span in self._assembly.operations.items():
            sources = _sources(span)
            for index, output in enumerate(span.outputs):
                version = VersionKey(output.ref, origin)
                if version in self._versions.written:
                    if writes_version(span, output):
                        self._produce(version, output, index, sources[index] if sources else None)
                elif version in self._versions.repeats:
                    self._report(self._versions.repeats[version], OperationKey(origin), output, index)

    def add_inputs(self) -> None:
        for origin, span in self._assembly.operations.items():
            operation = OperationKey(origin)
            supplied = len(span.inputs) - 1 if origin in self._assembly.supplied else None
            ranks: Counter[str] = Counter()
            for index, variable in enumerate(span.inputs):
                version, inferred = self._versions.read(span, variable)
                self._see(version, variable)
                rank = None
                if span.kind in ("retrieve", "rerank") and variable.role in (Role.HIT, Role.CANDIDATE):
                    ranks[variable.role] += 1
                    rank = ranks[variable.role]
                self._graph.add_edge(
                    version,
                    operation,
                    key=f"read:{index}",
                    type=EdgeType.READ,
                    role=variable.role,
                    index=index,
                    score=variable.score,
                    rank=rank,
                    inferred=inferred or index == supplied,
                )
                if variable.role == Role.PREVIOUS:
                    written = VersionKey(variable.ref, origin)
                    if written in self._versions.written and version != written:
                        self._previous[written].append(version)
            self._add_considered(span, operation)

    def _add_considered(self, span: OperationSpan, operation: OperationKey) -> None:
        """Outputs that are no new version are reads, unless the operation already reads that variable."""
        read = {variable.ref for variable in span.inputs}
        for index, output in enumerate(span.outputs):
            if output.ref in read or writes_version(span, output):
                continue
            if VersionKey(output.ref, span.origin) in self._versions.written:
                continue
            version, inferred = self._versions.looked_at(span, output)
            self._see(version, output)
            self._graph.add_edge(
                version,
                operation,
                key=f"considered:{index}",
                type=EdgeType.READ,
                role=Role.HIT if span.kind in READING_KINDS else Role.CANDIDATE,
                index=-1,
                score=output.score,
                rank=None,
                inferred=inferred,
            )

    def add_contents(self) -> None:
        chooser = ContentChooser(self._assembly.operations.values())
        for version, sightings in self._sightings.items():
            write = self._versions.written.get(version)
            node = self._graph.nodes[version]
            deletes = write is not None and write.deletes
            unknown = node["unknown"] and ref_kind(version.ref) not in TURN_KINDS
            content, cut = chooser.choose(sightings, tombstone=deletes, unknown=unknown)
            node["content"], node["truncated"] = content, cut

    def add_supersessions(self) -> None:
        for step in self._versions.supersessions(self._previous, self._graph.has_node):
            self._graph.add_edge(step.new, step.old, key="supersedes", type=EdgeType.SUPERSEDES, inferred=step.inferred)

    def finish(self) -> EvolutionGraph:
        reasons = {
            origin: self._assembly.reasons.get(origin, set[str]()) | _own_reasons(span)
            for origin, span in self._assembly.operations.items()
        }
        for gaps in self._assembly.gaps.values():
            for origin, reason in gaps:
                if origin in reasons:
                    reasons[origin].add(reason)
        for origin, why in reasons.items():
            self._graph.nodes[OperationKey(origin)]["incomplete"] = tuple(sorted(why))
        self._graph.graph["incomplete"] = self._graph.count_reasons()
        self._graph.graph["mains"] = dict(self._assembly.hierarchy.mains)
        self._graph.graph["repeats"] = dict(self._versions.repeats)
        return self._graph

    # --- single nodes and edges ----------------------------------------------------------------------------------
    def _produce(self, version: VersionKey, output: Variable, index: int, sources: tuple[int, ...] | None) -> None:
        self._version(version, output)
        self._graph.nodes[version]["variable"] = output  # of several outputs of one ref the last is the version
        self._sightings[version].produced = output
        self._graph.add_edge(
            OperationKey(version.origin),
            version,
            key=f"produced:{index}",
            type=EdgeType.PRODUCED,
            action=output.action,
            role=output.role,
            index=index,
            sources=sources,
        )

    def _report(self, version: VersionKey, operation: OperationKey, output: Variable, index: int) -> None:
        self._sightings[version].read.append(output)
        self._version(version, None)
        self._graph.add_edge(
            operation,
            version,
            key=f"reported:{index}",
            type=EdgeType.REPORTED,
            action=output.action,
            role=output.role,
            index=index,
        )

    def _see(self, version: VersionKey, variable: Variable) -> None:
        """Add a version that is read, with its producer, unless the graph has the version."""
        self._sightings[version].read.append(variable)
        if version in self._graph:
            return
        self._version(version, None if version.origin else variable)
        if not version.origin:
            return
        producer = OperationKey(version.origin)
        if producer not in self._graph:
            self._graph.add_node(
                producer,
                type=NodeType.OPERATION,
                span=None,
                scope="",
                parent="",
                judged="",
                incomplete=(str(Incomplete.MISSING_OPERATION),),
            )
        elif not _declares(producer, version):
            self._assembly.gaps[version.ref].add((version.origin, Incomplete.UNDECLARED_OUTPUT))
        self._graph.add_edge(
            producer,
            version,
            key=f"produced:{version.ref}",
            type=EdgeType.PRODUCED,
            action="",
            role=Role.OTHER,
            index=-1,
            sources=None,
        )

    def _version(self, version: VersionKey, variable: Variable | None) -> None:
        if version not in self._graph:
            unknown = not version.origin and ref_kind(version.ref) not in ROOT_KINDS
            self._graph.add_node(
                version, type=NodeType.VERSION, variable=variable, content="", truncated=False, unknown=unknown
            )


def _sources(span: OperationSpan) -> list[tuple[int, ...]] | None:
    """Return the input indices that fed each output, None when every input fed every output."""
    if span.flow is None:
        return None
    fed: list[list[int]] = [[] for _ in span.outputs]
    for i, o in span.flow:
        fed[o].append(i)
    return [tuple(sorted(set(indices))) for indices in fed]


def _own_reasons(span: OperationSpan) -> set[str]:
    """Return the reasons of the span itself, without unknown origins of inputs: the graph resolves them again."""
    open_inputs = any(not v.origin and ref_kind(v.ref) not in ROOT_KINDS for v in span.inputs)
    return {reason for reason in span.incomplete if not (reason == Incomplete.UNKNOWN_ORIGIN and open_inputs)}


def _declares(producer: OperationKey, version: VersionKey) -> bool:
    return version.ref.partition(":")[0] in _OWN_KINDS and version.ref.endswith(producer.origin[33:])


def lost_spans(spans: Iterable[OperationSpan]) -> int:
    """Return how many numbers are missing between the first and the last number of each process.

    The spans must be everything that the processes sent. The upper bits of a number distinguish processes that share
    one resource (a fork, a restart). A number on two spans shows a writer without these bits: its gaps are not counted.
    Losses before the first or after the last number are unknown.
    """
    seen: defaultdict[tuple[object, ...], dict[int, str]] = defaultdict(dict)
    shared: set[tuple[object, ...]] = set()
    for span in spans:
        if span.seq is None:
            continue
        process = (span.seq >> semconv.SEQ_BITS, *(str(span.resource.get(name, "")) for name in _PROCESS))
        if seen[process].setdefault(span.seq, span.origin) != span.origin:
            shared.add(process)
    return sum(
        max(numbers) - min(numbers) + 1 - len(numbers) for process, numbers in seen.items() if process not in shared
    )


def dropped_spans(spans: Iterable[OperationSpan]) -> int:
    """Return how many spans the processors of the processes report as dropped."""
    dropped: dict[str, int] = {}
    for span in spans:
        count = span.attributes.get(semconv.LOST)
        if isinstance(count, int):
            dropped[span.origin] = max(count, dropped.get(span.origin, 0))
    return sum(dropped.values())


def suppressed_calls(spans: Iterable[OperationSpan]) -> str:
    """Return the numbers of calls that a program suppressed, such as `3 calls of openai`; empty for none."""
    calls: Counter[str] = Counter()
    for span in spans:
        count = span.attributes.get(semconv.LOST)
        if span.name == semconv.SUPPRESSED_SPAN and isinstance(count, int):
            calls[span.system] += count
    return ", ".join(f"{count} call{'s' * (count != 1)} of {system}" for system, count in calls.items())
