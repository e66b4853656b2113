"""Exports of evolution graphs: JSON, DOT, GraphML, smartcomment; ids and names of nodes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import networkx as nx
from networkx.utils import UnionFind

from memtrace_otel.graph.keys import EdgeType, NodeKey, NodeType, OperationKey, VersionKey
from memtrace_otel.graph.queries import EvolutionGraph
from memtrace_otel.graph.smartcomment import to_smartcomment
from memtrace_otel.model import OperationSpan, Variable
from memtrace_otel.model.printable import escape_invisible, escape_invisible_xml, printable_json

SCHEMA = "memtrace-otel/graph"
SCHEMA_VERSION = 1

_PREVIEW = 60
_REPLACED = "\ufffd"
_XML_FORBIDDEN = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(graph: EvolutionGraph, form: str) -> str:
    """Return the graph as text of the form `json`, `dot`, `graphml` or `smartcomment`."""
    return FORMS[form](graph)


def to_document(graph: EvolutionGraph) -> dict[str, Any]:
    """Return the graph as plain JSON values, schema version 1; a pure function of the graph.

    - `schema`, `version`; `incomplete`: {reason: count}.
    - `operations`: id (the origin), missing (only readers name the operation), trace_id, span_id, parent (id of the
      enclosing
      operation or ''), name, kind, system, scope, service, start and end (ns since the epoch), status, incomplete
      (reasons), evidence (refs), attributes.
    - `versions`: id, ref, origin, scope (of a root), number (from 1, among the versions of the ref in this graph; lower
      in a slice than in the whole history), action, digest, size (bytes or null), event_time,
      content, truncated, unknown, failed (`has_failed`).
    - `edges`: type, source, target (ids) and the attributes of their type as `EvolutionGraph` lists them.
    """
    numbers = _numbers(graph)
    return {
        "schema": SCHEMA,
        "version": SCHEMA_VERSION,
        "incomplete": graph.incomplete,
        "operations": [
            _operation(node, attributes)
            for node, attributes in graph.nodes(data=True)
            if isinstance(node, OperationKey)
        ],
        "versions": [
            _version(node, attributes, numbers[node]) | {"failed": graph.has_failed(node)}
            for node, attributes in graph.nodes(data=True)
            if isinstance(node, VersionKey)
        ],
        "edges": [
            {"source": node_id(source), "target": node_id(target)} | {name: _plain(v) for name, v in edge.items()}
            for source, target, edge in graph.edges(data=True)
        ],
    }


def to_json(graph: EvolutionGraph) -> str:
    """Return `to_document(graph)` as JSON text. Invisible characters are escaped, a lone surrogate becomes '?'."""
    return printable_json(to_document(graph), indent=1)


def to_dot(graph: EvolutionGraph) -> str:
    """Return the graph in the DOT language: boxes are operations, ellipses versions, dashed lines inferred reads.

    Invisible characters are shown as escapes, such as `\\u200b`; a lone surrogate becomes '?'.
    """
    numbers = _numbers(graph)
    lines = ["digraph evolution {", "  rankdir=LR;", '  node [fontname="Helvetica"];']
    for node, attributes in graph.nodes(data=True):
        if isinstance(node, OperationKey):
            label, shape = _operation_label(node, attributes["span"]), "box"
        else:
            label, shape = _version_label(node, attributes["content"], numbers[node]), "ellipse"
        lines.append(f"  {_quoted(node_id(node))} [shape={shape}, label={_quoted(label)}];")
    for source, target, edge in graph.edges(data=True):
        style = "dashed" if edge.get("inferred") else "dotted" if edge["type"] == EdgeType.REPORTED else "solid"
        label = edge.get("action") or edge.get("role") or edge["type"]
        ends = f"{_quoted(node_id(source))} -> {_quoted(node_id(target))}"
        lines.append(f"  {ends} [label={_quoted(str(label))}, style={style}];")
    return "\n".join([*lines, "}", ""])


def to_graphml(graph: EvolutionGraph) -> str:
    """Return the graph as GraphML. Lists become text joined by spaces; characters that XML forbids become U+FFFD."""
    plain: nx.MultiDiGraph[str] = nx.MultiDiGraph()
    document = to_document(graph)
    for kind in (NodeType.OPERATION, NodeType.VERSION):
        for node in document[f"{kind}s"]:
            plain.add_node(_xml(node["id"]), node_type=str(kind), **_flat(node))
    for edge in document["edges"]:
        plain.add_edge(_xml(edge["source"]), _xml(edge["target"]), **_flat(edge))
    return escape_invisible_xml("\n".join(nx.generate_graphml(plain)) + "\n")


def node_id(node: NodeKey) -> str:
    """Return the id of a node in exports: an operation's origin; `<ref>|<origin>` or, of a root, `<ref>|~<scope>`."""
    if isinstance(node, OperationKey):
        return node.origin
    return f"{node.ref}|{node.origin}" if node.origin else f"{node.ref}|~{node.scope}"


def nodes_named(graph: EvolutionGraph, name: str, scope: str = "") -> list[NodeKey]:
    """Return the nodes that a name can mean.

    An id of `node_id` means its node. A ref alone means the last version in `scope`; without a version in `scope` the
    last version of each memory that has a record of this ref.
    """
    if OperationKey(name) in graph:
        return [OperationKey(name)]
    ref, _, origin = name.rpartition("|")
    version = VersionKey(ref, "", origin[1:]) if origin.startswith("~") else graph.version(ref, origin)
    return [version] if version in graph else [*_last_versions(graph, name, scope)]


def _last_versions(graph: EvolutionGraph, ref: str, scope: str) -> list[VersionKey]:
    """Return the last version of each record. Scopes that replaced each other's versions share a record; a version
    without a scope belongs to the record that it replaced."""
    scopes = {version: graph.scope_of_version(version) for version in graph.history(ref)}
    records: UnionFind[VersionKey | str] = UnionFind()
    for version, written_in in scopes.items():
        records.union(version, written_in or version)
        for _, old in graph.out_edges(version):
            if isinstance(old, VersionKey) and old in scopes:  # the replaced version
                records.union(version, old)
    owned = {records[written_in] for written_in in scopes.values() if written_in}
    last = {records[version] if records[version] in owned else "": version for version in scopes}
    return [last[records[scope]]] if scope and scope in scopes.values() else list(last.values())


def _operation(node: OperationKey, attributes: Mapping[str, Any]) -> dict[str, Any]:
    span: OperationSpan | None = attributes["span"]
    known = span or OperationSpan(trace_id=node.origin[:32], span_id=node.origin[33:])
    return {
        "id": node.origin,
        "missing": span is None,
        "trace_id": known.trace_id,
        "span_id": known.span_id,
        "parent": attributes["parent"],
        "name": known.name,
        "kind": known.kind,
        "system": known.system,
        "scope": attributes["scope"],
        "service": known.service,
        "start": known.start,
        "end": known.end,
        "status": known.status,
        "incomplete": list(attributes["incomplete"]),
        "evidence": list(known.evidence),
        "attributes": {name: _plain(value) for name, value in sorted(known.attributes.items())},
    }


def _version(node: VersionKey, attributes: Mapping[str, Any], number: int) -> dict[str, Any]:
    variable: Variable = attributes["variable"] or Variable(node.ref)
    return {
        "id": node_id(node),
        "ref": node.ref,
        "origin": node.origin,
        "scope": node.scope,
        "number": number,
        "action": variable.action,
        "digest": variable.digest,
        "size": variable.size,
        "event_time": variable.event_time,
        "content": attributes["content"],
        "truncated": attributes["truncated"],
        "unknown": attributes["unknown"],
    }


def _numbers(graph: EvolutionGraph) -> dict[NodeKey, int]:
    """The number of every version among the versions of its ref, from 1."""
    refs = dict.fromkeys(node.ref for node in graph if isinstance(node, VersionKey))
    return {version: number for ref in refs for number, version in enumerate(graph.versions(ref), 1)}


def _operation_label(node: OperationKey, span: OperationSpan | None) -> str:
    return f"{span.name}\n{span.kind}" if span else f"missing operation\n{node.origin}"


def _version_label(node: VersionKey, content: str, number: int) -> str:
    text = " ".join(content.split())
    shown = text if len(text) <= _PREVIEW else text[: _PREVIEW - 1] + "…"
    return f"{node.ref} v{number}" + (f"\n{shown}" if shown else "")


def _plain(value: Any) -> Any:
    """JSON has no tuples and no infinite numbers."""
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, str) else value


def _flat(values: Mapping[str, Any]) -> dict[str, str | int | float | bool]:
    """Attributes as GraphML can type them."""
    flat: dict[str, str | int | float | bool] = {}
    for name, value in values.items():
        if name in ("id", "source", "target") or value is None:
            continue
        if isinstance(value, dict):
            value = json.dumps(value, ensure_ascii=False)
        elif isinstance(value, list):
            value = " ".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType]
        flat[name] = _xml(value) if isinstance(value, str) else value
    return flat


def _xml(text: str) -> str:
    return _XML_FORBIDDEN.sub(_REPLACED, text)


def _quoted(text: str) -> str:
    """Return a DOT string. Invisible characters are escaped first, so that DOT shows the backslash."""
    escaped = escape_invisible(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _smartcomment_json(graph: EvolutionGraph) -> str:
    return printable_json(to_smartcomment(graph), indent=1)


FORMS: dict[str, Callable[[EvolutionGraph], str]] = {
    "json": to_json,
    "dot": to_dot,
    "graphml": to_graphml,
    "smartcomment": _smartcomment_json,
}
