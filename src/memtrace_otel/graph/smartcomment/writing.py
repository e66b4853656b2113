"""Export: an evolution graph becomes a smartcomment graph."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from typing import Any

from memtrace_otel import semconv, settings
from memtrace_otel.graph.keys import EdgeType, OperationKey, VersionKey
from memtrace_otel.graph.queries import EvolutionGraph
from memtrace_otel.graph.smartcomment.document import (
    ANSWERING,
    DELETE_MARKER,
    EPOCH,
    JUDGING,
    MEMORY_PREFIX,
    NO_VARIABLE,
    SCORE,
    TIME_FORMAT,
)
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
_SHARED = frozenset({RefKind.QUERY, RefKind.PROMPT, RefKind.EXPECTED})
"""Kinds whose roots of several scopes become one node: the format has no scopes."""
_NAMES: dict[str, str] = {OpKind.RESPOND: ANSWERING, OpKind.JUDGE: JUDGING}


def to_smartcomment(graph: EvolutionGraph) -> dict[str, Any]:
    """Return the graph as the JSON document that smartcomment's `ExecNetwork.import_graph` takes.

    One session per trace, one operation per span, one node per version (numbered along its history), one edge per input
    that fed an output. A search also points at each of its hits, as the tracer draws a search. Times are in
    milliseconds. Operations that only readers know of are left out. The metadata names origin, kind, scope and status;
    the rest of the wire contract (memories, roles, reasons) has no place in the format.
    """
    return _Writer(graph).document()


class _Writer:
    def __init__(self, graph: EvolutionGraph) -> None:
        self._graph = graph
        # The tracer records an operation when its results are there.
        self._operations = sorted(graph.operations(), key=lambda span: (_end(span), span.seq or 0, span.origin))
        refs = sorted({node.ref for node in graph if isinstance(node, VersionKey)})
        self._names = _names_of(refs)
        self._numbers = {version: n for ref in refs for n, version in enumerate(graph.versions(ref), 1)}
        self._roots: dict[str, VersionKey] = {}
        """Ref of a shared kind -> its first root with a content, else its first root."""
        for version in self._numbers:
            if not version.origin and ref_kind(version.ref) in _SHARED:
                known = self._roots.setdefault(version.ref, version)
                if not graph.content(known) and graph.content(version):
                    self._roots[version.ref] = version
        services = sorted({span.service for span in self._operations if span.service})
        self._owner = {"graph_id": "graph-memtrace", "user_id": None, "project_id": services[0] if services else None}
        self._nodes: dict[str, dict[str, Any]] = {}
        self._edges: list[dict[str, Any]] = []

    def document(self) -> dict[str, Any]:
        for version in sorted(self._numbers, key=lambda v: (self._graph.time_of(v), v)):
            if self._shown(version) == version:
                self._add_version(version)
        for span in self._operations:
            self._add_edges(span)
        return {
            **self._owner,
            "storage_path": None,
            "strict": False,
            "driver_type": "in_memory",
            "created_at": _time(_end(self._operations[0]) if self._operations else 0),
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
        file = span.instrumentation_scope if span else ""
        return {
            "created_at": _time(time),
            "filename": file,
            "lineno": 0,
            **self._owner,
            "session_id": span.trace_id if span else _NO_SESSION,
            "comment": None,
            "trigger_point": f"{file}:0",
            "metadata": {},
            **fields,
        }

    def _operation(self, span: OperationSpan) -> dict[str, Any]:
        metadata = {
            "memtrace_origin": span.origin,
            "memtrace_name": span.name,
            "memtrace_kind": span.kind,
            "memtrace_system": span.system,
            "memtrace_scope": self._graph.scope_of(span.origin),
            "memtrace_status": span.status,
        }
        name = _NAMES.get(span.kind, span.name)
        return self._record(
            _end(span), span, op_id=_op_id(span), op_name=name, category=_category(span), metadata=metadata
        )

    def _sessions(self) -> list[dict[str, Any]]:
        first: dict[str, OperationSpan] = {}
        for span in self._operations:
            first.setdefault(span.trace_id, span)
        sessions = [
            self._record(_end(span), span, session_name=span.name, category="session") for span in first.values()
        ]
        if any(node["session_id"] == _NO_SESSION for node in self._nodes.values()):
            sessions.append(self._record(0, None, session_name=None, category="session"))
        return sessions

    def _add_version(self, version: VersionKey) -> None:
        span = self._graph.operation(version.origin) if version.origin else None
        readers = [] if span else [self._graph.operation(r.operation.origin) for r in self._graph.readers(version)]
        metadata: dict[str, Any] = {"memtrace_ref": version.ref, "memtrace_origin": version.origin}
        if self._graph.has_failed(version):
            metadata["memtrace_failed"] = True
        if ref_kind(version.ref) == RefKind.QUERY:
            metadata["evidence"] = self._evidence(version)
        value = "DELETED" if self._graph.is_tombstone(version) else self._graph.content(version)
        owner = span or next((reader for reader in readers if reader), None)
        name, number = self._named(version), self._numbers[version]
        self._add_node(self._graph.time_of(version), owner, name, number, value, metadata)

    def _add_node(
        self,
        time: int,
        span: OperationSpan | None,
        named: tuple[str, str, str],
        version: int,
        value: str,
        metadata: dict[str, Any],
    ) -> str:
        """Add a node named by (class, name, category) and return its id."""
        class_name, name, category = named
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

    def _evidence(self, query: VersionKey) -> list[str]:
        """Return the ids of the gold evidence: the judge names them, the format keeps them on the query."""
        spans = [
            self._graph.operation(read.operation.origin)
            for version in self._graph.history(query.ref)
            for read in self._graph.readers(version)
        ]
        return list(dict.fromkeys(split_ref(ref)[1] for span in spans if span for ref in span.evidence))

    # --- edges ---------------------------------------------------------------------------------------------------
    def _add_edges(self, span: OperationSpan) -> None:
        reads = self._graph.inputs(span.origin)
        made: list[VersionKey] = []
        linked: dict[tuple[str, str], None] = {}
        for _, version, edge in self._graph.out_edges(OperationKey(span.origin), data=True):
            if edge["type"] == EdgeType.PRODUCED and isinstance(version, VersionKey):
                made.append(version)
                fed = [r for r in reads if not r.considered and (edge["sources"] is None or r.index in edge["sources"])]
                linked.update({(self._id(read.version), self._id(version)): None for read in fed})
        queries = [read.version for read in reads if read.role == Role.QUERY]
        hits = [read.version for read in reads if read.role == Role.HIT]
        linked.update({(self._id(q), self._id(hit)): None for q, hit in product(queries, hits)})
        linked.update(dict.fromkeys(self._judgement(span, [read.version for read in reads], made)))
        fed_ids = {target for _, target in linked}
        linked.update({(NO_VARIABLE, id): None for id in map(self._id, made) if id not in fed_ids})
        if not fed_ids:
            unused = (read.version for read in reads if not (made and read.considered))
            linked.update({(self._id(version), NO_VARIABLE): None for version in unused})
        for number, (source, target) in enumerate(linked):
            if NO_VARIABLE in (source, target) and NO_VARIABLE not in self._nodes:
                self._add_node(_end(span), span, ("COMMENT", "NONE", "variable"), 1, "", {})
            self._edges.append(
                self._record(
                    _end(span),
                    span,
                    edge_id=f"edge-{span.trace_id}{span.span_id}-{number}",
                    op_id=_op_id(span),
                    category=_category(span),
                    source_full_node_id=source,
                    target_full_node_id=target,
                )
            )

    def _judgement(self, span: OperationSpan, reads: list[VersionKey], made: list[VersionKey]) -> list[tuple[str, str]]:
        """Add the score of a judge as a variable (0.0 is a failure) and return the edges to that node."""
        failed = _failed(span)
        if span.kind != OpKind.JUDGE or failed is None:
            return []
        name = (SCORE, f"{SCORE}-{span.trace_id}{span.span_id}", "variable")
        score = self._add_node(span.end, span, name, 1, "0.0" if failed else "1.0", {})
        response = [self._id(version) for version in made if ref_kind(version.ref) == RefKind.COMPLETION]
        return [(source, score) for source in response or [self._id(version) for version in reads]]

    def _id(self, version: VersionKey) -> str:
        version = self._shown(version)
        class_name, name, _ = self._named(version)
        return f"{class_name}:{name}@{self._numbers[version]}"

    def _shown(self, version: VersionKey) -> VersionKey:
        return version if version.origin else self._roots.get(version.ref, version)

    def _named(self, version: VersionKey) -> tuple[str, str, str]:
        """Return (class, name, category) of a version."""
        if self._graph.is_tombstone(version):
            return f"deleted:{version.ref}", DELETE_MARKER, "marker"
        return self._names[version.ref]


def _names_of(refs: list[str]) -> dict[str, tuple[str, str, str]]:
    """Return ref -> (class, name, category) by the conventions of the tracer."""
    names: dict[str, tuple[str, str, str]] = {}
    for ref in refs:
        kind, id = split_ref(ref)
        class_name, category = _CLASSES.get(kind, (kind, "variable"))
        names[ref] = class_name, f"{MEMORY_PREFIX}{id}" if kind == RefKind.MEMORY else id, category
    return names


def _failed(span: OperationSpan) -> bool | None:
    """Return whether a judgement calls the answer wrong; None when the judgement says nothing."""
    label = str(span.attributes.get(semconv.EVALUATION_LABEL, ""))
    score = span.attributes.get(semconv.EVALUATION_SCORE)
    number = float(score) if isinstance(score, int | float) else None
    return is_failing(label, number, settings.EVALUATION_THRESHOLD.read())


def _category(span: OperationSpan) -> str:
    return _CATEGORIES.get(span.kind, "operation")


def _end(span: OperationSpan) -> int:
    return max(span.start, span.end)


def _op_id(span: OperationSpan) -> str:
    known = span.attributes.get(semconv.SMARTCOMMENT_OP_ID)
    return known if isinstance(known, str) else f"op-{span.trace_id}{span.span_id}"


def _time(nanoseconds: int) -> str:
    return (EPOCH + timedelta(microseconds=nanoseconds // 1000)).strftime(TIME_FORMAT)[:-3]
