"""The evolution graph of a fact, from the exported spans of a real Mem0."""

from __future__ import annotations

import networkx as nx
import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from memtrace_otel.graph import EvolutionGraph, OperationKey, VersionKey, build_graph
from memtrace_otel.model import content_digest, ref_kind
from memtrace_otel.otlp import decode_request
from tests.conftest import Recording
from tests.integration.mem0.conftest import Program, ids, seen

pytestmark = pytest.mark.usefixtures("instrumented")

MESSAGE = "I live in Paris. I play chess."


def graph_of(recording: Recording) -> EvolutionGraph:
    """The graph of the recorded spans, decoded from OTLP."""
    return build_graph(decode_request(encode_spans(recording.spans()).SerializeToString()))


def flow(graph: EvolutionGraph) -> nx.DiGraph[object]:
    """The flow of information: read edges and produced edges."""
    edges = graph.edges(data="type")
    return nx.DiGraph((one, other) for one, other, kind in edges if kind in ("read", "produced"))


async def test_a_fact_is_followed_from_message_to_hit_to_loss(program: Program, recording: Recording) -> None:
    id = ids(await program.call("add", MESSAGE, user_id="ann"))["I live in Paris."]
    await program.search("Where do I live?")
    await program.search("What do I play?")
    await program.call("update", id, "I live in Lyon.")
    await program.search("Where do I live?")
    await program.call("delete", id)

    graph = graph_of(recording)
    assert nx.is_directed_acyclic_graph(flow(graph))
    # Only the source of the text of a public update is unknown.
    (update,) = [span.origin for span in seen(recording, "update_memory") if not span.parent]
    reads = [read for span in graph.operations() for read in graph.inputs(span.origin)]
    roots = {read.version.ref for read in reads if not read.version.origin}
    assert {ref for ref in roots if ref_kind(ref) not in ("message", "query", "prompt")} == {
        f"fact:{content_digest('I live in Lyon.')}.{update[33:]}"
    }
    ref = f"memory:{id}"
    created, updated, deleted = graph.history(ref)
    assert [graph.operation(version.origin).kind for version in (created, updated, deleted)] == [
        "create",
        "update",
        "delete",
    ]
    assert [graph.is_tombstone(version) for version in (created, updated, deleted)] == [False, False, True]
    reads = [read for version in (created, updated) for read in graph.readers(version) if read.role == "hit"]
    searches = [span.origin for span in seen(recording, "search_memory")]
    assert [read.operation.origin for read in reads if read.operation.origin in searches] == searches
    assert not any(read.inferred for read in reads)

    first = seen(recording, "search_memory")[0]
    context = VersionKey(f"context:{first.origin[33:]}", first.origin)
    sources = graph.ancestors(context)
    told = seen(recording, "upsert_memory")[0].origin[33:]
    assert VersionKey(f"message:{content_digest(MESSAGE)}.{told}", "", first.scope) in sources
    extract = seen(recording, "memtrace.extract")[0].origin
    assert VersionKey(f"fact:{content_digest('I live in Paris.')}", extract) in sources
    assert created in sources
    assert updated not in sources


async def test_no_memory_descends_from_a_question_or_from_the_future(program: Program, recording: Recording) -> None:
    for text in (MESSAGE, "I like tea. I live in Paris.", "moments later", "moments later", "I have a dog."):
        await program.search(f"What about {text}")
        await program.call("add", text, user_id="ann")
        await program.call("add", f"as it is: {text}", user_id="ann", infer=False)
        for id in list(ids(await program.search("Paris")).values())[:1]:
            await program.call("update", id, f"I live in Paris, said {text}")

    graph = graph_of(recording)
    assert nx.is_directed_acyclic_graph(flow(graph))
    records = [node for node in graph if isinstance(node, VersionKey) and node.ref.startswith("memory:")]
    assert len(records) > 10
    for record in records:
        ancestors = graph.ancestors(record)
        assert "query" not in {ref_kind(node.ref) for node in ancestors if isinstance(node, VersionKey)}
        operations = [graph.operation(node.origin) for node in ancestors if isinstance(node, OperationKey)]
        written = graph.time_of(record)
        assert all(operation.start <= written for operation in operations)
    producers = [edge for *_, edge in graph.out_edges(data=True) if edge["type"] == "produced"]
    assert len({(node.ref, node.origin) for node in records}) == len(records)
    assert len(producers) >= len(records)
