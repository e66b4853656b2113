"""Messages without ids: equal texts of two calls have two refs, and all steps of one call read the same ref."""

from __future__ import annotations

from typing import Any

import pytest

from memtrace_otel.graph import VersionKey
from memtrace_otel.model import ref_kind
from tests.conftest import Recording
from tests.integration.mem0.conftest import IS_V1, Program, Seen, ids, seen
from tests.integration.mem0.test_graph import graph_of
from tests.integration.model_stub import ModelStub

pytestmark = pytest.mark.usefixtures("instrumented")

YES = [{"role": "user", "content": "Yes."}]


def said(text: str) -> dict[str, Any]:
    """The reply of an extraction with one fact, in the format of the release."""
    return {"facts": [text]} if IS_V1 else {"memory": [{"text": text}]}


def messages_of(recording: Recording, span: Seen) -> set[str]:
    """The messages among the ancestors of the context of a search."""
    context = VersionKey(f"context:{span.origin[33:]}", span.origin)
    ancestors = graph_of(recording).ancestors(context)
    return {node.ref for node in ancestors if isinstance(node, VersionKey) and ref_kind(node.ref) == "message"}


def given(span: Seen) -> list[str]:
    return [item["ref"] for item in span.inputs("message")]


async def test_equal_messages_of_two_calls_have_two_refs(
    program: Program, recording: Recording, model: ModelStub
) -> None:
    model.script.append(said("Ann drinks coffee"))
    first = ids(await program.call("add", YES, user_id="ann", run_id="one"))
    model.script.append(said("Ann owns bicycles"))
    second = ids(await program.call("add", YES, user_id="ann", run_id="two"))
    assert (list(first), list(second)) == (["Ann drinks coffee"], ["Ann owns bicycles"])

    coffee, bicycles = [given(span) for span in seen(recording, "upsert_memory")]
    assert len(coffee) == len(bicycles) == 1
    assert coffee != bicycles
    for index, (record, message) in enumerate(((first, coffee), (second, bicycles))):
        await program.call("get", next(iter(record.values())))
        assert messages_of(recording, seen(recording, "search_memory")[index]) == set(message)


async def test_every_step_of_a_call_reads_the_same_message(
    program: Program, recording: Recording, model: ModelStub
) -> None:
    model.script.append(said("Ann drinks coffee"))
    await program.call("add", YES, user_id="ann")
    spans = seen(recording)
    read = {item["ref"] for span in spans for item in span.inputs() if item["ref"].startswith("message:")}
    assert read == set(given(spans[0]))
    assert len([span for span in spans if given(span)]) >= 3  # the call, its extraction, the call of the model


async def test_equal_messages_of_one_call_have_two_refs(program: Program, recording: Recording) -> None:
    conversation = [*YES, {"role": "assistant", "content": "And tea?"}, *YES]
    added = await program.call("add", conversation, user_id="ann", infer=False)
    (create, *_) = seen(recording, "create_memory")
    assert len(set(given(create))) == 3
    sources = [[given(create)[place] for place in item["sources"]] for item in create.outputs("memory")]
    assert [len(fed_by) for fed_by in sources] == [1, 1, 1]
    assert len({fed_by[0] for fed_by in sources}) == 3
    for number, item in enumerate(added["results"]):
        await program.call("get", item["id"])
        assert messages_of(recording, seen(recording, "search_memory")[number]) == set(sources[number])


async def test_a_fact_equal_to_its_message_is_embedded_as_the_fact(
    program: Program, recording: Recording, model: ModelStub
) -> None:
    model.script.append(said("Ann drinks coffee"))
    await program.call("add", "Ann drinks coffee", user_id="ann")
    (extract,) = seen(recording, "memtrace.extract")
    after = [span for span in seen(recording, "memtrace.index") if span.span.start_time > extract.span.start_time]
    embedded = [item["ref"] for span in after for item in span.inputs()]
    assert set(embedded) == {item["ref"] for item in extract.outputs("fact")}


async def test_earlier_messages_keep_their_refs(program: Program, recording: Recording, model: ModelStub) -> None:
    """2.x shows the texts of the last ten messages to an extraction."""
    if IS_V1:
        return
    for fact in ("Ann drinks coffee", "Ann owns bicycles", "Ann likes rain"):
        model.script.append(said(fact))
        await program.call("add", f"{fact}, I think.", user_id="ann")
    told = [given(span)[0] for span in seen(recording, "upsert_memory")]
    shown = [[item["ref"] for item in span.inputs("history")] for span in seen(recording, "memtrace.extract")]
    assert shown == [[], told[:1], told[:2]]


async def test_earlier_messages_of_another_process_have_refs_of_their_own(
    program: Program, recording: Recording, model: ModelStub
) -> None:
    """The text and time of a row that another process saved give the ref, which is the same in each call."""
    if IS_V1:
        return
    program.memory.db.save_messages(YES, "user_id=ann")  # outside any call: the instrumentor does not see the message
    for fact in ("Ann drinks coffee", "Ann owns bicycles"):
        model.script.append(said(fact))
        await program.call("add", f"{fact}, I think.", user_id="ann")
    first, second = [given(span)[0] for span in seen(recording, "upsert_memory")]
    shown = [[item["ref"] for item in span.inputs("history")] for span in seen(recording, "memtrace.extract")]
    (other,) = shown[0]
    assert other not in (first, second)
    assert shown[1] == [other, first]
