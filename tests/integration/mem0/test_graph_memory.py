"""Graph memory of Mem0 1.x on an embedded Kuzu: relations as records that are added, found and deleted."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from memtrace_otel import semconv
from memtrace_otel.graph import VersionKey
from memtrace_otel.instrumentation.mem0 import Mem0Instrumentor
from memtrace_otel.model import ref_kind
from tests.conftest import Recording
from tests.integration import model_stub
from tests.integration.mem0.conftest import Program, Seen, config, open_program, seen
from tests.integration.mem0.test_graph import flow, graph_of
from tests.integration.model_stub import ModelStub

TOOLS: dict[str, list[dict[str, Any]]] = {}
"""Arguments of the tool calls to come, by the name of the tool; none: the model calls no tool."""
GRAPH = {"graph_store": {"provider": "kuzu", "config": {"db": ":memory:"}}}


class ToolHandler(model_stub._Handler):
    """Answers requests with tools by tool calls."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        asked = json.loads(body)
        if "tools" in asked:
            name = asked["tools"][0]["function"]["name"]
            planned = TOOLS.get(name)
            calls = [
                {"id": "1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
                for arguments in ([planned.pop(0)] if planned else [])
            ]
            message = {"role": "assistant", "content": None, "tool_calls": calls}
            choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
            completion = {"id": "stub", "object": "chat.completion", "created": 0, "model": "stub"}
            self._send(completion | {"choices": [choice]})
            return
        stream, self.rfile = self.rfile, BytesIO(body)
        try:
            super().do_POST()
        finally:
            self.rfile = stream


@pytest.fixture(params=["Memory", "AsyncMemory"])
async def program(request: pytest.FixtureRequest, model: ModelStub, tmp_path: Path, recording: Recording) -> Program:
    made = await with_graph(request.param, model, tmp_path)
    recording.clear()  # create_memory_store
    return made


async def with_graph(kind: str, model: ModelStub, folder: Path, **graph: Any) -> Program:
    model.RequestHandlerClass = ToolHandler
    TOOLS.clear()
    store = {"graph_store": {"provider": "kuzu", "config": graph}} if graph else GRAPH
    return await open_program(kind, config(model, folder) | store)


def script(city: str = "", old: str = "") -> None:
    """The next tool calls of the model: the entity Ann, her home in `city`, the deletion of her home in `old`."""
    place = {"source": "ann", "relationship": "lives in", "destination": city}
    TOOLS["extract_entities"] = [{"entities": [{"entity": "ann", "entity_type": "person"}]}]
    TOOLS["establish_relationships"] = [{"entities": [place]}] if city else []
    TOOLS["delete_graph_memory"] = [place | {"destination": old}] if old else []


async def tell(program: Program, text: str, city: str, old: str = "", **ids: str) -> Any:
    script(city, old)
    return await program.call("add", text, user_id="ann", **ids)


async def ask(program: Program, query: str) -> Any:
    script()
    return await program.search(query)


def relation_writes(recording: Recording) -> list[tuple[str, str, str | None]]:
    return [
        (span.name, item["action"], item["content"])
        for span in seen(recording)
        for item in span.outputs("memory")
        if item["ref"].startswith("memory:relation-")
    ]


def by_purpose(recording: Recording, purpose: str) -> list[Seen]:
    return [span for span in seen(recording) if span.attributes.get(semconv.OP_PURPOSE) == purpose]


@pytest.mark.usefixtures("instrumented", "content_on")
async def test_relations_are_added_found_replaced_and_deleted(program: Program, recording: Recording) -> None:
    added = await tell(program, "I live in Paris.", "Paris")
    assert added["relations"]["added_entities"] == [[{"source": "ann", "relationship": "lives_in", "target": "paris"}]]
    found = await ask(program, "Where do I live?")
    assert found["relations"] == [{"source": "ann", "relationship": "lives_in", "destination": "paris"}]
    await tell(program, "I still live in Paris.", "Paris")
    moved = await tell(program, "I moved to Rome.", "Rome", old="Paris")
    assert moved["relations"]["deleted_entities"] == [
        [{"source": "ann", "relationship": "lives_in", "target": "paris"}]
    ]
    listed = await program.get_all()
    assert [item["target"] for item in listed["relations"]] == ["rome"]
    await program.call("delete_all", user_id="ann")

    paris, rome = "ann -- lives_in -- paris", "ann -- lives_in -- rome"
    assert relation_writes(recording) == [
        ("create_memory", "ADD", paris),
        ("create_memory", "NONE", paris),
        ("delete_memory", "DELETE", None),
        ("create_memory", "ADD", rome),
        ("delete_memory", "DELETE", None),  # delete_all: the relations that this process has seen
    ]
    search, everything = seen(recording, "search_memory")
    (hit,) = [item for item in search.inputs("hit") if "relation-" in item["ref"]]
    first, *_ = [span for span in seen(recording, "create_memory") if "relation-" in span.outputs()[0]["ref"]]
    assert hit["origin"] == first.origin
    assert paris in search.outputs()[0]["content"]  # the text that the application receives
    (candidate,) = [item for item in search.inputs("candidate") if "relation-" in item["ref"]]
    assert candidate["score"] > 0.9
    assert [item["ref"] for item in everything.inputs("hit") if "relation-" in item["ref"]] == [
        item["ref"] for span in seen(recording, "create_memory") for item in span.outputs() if item["content"] == rome
    ]
    assert len({span.scope for span in seen(recording)}) == 1
    assert len({span.trace_id for span in seen(recording)}) == 6


@pytest.mark.usefixtures("instrumented")
@pytest.mark.parametrize("where", ["in memory", "in files"])
async def test_equal_relations_of_two_graphs_have_two_refs(
    where: str, model: ModelStub, tmp_path: Path, recording: Recording
) -> None:
    programs: list[Program] = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        files = {"db": str(tmp_path / name / "graph")} if where == "in files" else {}
        programs.append(await with_graph("Memory", model, tmp_path / name, **files))
        await tell(programs[-1], "I live in Paris.", "Paris")
    first, second = [span for span in seen(recording, "create_memory") if "relation-" in span.outputs()[0]["ref"]]
    await ask(programs[0], "Where do I live?")
    (search,) = seen(recording, "search_memory")
    assert {item["origin"] for item in search.inputs() if "relation-" in item["ref"]} == {first.origin}
    assert first.outputs()[0]["ref"] != second.outputs()[0]["ref"]


@pytest.mark.usefixtures("instrumented", "content_on")
async def test_a_relation_is_followed_to_its_message(program: Program, recording: Recording) -> None:
    await tell(program, "I live in Paris.", "Paris")
    await ask(program, "Where do I live?")
    await tell(program, "I moved to Rome.", "Rome", old="Paris")
    graph = graph_of(recording)
    assert nx.is_directed_acyclic_graph(flow(graph))
    versions = [node for node in graph if isinstance(node, VersionKey) and "relation-" in node.ref]
    assert len(versions) == 3
    for version in versions:
        ancestors = [node for node in graph.ancestors(version) if isinstance(node, VersionKey)]
        assert "query" not in {ref_kind(node.ref) for node in ancestors}
        said = {graph.content(node) for node in ancestors if ref_kind(node.ref) == "message"}
        assert said == ({"I moved to Rome."} if graph.content(version).endswith("rome") else said)
        assert said
    # relations -> reply -> message, entities -> reply -> message
    relating = by_purpose(recording, "extract_relations")[0]
    naming = by_purpose(recording, "extract_entities")[0]
    (create,) = [s for s in seen(recording, "create_memory") if "relation-" in s.outputs()[0]["ref"]][:1]
    assert [item["origin"] for item in create.inputs()] == [relating.origin]
    assert [item["ref"] for item in naming.inputs("message")] == [item["ref"] for item in relating.inputs("message")]
    assert relating.inputs("other")[0]["origin"] == naming.origin
    assert relating.inputs("prompt")[0]["ref"] == "prompt:mem0.graph_relations"
    assert "lives in" in relating.outputs()[0]["content"]
    # the deletion names the relation that the model was shown
    deciding = by_purpose(recording, "delete_relations")[-1]
    assert [item["origin"] for item in deciding.inputs("candidate")] == [create.origin]
    (delete,) = seen(recording, "delete_memory")
    assert delete.inputs("previous")[0]["origin"] == create.origin
    assert delete.inputs("other")[0]["origin"] == deciding.origin


@pytest.mark.usefixtures("instrumented")
async def test_deleting_a_memory_deletes_its_relations(program: Program, recording: Recording) -> None:
    if not hasattr(program.memory.graph, "delete"):  # from 1.0.11 on
        return
    result = await tell(program, "I live in Paris.", "Paris")
    script("Paris")
    await program.call("delete", result["results"][0]["id"])
    root, inner = seen(recording, "delete_memory")
    assert inner.parent == root.origin
    assert inner.outputs()[0]["ref"].startswith("memory:relation-")
    (create,) = [s for s in seen(recording, "create_memory") if "relation-" in s.outputs()[0]["ref"]]
    assert inner.inputs("previous")[0]["origin"] == create.origin


@pytest.mark.parametrize("kind", ["Memory", "AsyncMemory"])
async def test_the_program_sees_the_same(kind: str, model: ModelStub, recording: Recording, tmp_path: Path) -> None:
    async def run(folder: Path) -> list[Any]:
        folder.mkdir()
        program = await with_graph(kind, model, folder)
        results = [await tell(program, "I live in Paris.", "Paris"), await ask(program, "Where do I live?")]
        results += [await tell(program, "I moved to Rome.", "Rome", old="Paris"), await program.get_all()]
        await program.call("delete_all", user_id="ann")
        results.append(await program.get_all())
        program.memory.vector_store.client.close()
        return [result["relations"] for result in results]

    without = await run(tmp_path / "without")
    Mem0Instrumentor().instrument(tracer_provider=recording.provider)
    try:
        assert await run(tmp_path / "with") == without
    finally:
        Mem0Instrumentor().uninstrument()
    assert relation_writes(recording)
