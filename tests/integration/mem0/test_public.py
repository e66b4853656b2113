"""Public calls as spans of the GenAI memory conventions, with their inputs and outputs."""

from __future__ import annotations

import re
from typing import Any

import pytest
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.trace import SpanKind, StatusCode

from memtrace_otel import semconv
from memtrace_otel.model import content_digest
from tests.conftest import Recording
from tests.integration.mem0.conftest import Program, config, ids, open_program, seen
from tests.integration.model_stub import ModelStub

pytestmark = pytest.mark.usefixtures("instrumented")


async def test_every_public_call_is_one_trace_with_a_conformant_root(program: Program, recording: Recording) -> None:
    found = ids(await program.call("add", "I live in Paris. I play chess.", user_id="ann"))
    id = found["I live in Paris."]
    await program.call("add", "Kept as it is", user_id="ann", infer=False)
    hits = len((await program.search("Where do I live?"))["results"])
    await program.call("get", id)
    await program.get_all()
    await program.call("update", id, "I live in Lyon.")
    await program.call("history", id)
    await program.call("delete", id)
    await program.call("delete_all", user_id="ann")
    await program.call("reset")

    roots = [span for span in seen(recording) if not span.parent]
    assert [(root.name, root.kind) for root in roots] == [
        ("upsert_memory", "ingest"),
        ("create_memory", "create"),
        ("search_memory", "retrieve"),
        ("search_memory", "retrieve"),
        ("search_memory", "retrieve"),
        ("update_memory", "update"),
        ("memtrace.retrieve", "retrieve"),
        ("delete_memory", "delete"),
        ("delete_memory", "delete"),
        ("delete_memory_store", "delete"),
    ]
    assert len({span.trace_id for span in seen(recording)}) == len(roots)  # threads and tasks kept the context
    class_name = type(program.memory).__name__
    for root in roots:
        assert root.span.kind is SpanKind.INTERNAL
        assert root.span.instrumentation_scope.name == "memtrace_otel.instrumentation.mem0"
        assert root.span.instrumentation_scope.schema_url == semconv.SCHEMA_URL
        assert root.attributes[semconv.SYSTEM] == "mem0"
        assert root.attributes[semconv.GEN_AI_MEMORY_STORE_ID] == "memories"
        assert root.attributes[semconv.CODE_FUNCTION_NAME].startswith(f"mem0.memory.main.{class_name}.")
        named = root.attributes.get(semconv.GEN_AI_OPERATION_NAME)
        assert named == (None if root.name.startswith("memtrace.") else root.name)
        assert root.span.status.status_code is StatusCode.UNSET
    counts = [root.attributes.get(semconv.GEN_AI_MEMORY_RECORD_COUNT) for root in roots]
    assert counts == [2, 1, hits, 1, 3, None, 2, None, 2, None]
    by_id = [root.attributes.get(semconv.GEN_AI_MEMORY_RECORD_ID) for root in roots]
    assert [n for n, value in enumerate(by_id) if value == id] == [3, 5, 6, 7]
    assert len({root.scope for root in roots[:-1]}) == 1  # one owner, by argument, filter or payload
    assert all(span.attributes[semconv.SYSTEM] == "mem0" for span in seen(recording))


@pytest.mark.usefixtures("content_on")
async def test_a_record_changed_by_another_process_has_an_unknown_origin(
    program: Program, recording: Recording
) -> None:
    id = ids(await program.call("add", "I live in Paris.", user_id="ann"))["I live in Paris."]
    with suppress_instrumentation():  # as in another process
        await program.call("update", id, "I live in Oslo.")
    await program.search("Where do I live?")
    await program.call("update", id, "I live in Rome.")
    for span, role in ((seen(recording, "search_memory")[0], "hit"), (seen(recording, "update_memory")[0], "previous")):
        [read] = span.inputs(role)
        assert (read["origin"], read["content"]) == ("", "I live in Oslo.")
        assert "unknown_origin" in span.attributes[semconv.INCOMPLETE]


@pytest.mark.usefixtures("content_on")
async def test_search_reads_hits_and_candidates_and_produces_a_context(program: Program, recording: Recording) -> None:
    added = ids(await program.call("add", "I live in Paris. I play chess. My dog is Rex.", user_id="ann"))
    writers = {span.outputs()[0]["ref"]: span.origin for span in seen(recording, "create_memory")}
    result = await program.search("Where do I live?", threshold=0.3)
    assert [item["memory"] for item in result["results"]] == ["I live in Paris."]

    (search,) = seen(recording, "search_memory")
    (query,) = search.inputs("query")
    assert query["ref"] == f"query:{content_digest('Where do I live?')}"
    assert query["content"] == search.attributes[semconv.GEN_AI_MEMORY_QUERY_TEXT] == "Where do I live?"
    (hit,) = search.inputs("hit")
    assert hit["ref"] == f"memory:{added['I live in Paris.']}"
    assert hit["origin"] == writers[hit["ref"]]
    assert hit["score"] == result["results"][0]["score"]
    candidates = search.inputs("candidate")
    assert {item["ref"]: item["origin"] for item in candidates} == writers
    scores = [item["score"] for item in candidates]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > 0.3 > scores[-1]
    (context,) = search.outputs()
    assert context["ref"] == f"context:{search.origin[33:]}"
    assert (context["action"], context["content"]) == ("DERIVE", "I live in Paris.")
    assert [search.inputs()[i]["role"] for i in context["sources"]] == ["query", "hit"]  # candidates fed nothing
    assert search.attributes[semconv.RETRIEVAL_THRESHOLD] == 0.3
    (embedding,) = [span for span in seen(recording, "memtrace.index") if span.parent == search.origin]
    assert embedding.inputs()[0]["ref"] == query["ref"]
    assert embedding.attributes[semconv.GEN_AI_REQUEST_MODEL] == "stub"


async def test_unchanged_messages_are_the_sources_of_their_records(program: Program, recording: Recording) -> None:
    messages = [
        {"role": "user", "content": text, "id": id} for id, text in [("m/1", "one"), ("m/2", "two"), ("m/3", "one")]
    ]
    result = await program.call("add", messages, user_id="ann", infer=False)
    (create,) = seen(recording, "create_memory")
    assert [item["ref"] for item in create.inputs()] == ["message:m/1", "message:m/2", "message:m/3"]
    made = [(item["ref"], item["action"], item["sources"]) for item in create.outputs()]
    assert made == [(f"memory:{item['id']}", "ADD", [n]) for n, item in enumerate(result["results"])]


async def test_update_and_delete_have_one_producer_each_and_read_the_true_previous_version(
    program: Program, recording: Recording
) -> None:
    id = ids(await program.call("add", "I live in Paris.", user_id="ann"))["I live in Paris."]
    (created,) = seen(recording, "create_memory")
    await program.call("update", id, "I live in Lyon.")
    await program.call("delete", id)

    (updated,) = seen(recording, "update_memory")
    (deleted,) = seen(recording, "delete_memory")
    assert [item["action"] for item in updated.outputs()] == ["UPDATE"]
    assert [item["action"] for item in deleted.outputs()] == ["DELETE"]
    assert updated.outputs()[0]["digest"] == content_digest("I live in Lyon.")
    producers = [span.origin for span in seen(recording) if f"memory:{id}" in [o["ref"] for o in span.outputs()]]
    assert producers == [created.origin, updated.origin, deleted.origin]
    previous = [span.inputs("previous")[0] for span in (updated, deleted)]
    assert [item["origin"] for item in previous] == [created.origin, updated.origin]
    assert [item["digest"] for item in previous] == [content_digest(t) for t in ("I live in Paris.", "I live in Lyon.")]
    assert updated.outputs()[0]["sources"] == [0, 1]  # the new text and the previous version
    assert updated.scope == deleted.scope == created.scope
    assert {link.attributes[semconv.LINK_TYPE] for link in updated.span.links} == {"supersedes"}


async def test_a_store_that_calls_its_own_methods_writes_one_version(program: Program, recording: Recording) -> None:
    """FAISS updates by calling its own `delete` and `insert`, positionally."""
    store = program.memory.vector_store

    class Rewriting(type(store)):
        def update(self, vector_id: str, vector: Any = None, payload: Any = None) -> None:
            self.delete(vector_id)
            self.insert([vector], [payload], [vector_id])

    store.__class__ = Rewriting
    id = ids(await program.call("add", "I live in Paris.", user_id="ann"))["I live in Paris."]
    await program.call("update", id, "I live in Lyon.")
    writes = [(span.name, item["action"]) for span in seen(recording) for item in span.outputs("memory")]
    assert writes == [("create_memory", "ADD"), ("update_memory", "UPDATE")]


async def test_delete_all_leaves_one_tombstone_per_record(program: Program, recording: Recording) -> None:
    added = ids(await program.call("add", "I live in Paris. I play chess.", user_id="ann"))
    await program.call("add", "I live in Rome.", user_id="bob")
    await program.call("delete_all", user_id="ann")
    parent, *children = seen(recording, "delete_memory")
    assert parent.outputs() == []
    assert semconv.GEN_AI_MEMORY_RECORD_ID not in parent.attributes
    assert {child.parent for child in children} == {parent.origin}
    anns = [child for child in children if child.scope == parent.scope]  # 1.0 resets the store: Bob's are gone, too
    tombstones = {item["ref"]: item["action"] for child in anns for item in child.outputs()}
    assert tombstones == {f"memory:{id}": "DELETE" for id in added.values()}
    assert all(child.inputs("previous")[0]["origin"] for child in children)


async def test_get_all_and_get_read_the_returned_records(program: Program, recording: Recording) -> None:
    await program.call("add", "I live in Paris. I play chess.", user_id="ann")
    listed = await program.get_all()
    one = await program.call("get", listed["results"][0]["id"])
    assert await program.call("get", "00000000-0000-0000-0000-000000000000") is None
    many, single, none = seen(recording, "search_memory")
    assert [item["ref"] for item in many.inputs("hit")] == [f"memory:{item['id']}" for item in listed["results"]]
    assert [item["ref"] for item in single.inputs()] == [f"memory:{one['id']}"]
    assert single.scope == many.scope
    assert none.inputs() == []
    assert [span.outputs()[0]["ref"] for span in (many, single)] == [f"context:{s.origin[33:]}" for s in (many, single)]


async def test_a_record_has_one_lineage_across_memory_objects_runs_and_agents(
    program: Program, recording: Recording, model: ModelStub, tmp_path: Any
) -> None:
    """Another process is another Memory object and forgets nothing that the spans say: scope comes from the payload."""
    added = await program.call("add", "I live in Paris.", user_id="ann", agent_id="bot", run_id="r1")
    id = ids(added)["I live in Paris."]
    program.memory.vector_store.client.close()  # embedded Qdrant allows one client
    other = await open_program(type(program.memory).__name__, config(model, tmp_path))
    await other.call("update", id, "I live in Lyon.")
    await other.search("Where do I live?")
    (created,) = seen(recording, "create_memory")
    (updated,) = seen(recording, "update_memory")
    (searched,) = seen(recording, "search_memory")
    assert updated.inputs("previous")[0]["origin"] == created.origin
    assert searched.inputs("hit")[0]["origin"] == updated.origin
    assert created.scope == updated.scope == searched.scope

    await other.call("add", "I live in Rome.", user_id="bob")
    assert seen(recording, "upsert_memory")[-1].scope != created.scope


async def test_history_reads_the_newest_version(program: Program, recording: Recording) -> None:
    id = ids(await program.call("add", "I live in Paris.", user_id="ann"))["I live in Paris."]
    await program.call("update", id, "I live in Lyon.")
    assert len(await program.call("history", id)) == 2
    (updated,) = seen(recording, "update_memory")
    read = seen(recording, "memtrace.retrieve")[-1]
    (item,) = read.inputs()
    assert (item["role"], item["origin"], item["digest"]) == (
        "history",
        updated.origin,
        content_digest("I live in Lyon."),
    )
    (context,) = read.outputs()
    assert (context["ref"].partition(":")[0], context["digest"]) == (
        "context",
        content_digest("I live in Paris.\nI live in Lyon."),
    )


async def test_a_reranker_is_a_step_of_the_search(program: Program, recording: Recording) -> None:
    class Reverse:
        def rerank(self, query: str, documents: list[Any], top_k: int | None = None) -> list[Any]:
            return [{**item, "rerank_score": float(n)} for n, item in enumerate(reversed(documents))]

    program.memory.reranker = Reverse()
    await program.call("add", "I live in Paris. I live with Rex.", user_id="ann")
    result = await program.search("Where do I live in Paris?", rerank=True)
    (search,) = seen(recording, "search_memory")
    (rerank,) = seen(recording, "memtrace.rerank")
    assert rerank.parent == search.origin
    returned = [f"memory:{item['id']}" for item in result["results"]]
    assert [item["ref"] for item in rerank.inputs("hit")] == returned
    assert [item["ref"] for item in rerank.inputs("candidate")] == returned[::-1]
    assert [item["score"] for item in rerank.inputs("hit")] == [0.0, 1.0]
    assert [item["ref"] for item in search.inputs("hit")] == returned
    assert rerank.inputs("query")[0]["ref"] == search.inputs("query")[0]["ref"]


async def test_lineage_is_equal_with_and_without_contents(
    program: Program, recording: Recording, model: ModelStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With content off no text reaches a span, and the same refs, roles, digests and actions do."""
    from memtrace_otel.capture import read_config, use_config

    async def run() -> list[Any]:
        recording.clear()
        id = ids(await program.call("add", "I live in Paris.", user_id="ann"))["I live in Paris."]
        await program.search("Where do I live?")
        await program.call("update", id, "I live in Lyon.")
        await program.call("delete", id)
        places = {span.origin: n for n, span in enumerate(seen(recording))}

        def plain(item: dict[str, Any]) -> Any:
            ref = item["ref"].replace(id, "record").split(":context")[0]
            ref = re.sub(r"\.[0-9a-f]{16}$", "", ref)  # the call that a text was given to
            ref = "context" if ref.startswith("context:") else ref
            return ref, item["role"], item.get("action"), item["digest"], places.get(item.get("origin") or "")

        return [(s.name, [plain(i) for i in s.inputs()], [plain(o) for o in s.outputs()]) for s in seen(recording)]

    off = await run()
    dumped = "".join(span.to_json() for span in recording.spans())
    assert "Paris" not in dumped
    assert "Where do I" not in dumped
    monkeypatch.setenv("MEMTRACE_SPAN_BYTES", "65536")  # prompts of Mem0 take over 8 KiB
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
    use_config(read_config())
    on = await run()
    assert "Paris" in "".join(span.to_json() for span in recording.spans())
    if len(off) == len(on):  # 2.x shows its last messages to the second extraction
        assert [step[0] for step in off] == [step[0] for step in on]
    kept = [(name, [i for i in inputs if i[1] != "history"], outputs) for name, inputs, outputs in on]
    assert kept == off


async def test_a_procedural_memory_is_summarised_then_created(
    program: Program, recording: Recording, model: ModelStub
) -> None:
    model.script.append("Step 1: asked. Step 2: answered.")
    messages = [{"role": "user", "content": "Do it"}]
    await program.call("add", messages, agent_id="bot", memory_type="procedural_memory")
    upsert, extract, _, _, create = seen(recording)
    assert [upsert.name, extract.name, create.name] == ["upsert_memory", "memtrace.extract", "create_memory"]
    (summary,) = extract.outputs()
    assert (create.inputs()[0]["ref"], create.inputs()[0]["origin"]) == (summary["ref"], extract.origin)
    assert extract.inputs("prompt")[0]["ref"] == "prompt:mem0.procedural_memory"


async def test_a_store_that_is_reset_loses_the_records_of_every_owner(program: Program, recording: Recording) -> None:
    """`delete_all` of 1.0 resets the collection after it has deleted the records of one owner."""
    bobs = ids(await program.call("add", "Bob plays chess.", user_id="bob", infer=False))["Bob plays chess."]
    await program.call("add", "I live in Paris.", user_id="ann", infer=False)
    recording.clear()
    await program.call("delete_all", user_id="ann")
    left = [item["id"] for item in (await program.get_all("bob"))["results"]]
    tombstones = [span for span in seen(recording) if f"memory:{bobs}" in span.attributes.get(semconv.OUTPUTS, ())]
    assert len(tombstones) == (0 if bobs in left else 1)
    assert [span.kind for span in tombstones] == ["delete"] * len(tombstones)
