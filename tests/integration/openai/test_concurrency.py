"""Concurrent and repeated calls that continue one reply: no call reads the messages of another branch."""

from __future__ import annotations

import contextvars
from typing import Any

import openai
import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from memtrace_otel.graph import build_graph
from memtrace_otel.instrumentation.chat_history import conversations
from memtrace_otel.instrumentation.chat_history.messages import get
from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import decode_request
from tests.conftest import Recording
from tests.integration.openai.conftest import ModelServer

pytestmark = pytest.mark.usefixtures("content_on")


@pytest.fixture(autouse=True)
def no_conversations() -> None:
    conversations.forget()


def spans_of(recording: Recording) -> list[OperationSpan]:
    return decode_request(encode_spans(recording.spans()).SerializeToString())


def answers(recording: Recording) -> list[OperationSpan]:
    """Model calls in the order in which they were made."""
    return sorted((span for span in spans_of(recording) if span.kind == "respond"), key=lambda span: span.start)


def behind(recording: Recording, answer: OperationSpan) -> set[str]:
    """Origins of the model calls behind an answer."""
    slice = build_graph(spans_of(recording)).slice_of_answer(answer.origin)
    replies = {node for node in slice if getattr(node, "ref", "").startswith(("answer:", "completion:"))}
    return {node.origin for node in replies} - {answer.origin}


def added(recording: Recording) -> list[str]:
    return [v.ref for span in spans_of(recording) for v in span.outputs if v.action == "ADD"]


def said(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}


def test_two_branches_of_one_response_at_once(client: openai.OpenAI, server: ModelServer, recording: Recording) -> None:
    server.replies = ["Nice city.", "One.", "Two.", "More of one.", "More of two."]
    first = client.responses.create(model="m1", input="I live in Paris.")
    streams = [
        client.responses.create(model="m1", input=asked, previous_response_id=first.id, stream=True)
        for asked in ("Branch one?", "Branch two?")
    ]
    for asked, stream in zip(("More?", "And more?"), streams, strict=True):
        *_, last = stream
        reply = get(last, "response")  # the lowest release leaves the last event's as it came
        client.responses.create(model="m1", input=asked, previous_response_id=get(reply, "id"))
    root, one, two, more_of_one, more_of_two = answers(recording)
    assert behind(recording, more_of_one) == {root.origin, one.origin}
    assert behind(recording, more_of_two) == {root.origin, two.origin}
    assert len(added(recording)) == len(set(added(recording))) == 8


@pytest.mark.parametrize("stream", [False, True])
def test_a_conversation_may_continue_from_each_choice(
    client: openai.OpenAI, server: ModelServer, recording: Recording, stream: bool
) -> None:
    names = ("Tom,Thomas,Tommy then", "Felix")
    server.replies = [names, "Yes.", "Yes."]
    asked: list[Any] = [said("user", "A name for my cat?")]
    with recording.tracer.start_as_current_span("turn"):
        made: Any = client.chat.completions.create(model="m1", messages=asked, n=2, stream=stream)
        list(made if stream else ())
        for name in names:
            repeated = said("assistant", name.replace(" ", "") if stream else name)
            client.chat.completions.create(model="m1", messages=[*asked, repeated, said("user", "Sure?")])
    root, *later = answers(recording)
    assert [v.size for v in root.outputs] == [len(names[0]) - stream, len(names[1])]
    read = [v.ref for span in spans_of(recording) for v in span.inputs if v.origin == root.origin]
    assert sorted(read) == sorted(v.ref for v in root.outputs)
    assert [behind(recording, span) for span in later] == [{root.origin}] * 2
    assert len(added(recording)) == len(set(added(recording))) == 4


class Person:
    """A user with concurrent turns, each in its own context, as in a web server."""

    def __init__(self, client: openai.OpenAI, **options: Any) -> None:
        self.client, self.options = client, options
        self.history: list[Any] = []
        self.turn = contextvars.Context()

    def ask(self, text: str) -> None:
        self.history.append(said("user", text))
        self.turn, create = contextvars.Context(), self.client.chat.completions.create
        self.stream = self.turn.run(create, model="m1", messages=self.history, stream=True, **self.options)

    def hear(self) -> None:
        chunks: Any = self.turn.run(list, self.stream)
        self.history.append(said("assistant", "".join(chunk.choices[0].delta.content for chunk in chunks)))


def overlap(people: list[Person], server: ModelServer) -> None:
    questions = ["Hello", "Hello"], ["How are you?", "How are you?"], ["I am Ann.", "I am Bob."], ["Who am I?"] * 2
    replies = ["Hi! How can I help?"] * 2, ["Fine, thanks."] * 2, ["Noted, Ann.", "Noted, Bob."], ["Ann.", "Bob."]
    for asked, server.replies in zip(questions, map(list, replies), strict=True):
        for person, question in zip(people, asked, strict=True):
            person.ask(question)
        for person in reversed(people):
            person.hear()


@pytest.mark.parametrize("told_by", ["user", "safety_identifier"])
def test_user_names_separate_equal_concurrent_conversations(
    client: openai.OpenAI, server: ModelServer, recording: Recording, told_by: str
) -> None:
    people = [Person(client, extra_body={told_by: name}) for name in ("ann", "bob")]
    overlap(people, server)
    spans = answers(recording)
    assert behind(recording, spans[6]) == {span.origin for span in spans[0:6:2]}
    assert behind(recording, spans[7]) == {span.origin for span in spans[1:6:2]}
    assert not [span for span in spans if "inferred" in span.incomplete]


def test_equal_concurrent_conversations_have_unknown_origin_until_the_prompts_differ(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    overlap([Person(client), Person(client)], server)
    spans = answers(recording)
    assert ["unknown_origin" in span.incomplete for span in spans] == [False] * 2 + [True] * 4 + [False] * 2
    assert not [span for span in spans if "inferred" in span.incomplete]
    assert [behind(recording, span) for span in spans] == [set()] * 6 + [{spans[4].origin}, {spans[5].origin}]


def test_a_retried_model_call_changes_the_history_once(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    server.replies = ["Nice cat.", "Nice dog.", 503, "Hm.", "Bye."]
    messages: list[Any] = []
    for text in ("I have a cat.", "I have a dog.", "What now?", "The end."):
        messages.append(said("user", text))
        if text == "What now?":
            del messages[:2]
            with pytest.raises(openai.InternalServerError):
                client.chat.completions.create(model="m1", messages=messages)
        reply = client.chat.completions.create(model="m1", messages=messages)
        messages.append(said("assistant", str(reply.choices[0].message.content)))
    assert len(added(recording)) == len(set(added(recording))) == 6
    assert len([v for span in spans_of(recording) for v in span.outputs if v.action == "DELETE"]) == 2
    first, second, failed, *_ = answers(recording)
    assert behind(recording, failed) == {second.origin}
    assert [v.origin for v in failed.inputs if v.ref.startswith("answer:")] == [second.origin]
    assert first.origin not in behind(recording, failed)
