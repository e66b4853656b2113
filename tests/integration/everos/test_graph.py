"""The evolution graph of a memory, from the exported spans of a real EverOS."""

from __future__ import annotations

import asyncio

import networkx as nx
import openai
import pytest

from memtrace_otel.graph import EvolutionGraph, OperationKey, VersionKey
from memtrace_otel.instrumentation.openai import OpenAIInstrumentor
from memtrace_otel.model import ref_kind
from tests.conftest import Recording
from tests.integration.everos.conftest import fed, inputs, outputs, recorded
from tests.integration.everos.host import Memory
from tests.integration.everos.models import EverosModels

pytestmark = pytest.mark.usefixtures("instrumented")


def flow(graph: EvolutionGraph) -> nx.DiGraph[object]:
    """The flow of information: read edges and produced edges."""
    edges = graph.edges(data="type")
    return nx.DiGraph((one, other) for one, other, kind in edges if kind in ("read", "produced"))


def ancestors(graph: EvolutionGraph, version: VersionKey, kind: str) -> set[str]:
    return {
        node.ref for node in graph.ancestors(version) if isinstance(node, VersionKey) and ref_kind(node.ref) == kind
    }


async def test_no_version_descends_from_a_later_version_or_a_query(ann: Memory, recording: Recording) -> None:
    """The long conversation: 16 messages in two sessions, an episode ends at every TOPIC; searched all the while."""
    for session, numbers in (("a", range(9)), ("b", range(9, 16))):
        for number in numbers:
            topic = "TOPIC " if number % 4 == 0 else ""
            await ann.add(f"{topic}message number {number} about thing {number // 4}", session=f"{ann.user}{session}")
            if number % 5 == 4:
                await ann.search(f"What about thing {number // 4}?", method="keyword")
        await ann.flush(f"{ann.user}{session}")
    await ann.everos.settled()
    await ann.search("What about thing 3?")

    graph = recorded(recording).graph
    assert nx.is_directed_acyclic_graph(flow(graph))
    versions = [node for node in graph if isinstance(node, VersionKey) and ref_kind(node.ref) in ("memory", "state")]
    assert len(versions) > 32
    for version in versions:
        if not version.origin:
            continue
        written = graph.operation(version.origin)
        assert not ancestors(graph, version, "query"), version
        for ancestor in graph.ancestors(version):
            made = graph.operation(ancestor.origin) if isinstance(ancestor, OperationKey) else None
            assert made is None or made.start <= written.end, (ancestor, version)
    episodes = [version for version in versions if version.ref.startswith("memory:ep_")]
    assert len(episodes) == 5  # 0-3, 4-7, 8, 9-11, 12-15
    assert sorted(len(ancestors(graph, episode, "message")) for episode in episodes) == [1, 3, 4, 4, 4]


async def test_an_answer_descends_from_its_messages(
    ann: Memory, models: EverosModels, recording: Recording, content_on: None
) -> None:
    await ann.tell("I live in Paris near the river.", "> Nice.")
    await ann.tell("TOPIC I have a dog named Rex.", "> Lovely.")
    OpenAIInstrumentor().instrument(tracer_provider=recording.provider, skip_dep_check=True)
    try:
        for question in ("Where near the river do I live?", "Which dog named what do I have?"):
            with recording.tracer.start_as_current_span("turn"):
                found = await ann.search(question, top_k=1)
                memories = "\n".join(episode["episode"] for episode in found["episodes"])
                client = openai.OpenAI(base_url=models.url, api_key="none", max_retries=0)
                prompt = f"Memories:\n{memories}\n\nQuestion: {question}"
                messages = [{"role": "user", "content": prompt}]
                await asyncio.to_thread(client.chat.completions.create, model="m", messages=messages)
    finally:
        OpenAIInstrumentor().uninstrument()

    seen = recorded(recording)
    searches, answers = seen.named("search_memory"), [span for span in seen.spans if span.kind == "respond"]
    assert len(searches) == len(answers) == 2
    for search, answer, day in zip(searches, answers, ("river", "Rex"), strict=True):
        version = VersionKey(outputs(answer, "answer")[0].ref, answer.origin)
        assert ancestors(seen.graph, version, "query") == {inputs(search, "query")[0].ref}
        told = [v for span in seen.all("add") for v in inputs(span, "message") if day in v.content]
        assert {v.ref for v in told} <= ancestors(seen.graph, version, "message")
        assert len(ancestors(seen.graph, version, "message")) == 2
        assert ancestors(seen.graph, version, "memory") == {v.ref for v in inputs(search, "hit")}
        assert ancestors(seen.graph, version, "fact")
        chain = [seen.graph.operation(node.origin) for node in seen.graph.ancestors(version) if node.origin]
        assert {"create", "extract"} <= {span.kind for span in chain if span is not None}


async def test_each_user_of_a_session_has_a_copy(ann: Memory, recording: Recording) -> None:
    bob = ann.everos.memory()
    messages = [ann.turn("I live in Paris."), ann.turn("I live in Rome.", user=bob.user)]
    await ann.everos.post("add", session_id=ann.session, messages=messages)
    await ann.flush()
    await ann.everos.settled()
    for user in (ann, bob):
        await user.find("Where do I live?")
    seen = recorded(recording)
    one, other = [search for search in seen.named("search_memory") if inputs(search, "hit")]
    assert one.scope != other.scope
    assert inputs(one, "hit")[0].ref == inputs(other, "hit")[0].ref  # entry ids count per owner
    assert inputs(one, "hit")[0].origin != inputs(other, "hit")[0].origin
    for search in (one, other):
        for hit in inputs(search, "hit"):
            writer = seen.by_origin(hit.origin)
            assert writer.scope == search.scope
            assert hit.ref in [out.ref for out in writer.outputs]


async def test_the_profile_descends_from_its_memcells(ann: Memory, models: EverosModels, recording: Recording) -> None:
    for text in ("I live in Paris.", "TOPIC I like tea.", "TOPIC I have a dog."):
        await ann.tell(text)
    seen = recorded(recording)
    extractions = [span for span in seen.all("extract_user_profile") if span.kind == "extract"]
    writes = [span for span in seen.all("extract_user_profile") if span.kind == "update"]
    assert extractions
    assert len(extractions) == len(writes)
    ref = f"state:profile-{ann.user}"
    for number, (extraction, write) in enumerate(zip(extractions, writes, strict=True)):
        assert {ref_kind(v.ref) for v in extraction.inputs} >= {"state", "message", "prompt"}
        assert all(v.origin for v in inputs(extraction, kind="state:mc_"))
        (profile,) = outputs(write)
        assert profile.ref == ref
        assert profile.digest == outputs(extraction, "fact")[0].digest
        assert [v.origin for v in inputs(write, "previous")] == ([writes[number - 1].origin] if number else [])
        assert outputs(extraction, "fact")[0].ref in [v.ref for v in fed(write, profile)]
    assert {v.origin for span in seen.all("cascade") for v in inputs(span, kind=ref)} <= {w.origin for w in writes}
    assert any(inputs(span, kind=ref) for span in seen.all("cascade"))
    found = await ann.search("tea", include_profile=True)
    assert found["profiles"]
    search = recorded(recording).named("search_memory")[-1]
    (hit,) = inputs(search, "hit", ref)
    assert (hit.origin, hit.digest) == (writes[-1].origin, writes[-1].outputs[0].digest)


async def test_a_cluster_has_a_version_per_member(ann: Memory, recording: Recording) -> None:
    await ann.tell("I like green tea very much.")
    await ann.tell("TOPIC I like green tea very much indeed.")
    seen = recorded(recording)
    first, second = seen.all("upsert_cluster")
    chosen = seen.all("clustering")
    assert [v.ref for v in inputs(chosen[1], "candidate")] == [first.outputs[0].ref]
    assert [span.outputs[0].action for span in chosen] == ["ADD", "UPDATE"]
    assert first.outputs[0].ref == second.outputs[0].ref
    assert [v.origin for v in inputs(second, "previous")] == [first.origin]
    assert outputs(chosen[1], "fact")[0].ref in [v.ref for v in second.inputs]
