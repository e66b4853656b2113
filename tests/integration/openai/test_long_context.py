"""The repeated history of a conversation is its memory: identity across calls, trimming, summaries."""

from __future__ import annotations

import contextvars
from typing import Any

import openai
import pytest
from opentelemetry import baggage, context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from memtrace_otel import semconv
from memtrace_otel.attribution import attribute, find_failures
from memtrace_otel.capture import drops, feedback
from memtrace_otel.graph import EvolutionGraph, build_graph
from memtrace_otel.instrumentation.chat_history import conversations
from memtrace_otel.instrumentation.chat_history.messages import call_text, get
from memtrace_otel.model import OperationSpan, Verdict, make_origin, ref_kind
from memtrace_otel.otlp import decode_request
from tests.conftest import Recording
from tests.integration.openai.conftest import ModelServer

SYSTEM = {"role": "system", "content": "You are a helpful assistant."}


@pytest.fixture(autouse=True)
def no_conversations() -> None:
    conversations.forget()


class Chat:
    """An application that repeats its history with every question."""

    def __init__(self, client: openai.OpenAI, server: ModelServer, recording: Recording) -> None:
        self.client, self.server, self.recording = client, server, recording
        self.history: list[Any] = [SYSTEM]

    def say(self, text: str, reply: str, **options: Any) -> str:
        self.server.replies.append(reply)
        self.history.append({"role": "user", "content": text})
        with self.recording.tracer.start_as_current_span("turn"):
            answer = self.client.chat.completions.create(model="m1", messages=self.history, **options)
        said = str(answer.choices[0].message.content)
        self.history.append({"role": "assistant", "content": said})
        return said


@pytest.fixture
def chat(client: openai.OpenAI, server: ModelServer, recording: Recording) -> Chat:
    return Chat(client, server, recording)


def graph_of(recording: Recording) -> EvolutionGraph:
    return build_graph(decode_request(encode_spans(recording.spans()).SerializeToString()))


def operations(recording: Recording, purpose: str) -> list[OperationSpan]:
    spans = decode_request(encode_spans(recording.spans()).SerializeToString())
    return [span for span in spans if span.attributes.get(semconv.OP_PURPOSE) == purpose]


def answers(recording: Recording) -> list[OperationSpan]:
    spans = decode_request(encode_spans(recording.spans()).SerializeToString())
    return [span for span in spans if span.kind == "respond"]


def verdict_of(recording: Recording) -> Verdict:
    graph = graph_of(recording)
    [failure] = find_failures(graph)
    return attribute(graph, failure)


def test_one_question_writes_no_history(chat: Chat, recording: Recording) -> None:
    chat.say("My cat is called Tom.", "Nice name.")
    assert [span.name for span in recording.spans()] == ["turn", "chat m1"]


def test_a_repeated_message_is_one_variable(chat: Chat, recording: Recording) -> None:
    for turn in range(4):
        chat.say(f"Fact number {turn} is here.", f"Noted {turn}.")
    read = [{v.ref: v.origin for v in span.inputs if v.role == "history"} for span in answers(recording)]
    assert [len(refs) for refs in read] == [0, 2, 4, 6]
    assert read[1].items() <= read[2].items() <= read[3].items()
    stored = operations(recording, "memory_update")
    assert [len(span.outputs) for span in stored] == [2, 2, 2]
    assert [[v.role for v in span.inputs] for span in stored] == [["message", "answer"]] * 3
    given = [answer.origin for answer in answers(recording)]
    assert [span.inputs[1].origin for span in stored] == given[:3]


@pytest.mark.usefixtures("content_on")
def test_the_lineage_of_an_answer_leads_to_the_first_turn(chat: Chat, recording: Recording) -> None:
    chat.say("My cat is called Tom.", "Nice name.")
    chat.say("I live in Oslo.", "A fine city.")
    chat.say("What is my cat called?", "Tom.")
    graph = graph_of(recording)
    last = answers(recording)[-1]
    contents = {graph.content(node) for node in graph.slice_of_answer(last.origin) if hasattr(node, "ref")}
    assert {"My cat is called Tom.", "I live in Oslo.", "What is my cat called?"} <= contents


def test_equal_messages_of_two_turns_have_two_refs(chat: Chat, recording: Recording) -> None:
    for _ in range(3):
        chat.say("ok thanks", "You are welcome.")
    last = [v for v in answers(recording)[-1].inputs if v.role == "history"]
    assert len({v.ref for v in last}) == 4
    assert len({(v.ref, v.origin) for v in last}) == 4


def test_dropped_messages_are_trimmed(chat: Chat, recording: Recording) -> None:
    chat.say("My cat is called Tom.", "Nice name.")
    chat.say("I live in Oslo.", "A fine city.")
    del chat.history[1:3]
    chat.say("What is my cat called?", "I do not know.")
    [trim] = operations(recording, "trim")
    assert trim.kind == "delete"
    assert [v.action for v in trim.outputs] == ["DELETE", "DELETE"]
    assert [v.role for v in trim.inputs] == ["previous", "previous"]
    removed = {v.ref for v in trim.outputs}
    assert not removed & {v.ref for v in answers(recording)[-1].inputs}


@pytest.mark.usefixtures("content_on")
def test_a_trimmed_fact_is_a_deletion_failure(chat: Chat, recording: Recording) -> None:
    chat.say("My cat is called Tom.", "Nice name.")
    chat.say("I live in Oslo.", "A fine city.")
    del chat.history[1:3]
    with recording.tracer.start_as_current_span("evaluated"):
        chat.say("What is my cat called?", "I do not know.")
        assert feedback("wrong", expected="Tom", tracer=recording.tracer)
    verdict = verdict_of(recording)
    [trim] = operations(recording, "trim")
    assert (verdict.failure_type, make_origin(verdict.trace_id, verdict.span_id)) == ("deletion", trim.origin)


@pytest.mark.usefixtures("content_on")
def test_a_wrong_answer_with_the_fact_in_the_history_is_a_response_failure(chat: Chat, recording: Recording) -> None:
    chat.say("My cat is called Tom.", "Nice name.")
    with recording.tracer.start_as_current_span("evaluated"):
        chat.say("What is my cat called?", "Felix")
        assert feedback("wrong", expected="Tom", tracer=recording.tracer)
    verdict = verdict_of(recording)
    assert (verdict.failure_type, make_origin(verdict.trace_id, verdict.span_id)) == (
        "response",
        answers(recording)[-1].origin,
    )


def test_a_summary_made_by_the_model_is_linked_to_its_reply(
    chat: Chat, recording: Recording, server: ModelServer, client: openai.OpenAI
) -> None:
    chat.say("My cat is called Tom.", "Nice name.")
    chat.say("I live in Oslo.", "A fine city.")
    server.replies = ["The cat is called Tom."]
    with recording.tracer.start_as_current_span("shorten"):
        asked: list[Any] = [{"role": "user", "content": "Summarise: my cat is called Tom."}]
        made = client.chat.completions.create(model="m2", messages=asked).choices[0].message.content
        chat.history[1:3] = [{"role": "assistant", "content": f"Earlier: {made}"}]
        chat.say("What is my cat called?", "Tom.")
    [summary] = operations(recording, "summarize")
    [shortened] = recording.named("chat m2")
    assert shortened.context is not None
    assert f"answer:{shortened.context.span_id:016x}" in {v.ref for v in summary.inputs}


def test_system_prompts_separate_equal_conversations(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    ada, bob = Chat(client, server, recording), Chat(client, server, recording)
    for person, name in ((ada, "Ada"), (bob, "Bob")):
        person.history = [{"role": "system", "content": f"You help {name}."}]
    for person in (ada, bob):
        person.say("Hello", "Hi, how can I help?")
        person.say("My boat is red.", "Noted.")
    for person in (ada, bob):
        person.say("Which colour is it?", "Red.")
    scopes = [span.scope for span in answers(recording)]
    assert scopes[1] == scopes[4] != scopes[3] == scopes[5]


def test_a_tool_call_repeated_with_other_blanks_is_the_same() -> None:
    assert call_text("find", '{"query":"boat"}') == call_text("find", '{ "query": "boat" }')
    assert call_text("find", '{"query":"boat"}') != call_text("find", '{"query":"boats"}')
    assert call_text("find", "not JSON") != call_text("find", "not  JSON")


def test_an_edited_question_is_a_branch_without_deletions(chat: Chat, recording: Recording) -> None:
    chat.say("My cat is called Tom.", "Nice name.")
    chat.say("I live in Oslo.", "A fine city.")
    del chat.history[-2:]
    chat.say("I live in Bergen.", "Rainy.")
    chat.say("Where do I live?", "Bergen.")
    assert operations(recording, "trim") == []
    first, second = (answers(recording)[index] for index in (2, 3))
    refs = [{v.ref for v in span.inputs if v.role == "history"} for span in (first, second)]
    assert len(refs[0]) == 2
    assert refs[0] < refs[1]


def test_an_equal_short_reply_does_not_join_two_users(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    """Another process served the earlier turns of Bob: he continues no conversation of Ann."""
    Chat(client, server, recording).say("I am Ann, remember my PIN 4711.", "OK")
    bob = Chat(client, server, recording)
    bob.history += [{"role": "user", "content": "I am Bob, I like tea."}, {"role": "assistant", "content": "OK"}]
    contextvars.Context().run(bob.say, "Who am I?", "Bob.")
    last = answers(recording)[-1]
    assert [ref_kind(v.ref) for v in last.inputs if v.role == "history"] == ["message", "message"]
    assert operations(recording, "memory_update") == operations(recording, "summarize") == []


def test_an_equal_short_reply_joins_no_conversations_in_one_context(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    """A program that runs several dialogues in one context."""
    ann, bob = Chat(client, server, recording), Chat(client, server, recording)
    ann.say("I am Ann, remember my PIN 4711.", "OK")
    bob.history += [{"role": "user", "content": "I am Bob, I like tea."}, {"role": "assistant", "content": "OK"}]
    bob.say("Who am I?", "Bob.")
    assert operations(recording, "memory_update") == operations(recording, "summarize") == []


def test_a_conversation_continues_in_another_context(chat: Chat, recording: Recording) -> None:
    chat.say("Hello", "Hi! How can I help you?")
    contextvars.Context().run(chat.say, "My cat is called Tom.", "Nice name.")
    assert "inferred" not in answers(recording)[-1].incomplete
    assert "inferred" not in operations(recording, "memory_update")[0].incomplete


def greeted(client: openai.OpenAI, server: ModelServer, recording: Recording) -> tuple[Chat, Chat]:
    """Two users of one program with equal first turns."""
    people = Chat(client, server, recording), Chat(client, server, recording)
    for person in people:
        person.say("Hello", "Hi! How can I help you?")
    return people


def test_equal_conversations_have_unknown_origin_until_the_prompts_differ(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    ann, bob = greeted(client, server, recording)
    ann.say("My cat is called Tom.", "Nice name.")
    bob.say("My dog is called Rex.", "Good dog.")
    ann.say("What is my cat called?", "Tom.")
    bob.say("What is my dog called?", "Rex.")
    spans = answers(recording)
    assert ["unknown_origin" in span.incomplete for span in spans] == [False, False, True, True, False, False]
    assert [{v.origin for v in span.inputs} for span in spans[2:4]] == [{""}] * 2
    stored = operations(recording, "memory_update")
    assert [op.scope for op in stored] == [span.scope for span in spans[4:]] == [span.scope for span in spans[2:4]]
    assert [{v.origin for v in op.inputs} - {""} for op in stored] == [{span.origin} for span in spans[2:4]]
    assert ["unknown_origin" in op.incomplete for op in stored] == [True, True]


def assert_told_apart(recording: Recording) -> None:
    """The second call of each user stores the answer of the user's first call, and is certain."""
    spans = answers(recording)
    assert not [span for span in spans if {"inferred", "unknown_origin"} & set(span.incomplete)]
    read = [{v.origin for v in op.inputs} - {""} for op in operations(recording, "memory_update")]
    assert read == [{span.origin} for span in spans[:2]]


@pytest.mark.parametrize("key", ["session.id", "gen_ai.conversation.id", "user.id", "enduser.id"])
def test_baggage_separates_equal_conversations(
    client: openai.OpenAI, server: ModelServer, recording: Recording, key: str
) -> None:
    people = [Chat(client, server, recording) for _ in "ab"]
    for text, reply in (("Hello", "Hi! How can I help you?"), ("Any news?", "None that I know of.")):
        for name, person in enumerate(people):
            token = context.attach(baggage.set_baggage(key, f"{name}"))
            person.say(text, reply)
            context.detach(token)
    assert_told_apart(recording)


def test_an_equal_short_reply_of_two_conversations_has_unknown_origin(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    ann, bob = Chat(client, server, recording), Chat(client, server, recording)
    ann.say("I am Ann, remember my PIN 4711.", "OK")
    bob.say("I am Bob, I like tea.", "OK")
    del ann.history[1]
    ann.say("Who am I?", "I do not know.")
    last = answers(recording)[-1]
    assert "unknown_origin" in last.incomplete
    assert {v.origin for v in last.inputs} == {""}
    assert operations(recording, "memory_update") == operations(recording, "trim") == []


def test_a_message_has_the_same_name_as_question_and_in_the_history(chat: Chat, recording: Recording) -> None:
    for _ in range(3):
        chat.say("ok thanks", "You are welcome.")
    asked = [v.ref for span in answers(recording) for v in span.inputs if v.role == "query"]
    assert len(set(asked)) == 3
    said = [v.ref for span in operations(recording, "memory_update") for v in span.inputs if v.role == "message"]
    assert said == [ref.replace("query:", "message:") for ref in asked[:2]]


@pytest.mark.parametrize("stream", [False, True])
def test_tool_calls_and_their_results_are_part_of_the_history(
    client: openai.OpenAI, server: ModelServer, recording: Recording, stream: bool
) -> None:
    arguments = '{"city": "Oslo"}'
    server.replies = [{"name": "weather", "arguments": arguments}, "It rains."]
    messages: list[Any] = [SYSTEM, {"role": "user", "content": "Weather in Oslo?"}]
    with recording.tracer.start_as_current_span("turn"):
        called = client.chat.completions.create(model="m1", messages=messages, stream=stream)
        for _ in called if stream else ():
            pass
        call = {"id": "call-1", "type": "function", "function": {"name": "weather", "arguments": arguments}}
        messages.append({"role": "assistant", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": "call-1", "content": "rain, 4 degrees"})
        client.chat.completions.create(model="m1", messages=messages)
    asked, answered = answers(recording)
    assert [ref_kind(v.ref) for v in asked.outputs] == ["completion"]
    assert [ref_kind(v.ref) for v in answered.outputs] == ["answer"]
    assert len([v for v in answered.inputs if v.role == "history"]) == 2
    [stored] = operations(recording, "memory_update")
    assert len(stored.outputs) == 3  # question, call and result: the question is history, too, once tools have answered
    assert [ref_kind(v.ref) for v in stored.inputs] == ["message", "completion", "message"]
    assert [v.origin for v in stored.inputs] == ["", asked.origin, ""]
    assert len({v.ref for span in (asked, answered) for v in span.inputs if v.role == "query"}) == 1


CALL = {"name": "weather", "arguments": '{"city": "Oslo"}'}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("by_id", [False, True])
def test_a_response_with_a_text_and_a_tool_call_is_recorded_whole(
    client: openai.OpenAI, server: ModelServer, recording: Recording, stream: bool, by_id: bool
) -> None:
    server.replies = [["I shall look.", CALL], "It rains."]
    asked: list[Any] = [{"role": "user", "content": "Weather in Oslo?"}]
    reply: Any = client.responses.create(model="m1", input=asked, stream=stream)
    if stream:
        *_, last = reply
        reply = last.response
    output, id = get(reply, "output"), get(reply, "id")  # the lowest release leaves the last event's as it came
    result = {"type": "function_call_output", "call_id": get(output[1], "call_id"), "output": "rain, 4 degrees"}
    if by_id:
        client.responses.create(model="m1", input=[result], previous_response_id=id)
    else:
        client.responses.create(model="m1", input=[*asked, *output, result])
    first, second = answers(recording)
    assert sorted(ref_kind(v.ref) for v in first.outputs) == ["answer", "completion"]
    assert {v.size for v in first.outputs} == {len("I shall look."), len(call_text(**CALL))}
    [stored] = operations(recording, "memory_update")
    assert [ref_kind(v.ref) for v in stored.inputs] == ["message", "answer", "completion", "message"]
    assert [v.origin for v in stored.inputs] == ["", first.origin, first.origin, ""]
    assert len([v for v in second.inputs if v.role == "history"]) == 3
    assert len({v.ref for span in (first, second) for v in span.inputs if v.role == "query"}) == 1


def test_an_abandoned_response_stream_keeps_its_tool_call(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    server.replies = [["I shall look.", CALL]]
    with client.responses.create(model="m1", input="Weather in Oslo?", stream=True) as stream:
        for event in stream:
            if event.type == "response.function_call_arguments.delta":
                break
    [answer] = answers(recording)
    assert {v.size for v in answer.outputs} == {len("I shall look."), len(call_text(**CALL))}
    assert "truncated" in answer.incomplete


def test_the_responses_api_continues_a_reply_by_id(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    server.replies = ["Nice name.", "Tom."]
    first = client.responses.create(model="m1", input="My cat is called Tom.")
    client.responses.create(model="m1", input="What is my cat called?", previous_response_id=first.id)
    last = answers(recording)[-1]
    assert len([v for v in last.inputs if v.role == "history"]) == 2


@pytest.mark.parametrize("users", [("ana", "bob"), (None, "bob")])
def test_users_share_a_conversation_that_the_provider_holds(
    client: openai.OpenAI, server: ModelServer, recording: Recording, users: tuple[str | None, ...]
) -> None:
    server.replies = ["Nice name.", "Hello.", "Tom."]
    for user, question in zip((*users, "ana"), ("My cat is called Tom.", "Hi.", "What is it called?"), strict=True):
        named: dict[str, Any] = {"conversation": "conv-1"} | ({"user": user} if user else {})
        client.responses.create(model="m1", input=question, extra_body=named)
    assert [len([v for v in span.inputs if v.role == "history"]) for span in answers(recording)] == [0, 2, 4]


def test_a_named_conversation_is_found_by_its_name(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    server.replies = ["Hi!", "Tom."]
    options: dict[str, Any] = {"model": "m1", "metadata": {"conversation_id": "c-7"}}
    client.chat.completions.create(messages=[{"role": "user", "content": "My cat is called Tom."}], **options)
    messages: list[Any] = [
        {"role": "user", "content": "My cat is called Tom."},
        {"role": "user", "content": "What is it called?"},
    ]
    client.chat.completions.create(messages=messages, **options)
    history = [v for v in answers(recording)[-1].inputs if v.role == "history"]
    assert len(history) == 1
    assert history[0].ref.startswith("state:c-7.")


def actions(recording: Recording) -> list[str | None]:
    spans = decode_request(encode_spans(recording.spans()).SerializeToString())
    return [v.action for span in spans if span.system == "long_context" for v in span.outputs]


def test_two_users_may_give_conversations_the_same_name(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    ana, bob = Chat(client, server, recording), Chat(client, server, recording)
    named: dict[str, Any] = {"metadata": {"conversation_id": "1"}}
    for text, reply in (("I live in Lisbon.", "So you live in Lisbon."), ("I like tea.", "Tea is noted.")):
        ana.say(text, reply, user="ana", **named)
    bob.say("Hi, I am Bob.", "Hello Bob.", user="bob", **named)
    ana.say("Where do I live?", "In Lisbon.", user="ana", **named)
    bob.say("Who am I?", "Bob.", user="bob", **named)
    assert actions(recording) == ["ADD"] * 6
    *_, last_of_ana, last_of_bob = answers(recording)
    assert [len([v for v in span.inputs if v.role == "history"]) for span in (last_of_ana, last_of_bob)] == [4, 2]
    assert last_of_ana.scope != last_of_bob.scope


def test_a_conversation_that_the_provider_holds_is_not_trimmed(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    server.replies = ["Nice name.", "Tom.", "A cat."]
    for question in ("My cat is called Tom.", "What is my cat called?", "What is Tom?"):
        client.responses.create(model="m1", input=question, extra_body={"conversation": "conv_1"})
    assert operations(recording, "trim") == []
    assert [len([v for v in span.inputs if v.role == "history"]) for span in answers(recording)] == [0, 2, 4]


def test_a_restarted_named_conversation_has_new_refs(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    """Another process, or a restart, knows the name of the conversation but no messages."""
    for said in ("one", "two"):
        server.replies = ["Noted.", "Yes."]
        options: dict[str, Any] = {"model": "m1", "metadata": {"conversation_id": "c-7"}}
        messages: list[Any] = [{"role": "user", "content": f"This is {said}."}]
        client.chat.completions.create(messages=messages, **options)
        messages += [{"role": "assistant", "content": "Noted."}, {"role": "user", "content": "Really?"}]
        client.chat.completions.create(messages=messages, **options)
        conversations.forget()
    stored = [v.ref for span in operations(recording, "memory_update") for v in span.outputs]
    assert len(stored) == len(set(stored)) == 4


def test_kept_texts_are_bounded(
    client: openai.OpenAI, server: ModelServer, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations, "_CHARACTERS", 10_000)
    forgotten = drops["conversations"]
    for number in range(20):
        Chat(client, server, recording).say(f"{number} " + "x" * 2_000, "Noted.")
    assert drops["conversations"] - forgotten == 15 + 1
    assert conversations._characters <= 10_000


async def test_async_streams_continue_a_conversation(
    async_client: openai.AsyncOpenAI, server: ModelServer, recording: Recording
) -> None:
    server.replies = ["Nice name.", "Tom."]
    messages: list[Any] = [{"role": "user", "content": "My cat is called Tom."}]
    stream = await async_client.chat.completions.create(model="m1", messages=messages, stream=True)
    parts = [chunk.choices[0].delta.content or "" async for chunk in stream]
    messages += [
        {"role": "assistant", "content": "".join(parts)},
        {"role": "user", "content": "What is my cat called?"},
    ]
    await async_client.chat.completions.create(model="m1", messages=messages)
    assert len([v for v in answers(recording)[-1].inputs if v.role == "history"]) == 2
