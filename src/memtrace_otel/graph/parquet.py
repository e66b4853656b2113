"""Evolution graphs as Parquet, for pandas, Polars, DuckDB, Spark (extra `parquet`)."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from memtrace_otel.graph.export import SCHEMA, SCHEMA_VERSION, to_document
from memtrace_otel.graph.queries import EvolutionGraph

TABLES = ("operations", "versions", "edges")

_TEXT, _INTEGER, _NUMBER, _FLAG, _TEXTS, _INTEGERS = "string", "int64", "double", "bool", "list<string>", "list<int64>"
_HIGHEST = 2**63 - 1
_COLUMNS: dict[str, dict[str, str]] = {
    "operations": {
        **dict.fromkeys(("id", "trace_id", "span_id", "parent", "name", "kind", "system", "scope", "service"), _TEXT),
        **dict.fromkeys(("start", "end"), _INTEGER),
        **dict.fromkeys(("status", "attributes"), _TEXT),
        **dict.fromkeys(("incomplete", "evidence"), _TEXTS),
        "missing": _FLAG,
    },
    "versions": {
        **dict.fromkeys(("id", "ref", "origin", "scope", "action", "digest", "event_time", "content"), _TEXT),
        **dict.fromkeys(("number", "size"), _INTEGER),
        **dict.fromkeys(("truncated", "unknown", "failed"), _FLAG),
    },
    "edges": {
        **dict.fromkeys(("type", "source", "target", "role", "action"), _TEXT),
        **dict.fromkeys(("index", "rank"), _INTEGER),
        "score": _NUMBER,
        "inferred": _FLAG,
        "sources": _INTEGERS,
    },
}


def write_parquet(graph: EvolutionGraph, folder: Path) -> None:
    """Write `operations.parquet`, `versions.parquet` and `edges.parquet` into a folder, made when it is missing.

    The columns are the fields of `to_document`, null where a type of edge lacks one; `attributes` is JSON text. The
    schema's name and version and the reasons of incompleteness are in the metadata of each file. Raises ImportError
    naming the extra when pyarrow is missing.
    """
    try:
        pa: Any = import_module("pyarrow")  # without stubs
        pq: Any = import_module("pyarrow.parquet")
    except ImportError:
        raise ImportError("Parquet needs pyarrow: pip install 'memtrace-otel[parquet]'") from None
    document = to_document(graph)
    told = {"schema": SCHEMA, "version": str(SCHEMA_VERSION), "incomplete": json.dumps(document["incomplete"])}
    types: dict[str, Any] = {
        _TEXT: pa.string(), _INTEGER: pa.int64(), _NUMBER: pa.float64(), _FLAG: pa.bool_(),
        _TEXTS: pa.list_(pa.string()), _INTEGERS: pa.list_(pa.int64()),
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        schema = pa.schema([(column, types[type]) for column, type in _COLUMNS[name].items()], metadata=told)
        rows = [{column: _cell(row.get(column)) for column in _COLUMNS[name]} for row in document[name]]
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), folder / f"{name}.parquet", compression="zstd")


def _cell(value: Any) -> Any:
    """Parquet's strings are UTF-8, its integers signed (a time of a span is not); what differs from span to span is
    text."""
    if isinstance(value, int):
        return min(value, _HIGHEST)
    if isinstance(value, dict):
        value = json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return [_cell(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
