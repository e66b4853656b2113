"""smartcomment -> ours -> smartcomment: the real peer finds in the returned file what it had put into its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from smartcomment.runtime import ExecNetwork

from memtrace_otel.cli import main
from tests.integration.smartcomment.recording import recorded

LISTS = ("nodes", "edges", "operations", "sessions")


def run(*arguments: object) -> str:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def original() -> ExecNetwork:
    return recorded()


@pytest.fixture(scope="module")
def database(original: ExecNetwork, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("round")
    (folder / "graph.json").write_text(json.dumps(original.export_graph(), indent=4, ensure_ascii=False))
    run("import", folder / "graph.json", "--db", folder / "trip.db")
    return folder / "trip.db"


@pytest.fixture(scope="module")
def returned(database: Path) -> ExecNetwork:
    failing = json.loads(run("attribute", "--all", "--json", "--db", database).splitlines()[0])
    text = run("graph", failing["trace_id"], "--format", "smartcomment", "--db", database)
    return ExecNetwork.import_graph(json.loads(text))


def test_nodes_versions_edges_operations_and_sessions_are_kept(original: ExecNetwork, returned: ExecNetwork) -> None:
    before, after = original.export_graph(), returned.export_graph()
    for name in LISTS:
        assert len(before["data"][name]) > 1
        assert after["data"][name] == before["data"][name]
    assert {**after, "data": {}, "created_at": ""} == {**before, "data": {}, "created_at": ""}
    assert max(node["version"] for node in after["data"]["nodes"]) == 2


def names(found: Any) -> Any:
    """What a query of the peer gives, as plain values."""
    if isinstance(found, list):
        return sorted(
            str(getattr(item, "full_node_id", None) or getattr(item, "op_id", None) or item) for item in found
        )
    if hasattr(found, "to_markdown"):
        return found.to_markdown(), found.to_xml()
    return found


QUERIES: dict[str, Callable[[ExecNetwork], Any]] = {
    "bfs backward": lambda g: g.bfs("prediction:prediction-0@1", "backward"),
    "bfs forward": lambda g: g.bfs("U1:D2@1", "forward"),
    "bfs both, two deep": lambda g: g.bfs("mem:memory-unit-0@2", "both", max_depth=2, include_sibling_inputs=True),
    "ancestors": lambda g: g.get_ancestors("prediction:prediction-0@1"),
    "descendants": lambda g: g.get_descendants("U1:D0@1"),
    "versions": lambda g: g.get_versions("mem:memory-unit-0"),
    "latest": lambda g: g.get_latest_variable("mem:memory-unit-0").full_node_id,
    "roots": lambda g: g.get_root_nodes(),
    "leaves": lambda g: g.get_leaf_nodes(),
    "by name": lambda g: g.search_variables(name_pattern="memory-unit"),
    "by category": lambda g: g.search_operations(category="update"),
    "one operation": lambda g: g.filter_by_operation(g.search_operations(name_pattern="llm-judge")[0].op_id),
    "sessions behind": lambda g: [s.session_id for s in g.contributing_sessions("prediction:prediction-0@1")],
    "sessions ahead": lambda g: [s.session_id for s in g.get_downstream_sessions("U1:D0@1")],
    "operations of a record": lambda g: g.get_operations_by_variable("mem:memory-unit-0@2"),
    "counts": lambda g: (g.node_count, g.edge_count, g.op_count, g.session_count),
}


@pytest.mark.parametrize("query", QUERIES)
def test_its_queries_give_the_same_answers(original: ExecNetwork, returned: ExecNetwork, query: str) -> None:
    before, after = names(QUERIES[query](original)), names(QUERIES[query](returned))
    assert before
    assert after == before
