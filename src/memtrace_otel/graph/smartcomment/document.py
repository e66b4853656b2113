"""The smartcomment format: checked records, and the meaning of its categories, classes and names.

The conventions are those of the recordings by MemBase and MemTraceBench.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from memtrace_otel.model import make_ref
from memtrace_otel.semconv import Action, OpKind, RefKind, Role

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIME_FORMAT = "%Y-%m-%d %H:%M:%S.%f"
NO_VARIABLE = "COMMENT:NONE@1"
"""Node for "no inputs" and "no outputs". All operations share this node, so the node carries no dependency."""
NO_OPERATION = "__none_op__"
MEMORY_PREFIX = "memory-unit-"
DELETE_MARKER = "delete_marker"
SCORE = "judge_score"
JUDGING = "llm-judge"
ANSWERING = "question-answering"

_KIND_OF_NAME = {
    ANSWERING: OpKind.RESPOND,
    JUDGING: OpKind.JUDGE,
    "memory_system.message_buffer_update": OpKind.INGEST,
    "memory_system.add": OpKind.CREATE,
    "memory_system.add_to_vector_store": OpKind.CREATE,
    "memory_system.finalize_memory_unit": OpKind.CREATE,
    "memory_system.agentic_final_rerank": OpKind.RERANK,
}
_KIND_OF_CATEGORY = {
    "extraction": OpKind.EXTRACT,
    "update": OpKind.UPDATE,
    "retrieval": OpKind.RETRIEVE,
    "boundary_detection": OpKind.SEGMENT,
    "initialization": OpKind.CREATE,
    "embedding": OpKind.CREATE,
}
_KIND_OF_CLASS = {
    "query": RefKind.QUERY,
    "context": RefKind.CONTEXT,
    "prediction": RefKind.ANSWER,
    "golden_answers": RefKind.EXPECTED,
    "judge_prompt": RefKind.PROMPT,
    "extracted_facts": RefKind.FACT,
    "temporary_variable": RefKind.CHUNK,
}
_KIND_OF_VARIABLE = {
    "message": RefKind.MESSAGE,
    "message & query": RefKind.QUERY,
    "memory_entry": RefKind.MEMORY,
    "memory_context": RefKind.CONTEXT,
    "prompt": RefKind.PROMPT,
    "llm_response": RefKind.COMPLETION,
}
_CLASSES_OF_ONE_KIND = frozenset({"prediction", "golden_answers", "extracted_facts"})
"""Classes that add nothing to the kind. The ref of a variable omits them."""
_REF_KINDS = frozenset(RefKind)
_ROLES = {
    RefKind.MESSAGE: Role.MESSAGE,
    RefKind.QUERY: Role.QUERY,
    RefKind.PROMPT: Role.PROMPT,
    RefKind.CONTEXT: Role.CONTEXT,
    RefKind.ANSWER: Role.ANSWER,
    RefKind.EXPECTED: Role.EXPECTED,
}

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Node:
    """One version of a variable."""

    id: str
    name: str
    version: int
    value: str
    category: str
    class_name: str
    metadata: Json

    @property
    def is_score(self) -> bool:
        """Whether the node is the score of a judge."""
        return SCORE in (self.name, self.class_name)

    @property
    def is_delete_marker(self) -> bool:
        """Whether the node says that the records before it were deleted."""
        return DELETE_MARKER in (self.name, self.class_name)

    @property
    def kind(self) -> RefKind:
        """The kind of the variable, by its class or bare name, else by its category; `state` for every other one."""
        if self.class_name in _REF_KINDS:  # our own export names the class so
            return RefKind(self.class_name)
        by_class = _KIND_OF_CLASS.get(self.class_name) or _KIND_OF_CLASS.get(self.name)
        return by_class or _KIND_OF_VARIABLE.get(self.category, RefKind.STATE)

    @property
    def ref(self) -> str:
        """The ref of the variable; all versions of a variable have the same ref."""
        kind = self.kind
        if kind == RefKind.MEMORY:
            return make_ref(kind, self.name.removeprefix(MEMORY_PREFIX))
        if self.class_name == kind or self.class_name in _CLASSES_OF_ONE_KIND or kind == RefKind.MESSAGE:
            return make_ref(kind, self.name)
        # The join is unambiguous: 'a:b' + 'c' and 'a' + 'b:c' give different ids.
        return make_ref(kind, f"{self.class_name.replace(':', '%3A')}:{self.name}" if self.class_name else self.name)

    @property
    def text(self) -> str:
        """The stored text without the encoding of the tracer (Python repr, JSON envelopes)."""
        value = _decoded(self.value)
        if isinstance(value, str):
            return value
        if isinstance(value, dict):
            fields = cast(dict[str, Any], value)
            content = fields.get("content", fields.get("memory"))
            if isinstance(content, str):
                when = fields.get("timestamp") or self.metadata.get("timestamp")
                return f"{content}\n(sent at {when})" if isinstance(when, str) and "content" in fields else content
        return self.value

    @property
    def number(self) -> float | None:
        """The value as a number; None when the value is not a number."""
        value = _decoded(self.value)
        try:
            return float(value if isinstance(value, str) else cast(float, value))
        except (TypeError, ValueError):
            return None


@dataclass(slots=True)
class Operation:
    """One operation with its edges (source node id, target node id) in document order. `time` in ns since the epoch."""

    id: str
    name: str
    category: str
    session: str
    time: int
    metadata: Json
    edges: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def kind(self, targets: Iterable[Node]) -> OpKind:
        """Return the kind: by the name of the operation, else by the targets of an evaluation, else by category."""
        if self.name in _KIND_OF_NAME:
            return _KIND_OF_NAME[self.name]
        if self.category == "evaluation":
            classes = {text for node in targets for text in (node.class_name, node.name)}
            return OpKind.JUDGE if SCORE in classes else OpKind.RESPOND if "prediction" in classes else OpKind.OTHER
        return _KIND_OF_CATEGORY.get(self.category, OpKind.OTHER)


@dataclass(frozen=True, slots=True)
class Document:
    """A graph: nodes by full id, operations in order of time (document order breaks ties)."""

    graph_id: str
    owner: str
    project: str
    nodes: dict[str, Node]
    operations: list[Operation]


def role_of(ref_kind: str, operation_kind: OpKind) -> str:
    """Return the role of a variable as an input of an operation."""
    if ref_kind == RefKind.MEMORY:
        return Role.CONTEXT if operation_kind == OpKind.RESPOND else Role.CANDIDATE
    return _ROLES.get(RefKind(ref_kind), Role.OTHER)


def action_of(ref_kind: str, replaces: bool) -> str:
    """Return the action of an output: a record is added or updated, every other variable is derived."""
    if ref_kind != RefKind.MEMORY:
        return Action.DERIVE
    return Action.UPDATE if replaces else Action.ADD


def parse(document: object) -> Document:
    """Check and read a document. Raises ValueError that names the place, such as `data.nodes[3].version`.

    Fields without meaning for the lineage (file names, line numbers, comments) are ignored. So are `data.annotations`,
    which hold the answers of a benchmark.
    """
    root = _object(document, "document")
    data = _object(root.get("data"), "data")
    graph_id = required_text(root, "graph_id", "document")
    nodes = dict(_nodes(data))
    operations = {operation.id: operation for operation in _operations(data)}
    for place, edge in listed(data, "edges"):
        source, target = (required_text(edge, f"{end}_full_node_id", place) for end in ("source", "target"))
        for end, name in (("source", source), ("target", target)):
            if name not in nodes and name != NO_VARIABLE:
                raise ValueError(f"{place}.{end}_full_node_id: no such node: {name!r}")
        op_id = required_text(edge, "op_id", place)
        if op_id == NO_OPERATION:  # a link outside of any operation becomes an operation
            op_id = f"{op_id}:{required_text(edge, 'edge_id', place)}"
            operations[op_id] = Operation(op_id, "link", "", _text(edge, "session_id"), _time(edge, place), {})
        if op_id not in operations:
            raise ValueError(f"{place}.op_id: no such operation: {op_id!r}")
        operations[op_id].edges.append((source, target))
    for _ in listed(data, "sessions", optional=True):
        pass
    ordered = sorted(operations.values(), key=lambda operation: operation.time)
    return Document(graph_id, _text(root, "user_id"), _text(root, "project_id"), nodes, ordered)


def listed(data: Json, name: str, *, optional: bool = False) -> Iterator[tuple[str, Json]]:
    """Yield (place, object) for each item of a list of `data`. Raises ValueError for a list or item of another type."""
    items = data.get(name)
    if items is None and optional:
        return
    if not isinstance(items, list):
        raise ValueError(f"data.{name}: expected a list, got {type(items).__name__}")
    for number, item in enumerate(cast(list[object], items)):
        place = f"data.{name}[{number}]"
        yield place, _object(item, place)


def required_text(item: Json, name: str, place: str) -> str:
    """Return a text that must not be empty. Raises ValueError that names `place`."""
    value = item.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{place}.{name}: expected a text, got {value!r}"[:300])
    return value


def _nodes(data: Json) -> Iterator[tuple[str, Node]]:
    for place, item in listed(data, "nodes"):
        version = item.get("version")
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise ValueError(f"{place}.version: expected an integer from 1, got {version!r}")
        name, class_name = required_text(item, "name", place), _text(item, "class_name")
        metadata = _object(item.get("metadata") or {}, f"{place}.metadata")
        value = item.get("value")
        text = value if isinstance(value, str) else "" if value is None else str(value)
        id = _text(item, "full_node_id") or f"{class_name}:{name}@{version}".removeprefix(":")
        yield id, Node(id, name, version, text, _text(item, "category"), class_name, metadata)


def _operations(data: Json) -> Iterator[Operation]:
    seen: set[str] = set()
    for place, item in listed(data, "operations"):
        id = required_text(item, "op_id", place)
        if id in seen:
            raise ValueError(f"{place}.op_id: {id!r} is there twice")
        seen.add(id)
        metadata = _object(item.get("metadata") or {}, f"{place}.metadata")
        name, time = _text(item, "op_name") or id, _time(item, place)
        yield Operation(id, name, _text(item, "category"), _text(item, "session_id"), time, metadata)


def _object(value: object, place: str) -> Json:
    if not isinstance(value, dict):
        raise ValueError(f"{place}: expected an object, got {type(value).__name__}")
    return cast(Json, value)


def _text(item: Json, name: str) -> str:
    value = item.get(name)
    return value if isinstance(value, str) else ""


def _time(item: Json, place: str) -> int:
    """Return ns since the epoch. The format has local times without a zone: read as UTC, they keep their order."""
    text = required_text(item, "created_at", place)
    try:
        return (datetime.strptime(text, TIME_FORMAT).replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1) * 1000
    except ValueError:
        raise ValueError(f"{place}.created_at: expected YYYY-MM-DD HH:MM:SS.mmm, got {text!r}"[:300]) from None


def _decoded(value: str) -> object:
    if value[:1] in ("'", '"'):
        try:
            text = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return value
        return text if isinstance(text, str) else value
    if value[:1] == "{":
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value
