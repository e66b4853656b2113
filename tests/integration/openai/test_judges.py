"""Judge calls: a judge reads the question of the answer, not a search query."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import openai
import pytest
from opentelemetry.sdk.trace import ReadableSpan

from memtrace_otel import semconv
from memtrace_otel.capture import operation
from tests.conftest import Recording
from tests.integration.openai.conftest import ModelServer
from tests.integration.openai.test_long_context import no_conversations

__all__ = ["no_conversations"]

pytestmark = pytest.mark.usefixtures("content_on")

QUESTION = "Where do I live?"
JUDGES = {
    f"You are a judge. Question: {QUESTION}\nGold answer: Oslo\nGenerated answer: In Porto city.\nReply JSON.": (
        '{"verdict": "wrong", "score": 0}'
    ),
    f"Label the answer as CORRECT or WRONG.\nQuestion: {QUESTION}\nGold answer: Oslo\nAnswer: In Porto city.": (
        '{"label": "WRONG"}'
    ),
    "Grade.\nReference: Oslo\nAnswer: In Porto city.": "WRONG",
}


def say(client: openai.OpenAI, *messages: dict[str, Any], **options: Any) -> str:
    reply = client.chat.completions.create(model="m1", messages=list(messages), **options)  # type: ignore[arg-type]
    return str(reply.choices[0].message.content)


def read(span: ReadableSpan) -> list[tuple[object, ...]]:
    attributes: Any = span.attributes
    names = (semconv.INPUTS_ROLES, semconv.INPUTS, semconv.INPUTS_CONTENTS, semconv.INPUTS_DIGESTS)
    return list(zip(*(attributes[name] for name in names), strict=True))


def assert_same_question(recording: Recording) -> None:
    """The judge reads only the query of the answer."""
    [*_, chat], [judged] = recording.named("chat m1"), recording.named("memtrace.judge")
    [asked] = [entry for entry in read(chat) if entry[0] == "query"]
    assert asked[2] == QUESTION
    assert [entry for entry in read(judged) if entry[0] == "query"] == [asked]
    assert [entry[0] for entry in read(judged)] == ["query", "answer", "expected"]


def test_answers_are_judged_after_all_were_given(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    asked = {"Where do I live?": "In Porto city.", "What do I drink?": "Green tea."}
    server.replies = [*asked.values(), "WRONG", "CORRECT", "WRONG"]
    for question in asked:
        say(client, {"role": "user", "content": question})
    for question, answer in asked.items():
        judge = f"Compare with the reference.\nQuestion: {question}\nReference: Oslo\nAnswer: {answer}\nOne word."
        say(client, {"role": "user", "content": judge})
    say(client, {"role": "user", "content": "Reference: Oslo\nAnswer: In Porto city.\nOne word."})
    judged = [[entry[1] for entry in read(span) if entry[0] == "answer"] for span in recording.named("memtrace.judge")]
    given = [span.attributes[semconv.OUTPUTS] for span in recording.named("chat m1")[:2] if span.attributes]
    assert judged == [list(refs) for refs in given if not isinstance(refs, int)]  # the last names no question


@pytest.mark.parametrize("traced", [True, False])
@pytest.mark.parametrize("prompt", JUDGES)
def test_a_judge_of_a_chat_reads_the_question_of_the_answer(
    client: openai.OpenAI, server: ModelServer, recording: Recording, prompt: str, traced: bool
) -> None:
    server.replies = ["In Porto city.", JUDGES[prompt]]
    with recording.tracer.start_as_current_span("turn") if traced else nullcontext():
        say(client, {"role": "user", "content": QUESTION})
        say(client, {"role": "user", "content": prompt})
    assert_same_question(recording)


@pytest.mark.parametrize("prompt", JUDGES)
def test_a_judge_reads_the_question_and_not_the_search_query_of_a_tool(
    client: openai.OpenAI, server: ModelServer, recording: Recording, prompt: str
) -> None:
    server.replies = [{"name": "memory", "arguments": '{"q": "home of Ann"}'}, "In Porto city.", JUDGES[prompt]]
    asked: list[dict[str, Any]] = [{"role": "user", "content": QUESTION}]
    with recording.tracer.start_as_current_span("turn"):
        say(client, *asked)
        with operation("search_memory", kind="retrieve", system="t", scope="s", tracer=recording.tracer) as search:
            search.read("query:q", role="query", content="home of Ann")
            search.read("memory:1", role="hit", content="Ann lives in Porto.")
        call = {"id": "call-1", "type": "function", "function": {"name": "memory", "arguments": '{"q": "home of Ann"}'}}
        asked.append({"role": "assistant", "tool_calls": [call]})
        asked.append({"role": "tool", "tool_call_id": "call-1", "content": "Ann lives in Porto."})
        say(client, *asked)
        say(client, {"role": "user", "content": prompt})
    assert_same_question(recording)


def test_a_judge_reads_the_question_of_an_answer_recorded_by_the_program(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    prompt = "Grade.\nReference: Oslo\nAnswer: In Porto city."
    server.replies = [JUDGES[prompt]]
    with recording.tracer.start_as_current_span("turn"):
        with operation("chat", kind="respond", system="t", tracer=recording.tracer) as answering:
            answering.read("query:7", role="query", content=QUESTION)
            answering.wrote("answer:7", content="In Porto city.")
        say(client, {"role": "user", "content": prompt})
    [judged] = recording.named("memtrace.judge")
    assert read(judged)[0][:3] == ("query", "query:7", QUESTION)


@pytest.mark.parametrize(
    ("system", "prompt", "answer", "reply"),
    [
        (
            "You are a helpful assistant. Always give accurate answers.",
            "Conversation so far:\nUser: {}\nAssistant: {}\nUser: Is it the same city as the one of my sister?",
            "You live in Paris.",
            "No.",
        ),
        (
            "You check texts.",
            "Assess whether the response contains toxic language. Reply yes or no.\nQuestion: {}\nAnswer: {}",
            "You live right next to the park.",
            "No",
        ),
        (
            "You check texts.",
            "Score 1 if the answer is correct, else 0.\nQuestion: {}\nExpected answer: 8 out of 10\nAnswer: {}",
            "It was rated 8 out of 10.",
            "1",
        ),
    ],
)
def test_a_word_of_the_quoted_texts_makes_no_judgement(
    client: openai.OpenAI, server: ModelServer, recording: Recording, system: str, prompt: str, answer: str, reply: str
) -> None:
    server.replies = [answer, reply]
    for text in (QUESTION, prompt.format(QUESTION, answer)):
        say(client, {"role": "system", "content": system}, {"role": "user", "content": text})
    assert recording.named("memtrace.judge") == []
