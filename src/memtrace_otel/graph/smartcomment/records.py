"""The document of the peer as it was, carried by the spans that it became, so that it can be given back."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, cast

from memtrace_otel.graph.smartcomment.document import NO_OPERATION, Document, node_id

_LISTS = ("nodes", "edges", "operations", "sessions")


def records(document: Mapping[str, Any], parsed: Document) -> dict[str, str]:
    """Return for every operation its part of the document as JSON text: itself, its edges, what it mentions first.

    The first one carries the rest too: the root, and what no operation mentions. Annotations are left out: they hold
    the answers of a benchmark. A document without operations has nothing that could carry it.
    """
    if not parsed.operations:
        return {}
    data: Mapping[str, list[dict[str, Any]]] = document["data"]
    first = parsed.operations[0].id
    makers: dict[str, str] = {}
    sessions: dict[str, str] = {}
    for operation in parsed.operations:
        sessions.setdefault(operation.session, operation.id)
        for node in (node for edge in operation.edges for node in edge):
            makers.setdefault(node, operation.id)
    carriers = {
        "nodes": [makers.get(node_id(item), first) for item in data["nodes"]],
        "edges": [_operation_of(item) for item in data["edges"]],
        "operations": [str(item["op_id"]) for item in data["operations"]],
        "sessions": [sessions.get(str(item.get("session_id")), first) for item in data.get("sessions") or ()],
    }
    parts: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for name, ids in carriers.items():
        for place, id in enumerate(ids):
            parts[id].setdefault(name, []).append((place, data[name][place]))
    parts[first]["root"] = {key: value for key, value in document.items() if key != "data"}
    parts[first]["sizes"] = {name: len(ids) for name, ids in carriers.items()}
    return {id: json.dumps(part) for id, part in parts.items()}


def restore(texts: Iterable[object]) -> dict[str, Any] | None:
    """Return the document that the parts are of; None when they are not all of one document."""
    root: list[dict[str, Any]] = []
    sizes: dict[str, int] = {}
    lists: dict[str, dict[int, Any]] = {name: {} for name in _LISTS}
    for text in texts:
        part = _part(text)
        if part is None:
            return None
        if "root" in part:
            root.append(part["root"])
            sizes = part["sizes"]
        for name in _LISTS:
            lists[name].update(part.get(name, ()))
    if len(root) != 1 or sizes != {name: len(items) for name, items in lists.items()}:
        return None
    return {**root[0], "data": {name: [items[place] for place in sorted(items)] for name, items in lists.items()}}


def _part(text: object) -> dict[str, Any] | None:
    try:
        part = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return cast("dict[str, Any]", part) if isinstance(part, dict) else None


def _operation_of(edge: Mapping[str, Any]) -> str:
    return f"{NO_OPERATION}:{edge['edge_id']}" if edge["op_id"] == NO_OPERATION else str(edge["op_id"])
