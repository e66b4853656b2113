"""A graph of the real smartcomment tracer: imported, attributed, exported and read again by the tracer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from smartcomment.runtime import ExecNetwork

from memtrace_otel.cli import main
from tests.integration.smartcomment.recording import recorded


def run(*arguments: object) -> str:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("smartcomment")
    (folder / "graph.json").write_text(json.dumps(recorded().export_graph(), indent=4, ensure_ascii=False))
    run("import", folder / "graph.json", "--db", folder / "memtrace.db")
    return folder / "memtrace.db"


@pytest.fixture(scope="module")
def exported(database: Path) -> ExecNetwork:
    (failing,) = map(json.loads, run("attribute", "--all", "--json", "--db", database).splitlines())
    text = run("graph", failing["trace_id"], "--format", "smartcomment", "--db", database)
    return ExecNetwork.import_graph(json.loads(text))


def test_the_tracer_reads_every_operation_of_the_export(exported: ExecNetwork) -> None:
    before = {operation.op_id: operation.op_name for operation in recorded().search_operations()}
    after = {operation.op_id: operation.op_name for operation in exported.search_operations()}
    assert sorted(after.values()) == sorted(before.values())


def test_the_tracer_finds_the_messages_behind_the_failing_answer(exported: ExecNetwork) -> None:
    (answer,) = (node for node in exported.search_variables(name_pattern="") if node.value == "Paris")
    found = {node.full_node_id for node in exported.get_ancestors(answer.full_node_id)}
    assert {"message:U1:D0@1", "message:U1:D2@1", "memory:memory-unit-0@1", "memory:memory-unit-0@2"} <= found
    assert not any("memory-unit-1" in name for name in found)
