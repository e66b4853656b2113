"""The reference conversation on a real EverOS, compared with a tracer that is written into the code of its predecessor.

E1 to E29: the operations and dependencies of that tracer, with the same purposes.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from memtrace_otel.model import ref_kind
from memtrace_otel.semconv import Action
from tests.conftest import Recording
from tests.integration.everos.conftest import fed, inputs, outputs, recorded
from tests.integration.everos.host import Memory
from tests.integration.everos.models import EverosModels

pytestmark = pytest.mark.usefixtures("instrumented")

FIRST_DAY = ("I live in Paris.", "I have a dog named Rex.", "ok thanks")
SECOND_DAY = ("I moved to Lisbon.", "Rex was given away, no dog now.", "I like tea.", "ok thanks")
EXTRACT = "memory_system.extract_memory"


async def tell(ann: Memory) -> None:
    """One message per call. The first episode ends at the second day, the second episode at the flush."""
    for text in FIRST_DAY:
        await ann.add(text)
    for text in SECOND_DAY:
        await ann.add(text, days=1)
        await ann.everos.settled()  # the background work of one episode at a time
    await ann.flush()
    await ann.everos.settled()


async def test_construction(ann: Memory, recording: Recording, content_on: None) -> None:
    await tell(ann)
    seen = recorded(recording)
    messages = [v.ref for span in seen.all("add") for v in inputs(span, "message")]
    assert len(set(messages)) == 7

    # E1, E14: message -> buffer, buffer -> buffer; the cut keeps the rest, the flush keeps no message
    buffers = seen.all("memory_system.message_buffer_update")
    assert [[v.ref for v in inputs(span, "message")] for span in buffers] == [*([ref] for ref in messages), []]
    assert [len(inputs(span, "previous")) for span in buffers] == [0, 1, 1, 1, 1, 1, 1, 1]
    for older, newer in pairwise(buffers):
        assert inputs(newer, "previous")[0].origin == older.origin
    assert [out.action for span in buffers for out in span.outputs] == [Action.ADD, *[Action.UPDATE] * 7]

    # E2: the messages so far and the prompt -> the raw reply
    boundaries = seen.all("evermemos.boundary_detection")
    assert [len(inputs(span, "history")) for span in boundaries] == [1, 2, 3, 4, 2, 3, 4, 4]
    for span in boundaries:
        (reply,) = outputs(span, "completion")
        assert [v.ref for v in fed(span, reply) if v.role == "prompt"] == ["prompt:everos.boundary_detection"]

    # E4, E8: an episode's messages -> the unit
    units = seen.all("memory_system.finalize_memory_unit")
    made = [out for span in units for out in outputs(span, "state")]
    assert [[v.ref for v in fed(span, span.outputs[0])] for span in units] == [messages[:3], messages[3:]]

    # E9: unit, template -> raw reply, episode -> the stored episode
    episodes = [span for span in seen.all(EXTRACT) if "prompt:everos.episode_extraction" in str(span.inputs)]
    stored = [span for span in seen.all("append_entries") if span.outputs[0].ref.startswith("memory:ep_")]
    for unit, span, write in zip(units, episodes, stored, strict=True):
        assert [(v.ref, v.origin) for v in inputs(span, kind="state")] == [(unit.outputs[0].ref, unit.origin)]
        assert [v.ref for v in inputs(span, "message")] == [v.ref for v in unit.inputs]
        assert [ref_kind(out.ref) for out in span.outputs] == ["completion", "fact"]
        assert [(v.ref, v.origin) for v in write.inputs] == [(span.outputs[1].ref, span.origin)]
        assert write.outputs[0].digest == span.outputs[1].digest
    assert made

    # E10: unit -> notes on the future
    foresights = [span for span in seen.all(EXTRACT) if "prompt:everos.foresight_extraction" in str(span.inputs)]
    assert [inputs(span, kind="state")[0].ref for span in foresights] == [out.ref for out in made]
    notes = [span for span in seen.all("append_entries") if span.outputs[0].ref.startswith("memory:fs_")]
    assert {(v.ref, v.origin) for span in notes for v in span.inputs} == {
        (outputs(span, "fact")[0].ref, span.origin) for span in foresights
    }

    # E11: episode, template -> raw reply, facts -> the stored facts, one operation each
    extractions = [span for span in seen.all(EXTRACT) if "prompt:everos.atomic_fact_extraction" in str(span.inputs)]
    writes = [span for span in seen.all("append_entries") if span.outputs[0].ref.startswith("memory:af_")]
    by_episode = {inputs(span, kind="memory")[0].ref: span for span in extractions}
    assert list(by_episode) == [write.outputs[0].ref for write in stored]
    assert [len(outputs(span, "fact")) for span in extractions] == [3, 4]
    for span, write in zip(extractions, writes, strict=True):
        for fact, record in zip(outputs(span, "fact"), write.outputs, strict=True):
            assert [(v.ref, v.origin) for v in fed(write, record)] == [(fact.ref, span.origin)]
            assert record.content == fact.content

    # beyond the list: clustering, the index, background work in the trace of the call that caused it
    assert len(seen.all("clustering")) == len(seen.all("upsert_cluster")) == 2
    indexed = {v.ref for span in seen.all("cascade") for v in span.inputs}
    assert {out.ref for span in (*stored, *writes, *notes) for out in span.outputs} <= indexed
    roots = {span.trace_id for span in (*seen.all("add"), *seen.all("flush"))}
    assert {span.trace_id for span in seen.spans if span.kind != "index"} <= roots


async def test_one_round_of_agentic_retrieval(ann: Memory, recording: Recording) -> None:
    await tell(ann)
    recording.clear()
    found = await ann.search("Does Ann like tea?", method="agentic")
    seen = recorded(recording)
    (search,) = seen.named("search_memory")
    (query,) = inputs(search, "query")

    # E22: query -> both lists -> the fused list
    for purpose in ("memory_system.bm25_retrieval", "memory_system.embedding_retrieval"):
        assert {v.ref for span in seen.all(purpose) for v in inputs(span, "query")} == {query.ref}
        assert all(v.score is not None for span in seen.all(purpose) for v in inputs(span, "candidate"))
    fused = seen.one("memory_system.hybrid_retrieval")
    assert {v.ref for v in inputs(fused, "hit")} == {v.ref for v in inputs(fused, "candidate")}

    # E24, E25: fused -> reranked -> sufficiency check
    rerank, check = seen.all("memory_system.agentic_round1_bundle")
    assert (rerank.kind, check.kind) == ("rerank", "decide")
    assert [v.ref for v in inputs(check, "candidate")] == [v.ref for v in inputs(rerank, "hit")]
    assert {v.score for v in check.inputs} == {None}  # a decision has no scores
    assert [v.ref for v in check.inputs if v.role in ("query", "prompt")] == [
        query.ref,
        "prompt:everos.sufficiency_check",
    ]
    assert [ref_kind(out.ref) for out in check.outputs] == ["completion", "fact"]

    # E26: enough -> each unit, in the order of the reranker
    hits = inputs(search, "hit")
    assert [v.ref for v in hits] == [v.ref for v in inputs(rerank, "hit")]
    assert [v.score for v in hits] == [episode["score"] for episode in found["episodes"]]
    assert not seen.all("memory_system.agentic_round2_bundle")


async def test_two_rounds_of_agentic_retrieval(ann: Memory, models: EverosModels, recording: Recording) -> None:
    await tell(ann)
    recording.clear()
    models.enough = False
    await ann.search("Where does Ann live?", method="agentic")
    seen = recorded(recording)
    (search,) = seen.named("search_memory")
    _, check = seen.all("memory_system.agentic_round1_bundle")

    # E27: query, verdict, evidence, template -> raw reply -> the refined queries -> each a hybrid search
    refine = seen.one("memory_system.agentic_round2_bundle")
    verdict = outputs(check, "fact")[0]
    assert (verdict.ref, check.origin) in [(v.ref, v.origin) for v in refine.inputs]
    assert [v.ref for v in inputs(refine, "candidate")] == [v.ref for v in inputs(check, "candidate")]
    refined = outputs(refine, "fact")
    assert len(refined) == 2
    for purpose in ("memory_system.bm25_retrieval", "memory_system.embedding_retrieval"):
        asked = [(v.ref, v.origin) for span in seen.all(purpose) for v in inputs(span, "query")]
        assert {(out.ref, refine.origin) for out in refined} <= set(asked)

    # E29: both rounds -> the final list -> each unit
    final = seen.one("memory_system.agentic_final_rerank")
    assert {v.ref for v in inputs(check, "candidate")} <= {v.ref for v in inputs(final, "candidate")}
    assert [v.ref for v in inputs(search, "hit")] == [v.ref for v in inputs(final, "hit")][:3]


async def test_lexical_and_vector_retrieval(ann: Memory, recording: Recording) -> None:
    await tell(ann)
    for method, purpose in (("keyword", "bm25"), ("vector", "embedding")):  # E20, E21
        recording.clear()
        await ann.search("Where does Ann live with Rex?", method=method)
        seen = recorded(recording)
        (search,) = seen.named("search_memory")
        recall = seen.one(f"memory_system.{purpose}_retrieval")
        assert [v.ref for v in inputs(recall, "query")] == [v.ref for v in inputs(search, "query")]
        assert inputs(search, "hit")
        assert all(v.origin for v in (*inputs(recall, "candidate"), *inputs(search, "hit")))
