"""The parts of a smartcomment document that carry meaning, checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from memtrace_otel.semconv import Incomplete

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIME_FORMAT = "%Y-%m-%d %H:%M:%S.%f"
NO_VARIABLE = "COMMENT:NONE@1"
"""Stands for "no inputs" and "no outputs"; all operations share it, so it carries no dependency."""
NO_OPERATION = "__none_op__"
_OURS = "memtrace_"
"""Begins the names of what our own export adds to the metadata."""
_INT64 = 1 << 63
_LACKING = (Incomplete.LOST_SPANS, Incomplete.BOUNDED)
"""Reasons that our own export tells of the whole graph, not of an operation."""

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

    def told(self, name: str) -> str:
        """Return what our own export says of the version, '' in a file of the peer."""
        return _optional(self.metadata, _OURS + name)


@dataclass(slots=True)
class Recorded:
    """One operation with its edges (source node id, target node id) in document order. `time` in ns since the epoch."""

    id: str
    name: str
    category: str
    session: str
    time: int
    metadata: Json
    edges: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    @property
    def own(self) -> bool:
        """Whether our own export wrote it, one that names what was read: earlier ones leave that to the edges."""
        return f"{_OURS}inputs" in self.metadata

    def told(self, name: str) -> str:
        """Return what our own export says of the operation, '' in a file of the peer."""
        return _optional(self.metadata, _OURS + name)

    def number(self, name: str, default: int) -> int:
        """Return a number that our own export tells."""
        return _number(self.metadata, _OURS + name, default)

    def texts(self, name: str) -> list[str]:
        """Return the texts that our own export tells."""
        return [item for item in self._listed(name) if isinstance(item, str)]

    def pairs(self, name: str) -> list[tuple[str, str]]:
        """Return the pairs of texts that our own export tells."""
        pairs = (cast(list[object], item) for item in self._listed(name) if isinstance(item, list))
        return [(str(pair[0]), str(pair[1])) for pair in pairs if len(pair) == 2]

    def _listed(self, name: str) -> list[object]:
        found: object = self.metadata.get(_OURS + name)
        return cast(list[object], found) if isinstance(found, list) else []


@dataclass(frozen=True, slots=True)
class Document:
    """A graph: nodes by full id, operations in order of time (document order breaks ties). `lost` spans were missing
    when our own export was made, as far as that was known."""

    graph_id: str
    owner: str
    project: str
    lost: int
    nodes: dict[str, Node]
    operations: list[Recorded]


def parse(document: object) -> Document:
    """Check and read a document; raises ValueError naming the place, such as `data.nodes[3].version`.

    Fields that carry no meaning for the lineage (file names, line numbers, comments) are not looked at, nor are
    `data.annotations`: they hold the answers of a benchmark.
    """
    root = _object(document, "document")
    data = _object(root.get("data"), "data")
    graph_id = text_of(root, "graph_id", "document")
    nodes = dict(_nodes(data))
    operations = {operation.id: operation for operation in _operations(data)}
    for place, edge in listed(data, "edges"):
        source, target = (text_of(edge, f"{end}_full_node_id", place) for end in ("source", "target"))
        for end, name in (("source", source), ("target", target)):
            if name not in nodes and name != NO_VARIABLE:
                raise ValueError(f"{place}.{end}_full_node_id: no such node: {name!r}")
        op_id = text_of(edge, "op_id", place)
        if op_id == NO_OPERATION:  # a link made outside any operation: one of its own
            op_id = f"{op_id}:{text_of(edge, 'edge_id', place)}"
            operations[op_id] = Recorded(op_id, "link", "", _optional(edge, "session_id"), _time(edge, place), {})
        if op_id not in operations:
            raise ValueError(f"{place}.op_id: no such operation: {op_id!r}")
        operations[op_id].edges.append((source, target))
    for _ in listed(data, "sessions", optional=True):
        pass
    ordered = sorted(operations.values(), key=lambda operation: operation.time)
    return Document(graph_id, _optional(root, "user_id"), _optional(root, "project_id"), _lost(root), nodes, ordered)


def _lost(root: Json) -> int:
    metadata: object = root.get("metadata")
    reasons = cast(Json, metadata).get(f"{_OURS}incomplete") if isinstance(metadata, dict) else None
    return sum(_number(cast(Json, reasons), name, 0) for name in _LACKING) if isinstance(reasons, dict) else 0


def node_id(item: Json) -> str:
    """Return the full id of a node of `data.nodes`."""
    given = _optional(item, "full_node_id")
    return given or f"{_optional(item, 'class_name')}:{item['name']}@{item['version']}".removeprefix(":")


def _nodes(data: Json) -> Iterator[tuple[str, Node]]:
    for place, item in listed(data, "nodes"):
        version = item.get("version")
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise ValueError(f"{place}.version: expected an integer from 1, got {version!r}")
        name, class_name = text_of(item, "name", place), _optional(item, "class_name")
        metadata = _object(item.get("metadata") or {}, f"{place}.metadata")
        value = item.get("value")
        text = value if isinstance(value, str) else "" if value is None else str(value)
        id = node_id(item)
        yield id, Node(id, name, version, text, _optional(item, "category"), class_name, metadata)


def _operations(data: Json) -> Iterator[Recorded]:
    seen: set[str] = set()
    for place, item in listed(data, "operations"):
        id = text_of(item, "op_id", place)
        if id in seen:
            raise ValueError(f"{place}.op_id: {id!r} is there twice")
        seen.add(id)
        metadata = _object(item.get("metadata") or {}, f"{place}.metadata")
        name = _optional(item, "op_name") or id
        yield Recorded(
            id, name, _optional(item, "category"), _optional(item, "session_id"), _time(item, place), metadata
        )


def listed(data: Json, name: str, *, optional: bool = False) -> Iterator[tuple[str, Json]]:
    """Yield the objects of a list, each behind its place; raises ValueError where it is none."""
    items = data.get(name)
    if items is None and optional:
        return
    if not isinstance(items, list):
        raise ValueError(f"data.{name}: expected a list, got {type(items).__name__}")
    for number, item in enumerate(cast(list[object], items)):
        place = f"data.{name}[{number}]"
        yield place, _object(item, place)


def _object(value: object, place: str) -> Json:
    if not isinstance(value, dict):
        raise ValueError(f"{place}: expected an object, got {type(value).__name__}")
    return cast(Json, value)


def text_of(item: Json, name: str, place: str) -> str:
    """Return a text that has to be there; raises ValueError naming `place`."""
    value = item.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{place}.{name}: expected a text, got {value!r}"[:300])
    return value


def _optional(item: Json, name: str) -> str:
    value = item.get(name)
    return value if isinstance(value, str) else ""


def _number(item: Json, name: str, default: int) -> int:
    value = item.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _INT64 else default


def _time(item: Json, place: str) -> int:
    """Local times without a zone; taken as UTC, which keeps their order."""
    text = text_of(item, "created_at", place)
    try:
        return (datetime.strptime(text, TIME_FORMAT).replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1) * 1000
    except ValueError:
        raise ValueError(f"{place}.created_at: expected YYYY-MM-DD HH:MM:SS.mmm, got {text!r}"[:300]) from None
