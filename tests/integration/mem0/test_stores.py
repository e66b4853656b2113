"""The same scenario on every vector store, and origins in the payloads of stored records.

The origins are found across processes and are removed from everything that the program sees.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memtrace_otel import semconv
from memtrace_otel.capture import origins, read_config, use_config
from memtrace_otel.instrumentation.mem0 import Mem0Instrumentor
from tests.conftest import Recording
from tests.integration.mem0.conftest import IS_V1, STORES, Program, config, ids, open_program, payloads, seen
from tests.integration.model_stub import ModelStub

KEY = semconv.RECORD_ORIGIN_KEY


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def origins_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMTRACE_RECORD_ORIGIN", "true")
    use_config(read_config())


@pytest.fixture(params=["Memory", "AsyncMemory"])
async def program(
    request: pytest.FixtureRequest, model: ModelStub, tmp_path: Path, store: str, recording: Recording
) -> Program:
    made = await open_program(request.param, config(model, tmp_path, store=store))
    recording.clear()  # create_memory_store
    return made


@pytest.mark.usefixtures("instrumented")
async def test_each_version_has_one_writer_and_each_hit_names_it(program: Program, recording: Recording) -> None:
    id = ids(await program.call("add", "I live in Paris. I play chess.", user_id="ann"))["I live in Paris."]
    await program.search("Where do I live?")
    await program.call("update", id, "I live in Lyon.")
    await program.search("Where do I live?")
    await program.get_all()
    await program.call("delete", id)
    created, *_ = [span for span in seen(recording, "create_memory") if span.outputs()[0]["ref"] == f"memory:{id}"]
    (updated,) = seen(recording, "update_memory")
    (deleted,) = seen(recording, "delete_memory")
    writes = [(s.name, o["action"]) for s in seen(recording) for o in s.outputs("memory") if o["ref"] == f"memory:{id}"]
    assert writes == [("create_memory", "ADD"), ("update_memory", "UPDATE"), ("delete_memory", "DELETE")]
    assert updated.inputs("previous")[0]["origin"] == created.origin
    assert deleted.inputs("previous")[0]["origin"] == updated.origin
    read = [
        i["origin"] for s in seen(recording, "search_memory") for i in s.inputs("hit") if i["ref"] == f"memory:{id}"
    ]
    assert read == [created.origin, updated.origin, updated.origin]
    assert len({span.scope for span in seen(recording)}) == 1


@pytest.mark.usefixtures("instrumented")
async def test_origins_come_from_the_payloads(
    program: Program, recording: Recording, origins_on: None, model: ModelStub
) -> None:
    """As in another process: the table of origins is emptied after each step."""
    found = ids(await program.call("add", "I live in Paris. I play chess.", user_id="ann"))
    id = found["I live in Paris."]
    writers = {span.outputs()[0]["ref"]: span.origin for span in seen(recording, "create_memory")}
    assert len(writers) == 2
    origins().forget()
    await program.search("Where do I live?")
    await program.call("get", id)
    origins().forget()
    await program.call("update", id, "I live in Lyon.")
    origins().forget()
    await program.get_all()
    origins().forget()
    await program.call("add", "I live in Lyon. I like tea.", user_id="ann")  # neighbours are read, too
    origins().forget()
    await program.call("delete", id)

    (updated,) = seen(recording, "update_memory")
    (deleted,) = seen(recording, "delete_memory")
    ref = f"memory:{id}"
    assert updated.inputs("previous")[0]["origin"] == writers[ref]
    assert deleted.inputs("previous")[0]["origin"] == updated.origin
    searched, got, listed = seen(recording, "search_memory")
    for item in (*searched.inputs("hit"), *searched.inputs("candidate"), *got.inputs("hit")):
        assert item["origin"] == writers[item["ref"]]
    writers[ref] = updated.origin
    for item in listed.inputs("hit"):
        assert item["origin"] == writers[item["ref"]]
    neighbours = [i for s in seen(recording, "memtrace.retrieve")[1:] for i in s.inputs("hit")]
    assert {i["origin"] for i in neighbours if i["ref"] == ref} == {updated.origin}
    for name in ("memtrace.extract", "memtrace.decide"):
        for item in (i for s in seen(recording, name) for i in s.inputs("candidate")):
            assert item["origin"] == writers.get(item["ref"], item["origin"]) != ""
    assert not [prompt for prompt in model.prompts if KEY in prompt]


@pytest.mark.parametrize("kind", ["Memory", "AsyncMemory"])
async def test_the_program_sees_the_same(
    kind: str, store: str, model: ModelStub, recording: Recording, tmp_path: Path, origins_on: None
) -> None:
    async def run(folder: Path) -> tuple[list[Any], list[dict[str, Any]]]:
        folder.mkdir()
        program = await open_program(kind, config(model, folder, store=store))
        added = await program.call("add", "I live in Paris.", user_id="ann", metadata={"session": "s1"})
        await program.call("add", "Kept as it is", user_id="ann", infer=False)
        id = ids(added)["I live in Paris."]
        results = [await program.search("Where do I live?"), await program.call("get", id), await program.get_all()]
        await program.call("update", id, "I live in Lyon.")
        results += [await program.search("Where do I live?"), await program.call("get", id), await program.get_all()]
        stored = payloads(program)
        for item in results[-1]["results"]:  # in sequence: the parallel deletes of AsyncMemory 1.x break FAISS
            await program.call("delete", item["id"])
        results.append(await program.get_all())
        close = getattr(getattr(program.memory.vector_store, "client", None), "close", lambda: None)
        close()
        return [shape(result) for result in results], stored

    without, plain = await run(tmp_path / "without")
    Mem0Instrumentor().instrument(tracer_provider=recording.provider)
    try:
        traced, marked = await run(tmp_path / "with")
    finally:
        Mem0Instrumentor().uninstrument()
    assert traced == without
    assert KEY not in json.dumps(traced)
    assert sorted(sorted(set(payload) - {KEY}) for payload in marked) == sorted(sorted(payload) for payload in plain)
    assert all(KEY in payload for payload in marked)
    assert not any(KEY in payload for payload in plain)


def shape(value: Any) -> Any:
    """A result without ids and times; which keys there are, and in which order, counts."""
    if isinstance(value, dict):
        return [
            [key, None if key in ("id", "created_at", "updated_at") else shape(inner)] for key, inner in value.items()
        ]
    if isinstance(value, list):
        return sorted((shape(item) for item in value), key=repr)
    return value


@pytest.mark.usefixtures("instrumented")
async def test_an_origin_of_an_older_text_is_ignored(program: Program, recording: Recording, origins_on: None) -> None:
    """A process that is not instrumented updates a record: Mem0 2.x copies the key, which is then out of date."""
    id = ids(await program.call("add", "I live in Paris.", user_id="ann"))["I live in Paris."]
    (payload,) = payloads(program)
    vector = program.memory.embedding_model.embed("I live in Rome.", "update")
    program.memory.vector_store.update(vector_id=id, vector=vector, payload={**payload, "data": "I live in Rome."})
    await program.search("Where do I live?")
    (search,) = seen(recording, "search_memory")
    assert [item["origin"] for item in search.inputs("hit")] == [""]
    assert "unknown_origin" in search.attributes[semconv.INCOMPLETE]


PROCESS = """
import asyncio, inspect, json, os, sys
os.environ["MEM0_TELEMETRY"] = "False"
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from memtrace_otel.instrumentation.mem0 import Mem0Instrumentor

exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
Mem0Instrumentor().instrument(tracer_provider=provider)
import mem0

memory = mem0.Memory.from_config(json.loads(sys.argv[1]))
statistics = getattr(memory, "_telemetry_vector_store", None)
if hasattr(statistics, "client"):
    statistics.client.close()
owner = {"user_id": "ann"} if sys.argv[3] == "1" else {"filters": {"user_id": "ann"}}
if sys.argv[2] == "write":
    memory.add("I live in Paris.", user_id="ann")
elif sys.argv[2] == "update":
    memory.update(memory.get_all(**owner)["results"][0]["id"], "I live in Lyon.")
found = memory.search("Where do I live?", **owner)
spans = [
    [f"{s.context.trace_id:032x}-{s.context.span_id:016x}", s.name, dict(s.attributes)]
    for s in exporter.get_finished_spans()
]
print(json.dumps([found, spans]))
"""


@pytest.mark.parametrize("store", ["qdrant"])  # one store suffices: the test above reads the payloads of the others
def test_origins_are_found_across_three_processes(store: str, model: ModelStub, tmp_path: Path) -> None:
    def run(what: str) -> tuple[Any, list[Any]]:
        configuration = json.dumps(config(model, tmp_path, store=store))
        environment = os.environ | {"MEMTRACE_RECORD_ORIGIN": "true", "MEM0_DIR": str(tmp_path / "mem0")}
        command = [sys.executable, "-c", PROCESS, configuration, what, "1" if IS_V1 else "2"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
        assert done.returncode == 0, done.stderr[-2000:]
        found, spans = json.loads(done.stdout.splitlines()[-1])
        assert KEY not in json.dumps(found)
        return found, spans

    def made(spans: list[Any], name: str) -> str:
        (origin,) = [span[0] for span in spans if span[1] == name and span[2].get(semconv.OUTPUTS)]
        return origin

    def hit(spans: list[Any]) -> str:
        attributes = [span[2] for span in spans if span[1] == "search_memory"][-1]
        return attributes[semconv.INPUTS_ORIGINS][attributes[semconv.INPUTS_ROLES].index("hit")]

    _, written = run("write")
    _, updated = run("update")
    found, read = run("read")
    assert [item["memory"] for item in found["results"]] == ["I live in Lyon."]
    (update,) = [span[2] for span in updated if span[1] == "update_memory"]
    previous = update[semconv.INPUTS_ROLES].index("previous")
    assert update[semconv.INPUTS_ORIGINS][previous] == made(written, "create_memory") == hit(written)
    assert hit(updated) == hit(read) == made(updated, "update_memory")
