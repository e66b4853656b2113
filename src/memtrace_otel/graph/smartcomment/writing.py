"""An evolution graph as a smartcomment document."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from typing import Any

from memtrace_otel import semconv, settings
from memtrace_otel.graph.evolution import EvolutionGraph
from memtrace_otel.graph.keys import EdgeType, OperationKey, VersionKey
from memtrace_otel.graph.smartcomment.conventions import ANSWERING, JUDGING, SCORE, UNIT
from memtrace_otel.graph.smartcomment.document import EPOCH, NO_VARIABLE, TIME_FORMAT
from memtrace_otel.graph.smartcomment.records import restore
from memtrace_otel.model import OperationSpan, is_failing, ref_kind, split_ref
from memtrace_otel.semconv import OpKind, RefKind, Role

_CLASSES: dict[str, tuple[str, str]] = {
    RefKind.QUERY: ("query", "message & query"),
    RefKind.CONTEXT: ("context", "memory_context"),
    RefKind.ANSWER: ("prediction", "llm_response"),
    RefKind.EXPECTED: ("golden_answers", "variable"),
    RefKind.MESSAGE: ("message", "message"),
    RefKind.MEMORY: ("memory", "memory_entry"),
    RefKind.PROMPT: ("prompt", "prompt"),
    RefKind.COMPLETION: ("completion", "llm_response"),
    RefKind.FACT: ("extracted_facts", "llm_response"),
}
_CATEGORIES: dict[str, str] = {
    OpKind.EXTRACT: "extraction",
    OpKind.DECIDE: "update",
    OpKind.CREATE: "update",
    OpKind.UPDATE: "update",
    OpKind.DELETE: "update",
    OpKind.CONSOLIDATE: "update",
    OpKind.INGEST: "update",
    OpKind.SEGMENT: "boundary_detection",
    OpKind.INDEX: "embedding",
    OpKind.RETRIEVE: "retrieval",
    OpKind.RERANK: "retrieval",
    OpKind.RESPOND: "evaluation",
    OpKind.JUDGE: "evaluation",
}
_NO_SESSION = "__none__"
_UNSCOPED = frozenset({RefKind.QUERY, RefKind.PROMPT, RefKind.EXPECTED})
_NAMES: dict[str, str] = {OpKind.RESPOND: ANSWERING, OpKind.JUDGE: JUDGING}


def to_smartcomment(graph: EvolutionGraph) -> dict[str, Any]:
    """Return the graph as the JSON document that smartcomment's `ExecNetwork.import_graph` takes.

    A graph that was imported from one, whole, is given back as it was (without `data.annotations`), also where answers
    were judged since. Any other one:
    One session per trace, one operation per span, one node per version (numbered along its history), one edge per
    input that fed an output; a search also points at each of its hits, as the peer draws it. Times lose what is finer
    than a millisecond; what has no place in the format (whole times, status, memory, what encloses and what was read in
    which role, reasons) goes to the metadata, from where `to_spans` takes it. Operations that only readers know of are
    left out.
    """
    carriers = [span for span in graph.operations() if not _is_later_judgement(span)]
    imported = restore(span.attributes.get(semconv.SMARTCOMMENT_RECORD) for span in carriers)
    return imported or _Writer(graph).document()


def _is_later_judgement(span: OperationSpan) -> bool:
    return span.kind == OpKind.JUDGE and semconv.SMARTCOMMENT_RECORD not in span.attributes


class _Writer:
    def __init__(self, graph: EvolutionGraph) -> None:
        self._graph = graph
        # The peer records an operation when its results are there.
        self._operations = sorted(graph.operations(), key=lambda span: (_done(span), span.seq or 0, span.origin))
        refs = sorted({node.ref for node in graph if isinstance(node, VersionKey)})
        self._first: dict[str, VersionKey] = {}
        """Ref of a question -> its first root that shows a text, else its first: the format knows no scopes, so it is
        one node however many read it."""
        self._names: dict[str, tuple[str, str, str]] = {}
        """Ref -> (class, name, category); a name that is taken already (`memory:a%62`, `memory:ab`) is marked."""
        taken: set[tuple[str, str]] = set()
        for ref in refs:
            class_name, name, category = _named(ref)
            while (class_name, name) in taken:
                name += "'"
            taken.add((class_name, name))
            self._names[ref] = class_name, name, category
        self._numbers = {version: n for ref in refs for n, version in enumerate(graph.versions(ref), 1)}
        for version in self._numbers:
            if not version.origin and ref_kind(version.ref) in _UNSCOPED:
                known = self._first.setdefault(version.ref, version)
                if not graph.content(known) and graph.content(version):
                    self._first[version.ref] = version
        services = sorted({span.service for span in self._operations if span.service})
        self._owner = {"graph_id": "graph-memtrace", "user_id": None, "project_id": services[0] if services else None}
        self._nodes: dict[str, dict[str, Any]] = {}
        self._edges: list[dict[str, Any]] = []

    def document(self) -> dict[str, Any]:
        for version in sorted(self._numbers, key=lambda v: (self._graph.time_of(v), v)):
            if self._shown(version) == version:
                self._node(version)
        for span in self._operations:
            self._flow(span)
        return {
            **self._owner,
            "storage_path": None,
            "strict": False,
            "driver_type": "in_memory",
            "created_at": _time(_done(self._operations[0]) if self._operations else 0),
            "metadata": {"memtrace_incomplete": self._graph.incomplete},
            "data": {
                "nodes": list(self._nodes.values()),
                "edges": self._edges,
                "operations": [self._operation(span) for span in self._operations],
                "sessions": self._sessions(),
            },
        }

    # --- records -------------------------------------------------------------------------------------------------
    def _record(self, time: int, span: OperationSpan | None, **fields: Any) -> dict[str, Any]:
        return {
            "created_at": _time(time),
            "filename": span.instrumentation_scope if span else "",
            "lineno": 0,
            **self._owner,
            "session_id": span.trace_id if span else _NO_SESSION,
            "comment": None,
            "trigger_point": f"{span.instrumentation_scope if span else ''}:0",
            **fields,
        }

    def _operation(self, span: OperationSpan) -> dict[str, Any]:
        node, reads = self._graph.nodes[OperationKey(span.origin)], self._graph.inputs(span.origin)
        told = {
            "origin": span.origin,
            "parent": node["parent"],
            "name": span.name,
            "kind": span.kind,
            "system": span.system,
            "scope": self._graph.scope_of(span.origin),
            "end_ns": _done(span),
            "duration_ns": max(0, span.end - span.start),
            "status": span.status,
            "evaluation": span.attributes.get(semconv.EVALUATION_NAME),
            "evidence": list(span.evidence),
            "incomplete": list(node["incomplete"]),
            "inputs": [[self._id(read.version), read.role] for read in reads if not read.considered],
            "considered": [self._id(read.version) for read in reads if read.considered],
        }
        return self._record(
            _done(span),
            span,
            op_id=_op_id(span),
            op_name=_NAMES.get(span.kind, span.name),
            category=_CATEGORIES.get(span.kind, "operation"),
            metadata={f"memtrace_{name}": value for name, value in told.items()},
        )

    def _sessions(self) -> list[dict[str, Any]]:
        first: dict[str, OperationSpan] = {}
        for span in self._operations:
            first.setdefault(span.trace_id, span)
        sessions = [
            self._record(_done(span), span, session_name=span.name, category="session", metadata={})
            for span in first.values()
        ]
        if any(node["session_id"] == _NO_SESSION for node in self._nodes.values()):
            sessions.append(self._record(0, None, session_name=None, category="session", metadata={}))
        return sessions

    def _node(self, version: VersionKey) -> None:
        span = self._graph.operation(version.origin) if version.origin else None
        readers = [] if span else [self._graph.operation(r.operation.origin) for r in self._graph.readers(version)]
        attributes = self._graph.nodes[version]
        metadata: dict[str, Any] = {
            "memtrace_ref": version.ref,
            "memtrace_origin": version.origin,
            "memtrace_digest": self._digest(version),
            "memtrace_truncated": attributes["truncated"],
        }
        if version.origin and attributes["variable"] is not None:
            metadata |= {"memtrace_maker": version.origin, "memtrace_action": attributes["variable"].action}
        if self._graph.has_failed(version):
            metadata["memtrace_failed"] = True
        if ref_kind(version.ref) == RefKind.QUERY:
            metadata["evidence"] = self._evidence(version)
        class_name, name, category = self._named(version)
        self._add_node(
            self._graph.time_of(version),
            span or next((reader for reader in readers if reader), None),
            name,
            self._numbers[version],
            "DELETED" if self._graph.is_tombstone(version) else attributes["content"],
            class_name,
            category,
            metadata,
        )

    def _add_node(
        self,
        time: int,
        span: OperationSpan | None,
        name: str,
        version: int,
        value: str,
        class_name: str,
        category: str,
        metadata: dict[str, Any],
    ) -> str:
        full = f"{class_name}:{name}"
        self._nodes[f"{full}@{version}"] = self._record(
            time,
            span,
            name=name,
            version=version,
            value=value,
            category=category,
            class_name=class_name,
            metadata=metadata,
            full_name=full,
            node_id=f"{name}@{version}",
            full_node_id=f"{full}@{version}",
        )
        return f"{full}@{version}"

    def _digest(self, version: VersionKey) -> str:
        """Of a version that its producer does not list, what readers say."""
        reads = ((self._graph.operation(r.operation.origin), r) for r in self._graph.readers(version))
        seen = (span.inputs[read.index].digest for span, read in reads if span and not read.considered)
        return self._graph.digest(version) or next(filter(None, seen), "")

    def _evidence(self, query: VersionKey) -> list[str]:
        """Gold evidence is told by the judge; the format keeps it on the query."""
        spans = [
            self._graph.operation(read.operation.origin)
            for version in self._graph.history(query.ref)
            for read in self._graph.readers(version)
        ]
        return list(dict.fromkeys(split_ref(ref)[1] for span in spans if span for ref in span.evidence))

    # --- dependencies --------------------------------------------------------------------------------------------
    def _flow(self, span: OperationSpan) -> None:
        reads = self._graph.inputs(span.origin)
        made: list[VersionKey] = []
        linked: dict[tuple[str, str], None] = {}
        for _, version, edge in self._graph.out_edges(OperationKey(span.origin), data=True):
            if edge["type"] == EdgeType.PRODUCED and isinstance(version, VersionKey):
                made.append(version)
                fed = [
                    r.version
                    for r in reads
                    if not r.considered and (edge["sources"] is None or r.index in edge["sources"])
                ]
                linked.update({(self._id(source), self._id(version)): None for source in fed})
        queries = [read.version for read in reads if read.role == Role.QUERY]
        hits = [read.version for read in reads if read.role == Role.HIT]
        linked.update({(self._id(q), self._id(hit)): None for q, hit in product(queries, hits)})
        linked.update(dict.fromkeys(self._judgement(span, [read.version for read in reads], made)))
        fed = {target for _, target in linked}
        linked.update({(NO_VARIABLE, id): None for id in map(self._id, made) if id not in fed})
        if not fed:
            unused = (read.version for read in reads if not (made and read.considered))
            linked.update({(self._id(version), NO_VARIABLE): None for version in unused})
        for number, (source, target) in enumerate(linked):
            for end in (source, target):
                if end == NO_VARIABLE:
                    self._sentinel(span)
            self._edges.append(
                self._record(
                    _done(span),
                    span,
                    edge_id=f"edge-{span.trace_id}{span.span_id}-{number}",
                    op_id=_op_id(span),
                    category=_CATEGORIES.get(OpKind(span.kind), "operation")
                    if span.kind in _CATEGORIES
                    else "operation",
                    source_full_node_id=source,
                    target_full_node_id=target,
                    metadata={},
                )
            )

    def _judgement(self, span: OperationSpan, reads: list[VersionKey], made: list[VersionKey]) -> list[tuple[str, str]]:
        """A score is a variable to the peer: 0.0 is a failure."""
        failed = _failed(span)
        if span.kind != OpKind.JUDGE or failed is None:
            return []
        response = [self._id(version) for version in made if ref_kind(version.ref) == RefKind.COMPLETION]
        score = self._add_node(
            span.end,
            span,
            f"{SCORE}-{span.trace_id}{span.span_id}",
            1,
            "0.0" if failed else "1.0",
            SCORE,
            "variable",
            {"memtrace_maker": span.origin},
        )
        return [(source, score) for source in response or [self._id(version) for version in reads]]

    def _sentinel(self, span: OperationSpan) -> None:
        name, _, version = NO_VARIABLE.partition("@")
        if NO_VARIABLE not in self._nodes:
            record = self._record(
                _done(span),
                span,
                name=name.partition(":")[2],
                version=int(version),
                value="",
                category="variable",
                class_name=name.partition(":")[0],
                metadata={},
                full_name=name,
                node_id=f"{name.partition(':')[2]}@{version}",
                full_node_id=NO_VARIABLE,
            )
            self._nodes[NO_VARIABLE] = record

    def _id(self, version: VersionKey) -> str:
        version = self._shown(version)
        class_name, name, _ = self._named(version)
        return f"{class_name}:{name}@{self._numbers[version]}"

    def _shown(self, version: VersionKey) -> VersionKey:
        return version if version.origin else self._first.get(version.ref, version)

    def _named(self, version: VersionKey) -> tuple[str, str, str]:
        """Return (class, name, category) of a version."""
        if self._graph.is_tombstone(version):
            return f"deleted:{version.ref}", "delete_marker", "marker"
        return self._names[version.ref]


def _named(ref: str) -> tuple[str, str, str]:
    """Return (class, name, category) by the peer's conventions."""
    kind, id = split_ref(ref)
    class_name, category = _CLASSES.get(kind, (kind, "variable"))
    return class_name, f"{UNIT}{id}" if kind == RefKind.MEMORY else id, category


def _failed(span: OperationSpan) -> bool | None:
    """Whether a judgement says the answer is wrong; None when it says nothing."""
    label = str(span.attributes.get(semconv.EVALUATION_LABEL, ""))
    score = span.attributes.get(semconv.EVALUATION_SCORE)
    number = float(score) if isinstance(score, int | float) else None
    return is_failing(label, number, settings.EVALUATION_THRESHOLD.read())


def _done(span: OperationSpan) -> int:
    return max(span.start, span.end)


def _op_id(span: OperationSpan) -> str:
    known = span.attributes.get(semconv.SMARTCOMMENT_OP_ID)
    return known if isinstance(known, str) else f"op-{span.trace_id}{span.span_id}"


def _time(nanoseconds: int) -> str:
    return (EPOCH + timedelta(microseconds=nanoseconds // 1000)).strftime(TIME_FORMAT)[:-3]
