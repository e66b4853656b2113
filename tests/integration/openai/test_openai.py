from __future__ import annotations

from contextlib import nullcontext

import openai
import pytest
import wrapt
from openai._base_client import AsyncAPIClient, SyncAPIClient
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from memtrace_otel import semconv
from memtrace_otel.capture import feedback, operation, scope_id
from memtrace_otel.capture.finalizers import report_waiting
from memtrace_otel.instrumentation.openai import OpenAIInstrumentor
from memtrace_otel.model import make_origin
from tests.conftest import Recording
from tests.integration.openai.conftest import ModelServer

SCOPE = scope_id("store", user="ana")
TEA, PARIS = "Ana likes green tea", "Ana lives in Paris"


def values(span: ReadableSpan, name: str) -> list[object]:
    return list((span.attributes or {}).get(name, ()))  # type: ignore[arg-type]


def inputs(span: ReadableSpan) -> list[tuple[object, object, object]]:
    rows = (values(span, name) for name in (semconv.INPUTS, semconv.INPUTS_ROLES, semconv.INPUTS_ORIGINS))
    return list(zip(*rows, strict=True))


def origin(span: ReadableSpan) -> str:
    assert span.context is not None
    return make_origin(f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}")


def remember(recording: Recording) -> None:
    """Two records, both found by the search."""
    for ref, text in (("memory:tea", TEA), ("memory:paris", PARIS)):
        with operation("create_memory", kind="create", system="t", scope=SCOPE, tracer=recording.tracer) as op:
            op.wrote(ref, action="ADD", content=text)


def search(recording: Recording) -> None:
    with operation("search_memory", kind="retrieve", system="t", scope=SCOPE, tracer=recording.tracer) as op:
        op.read("query:q", role="query", content="What does Ana drink?")
        op.read("memory:tea", role="hit", content=TEA, score=0.9)
        op.read("memory:paris", role="hit", content=PARIS, score=0.1)


def ask(client: openai.OpenAI, memories: str = TEA) -> str:
    messages = [
        {"role": "system", "content": f"Answer from these memories:\n- {memories}"},
        {"role": "user", "content": "What does Ana drink?"},
    ]
    reply = client.chat.completions.create(model="m1", messages=messages)  # type: ignore[arg-type]
    return str(reply.choices[0].message.content)


def judge(client: openai.OpenAI, answer: str) -> None:
    prompt = f"Question: What does Ana drink?\nExpected answer: Green tea\nGiven answer: {answer}\nReply in JSON."
    client.chat.completions.create(model="m1", messages=[{"role": "user", "content": prompt}])


def test_an_answer_reads_the_memory_versions_that_are_in_its_prompt(
    recording: Recording, server: ModelServer, client: openai.OpenAI
) -> None:
    server.replies = ["Green tea."]
    remember(recording)
    with recording.tracer.start_as_current_span("turn"):
        search(recording)
        assert ask(client) == "Green tea."
    [chat], [found] = recording.named("chat m1"), recording.named("search_memory")
    written = recording.named("create_memory")[0]
    assert chat.kind is SpanKind.CLIENT
    attributes = dict(chat.attributes or {})
    assert attributes[semconv.OP_KIND] == "respond"
    assert attributes[semconv.GEN_AI_OPERATION_NAME] == "chat"
    assert attributes[semconv.GEN_AI_USAGE_INPUT_TOKENS] == 7
    assert attributes[semconv.SCOPE] == SCOPE
    assert found.context is not None
    assert inputs(chat)[:3] == [
        ("query:q", "query", ""),
        (f"context:{found.context.span_id:016x}", "context", origin(found)),
        ("memory:tea", "context", origin(written)),
    ]
    assert "memory:paris" not in values(chat, semconv.INPUTS)
    assert "inferred" not in values(chat, semconv.INCOMPLETE)  # nothing else has the words of the prompt
    assert chat.context is not None
    assert values(chat, semconv.OUTPUTS) == [f"answer:{chat.context.span_id:016x}"]
    assert "Green" not in str(chat.to_json())


@pytest.mark.parametrize(
    ("message", "asked"),
    [
        ("What does Ana drink in Paris, and why?", "What does Ana drink in Paris, and why?"),
        (f"Notes:\n{TEA}\n\nQuestion: What does Ana drink?", "What does Ana drink?"),
        ("Notes:\n(none)\n\nQuestion: What does Ana drink?", "What does Ana drink?"),
        (f"She told us: {TEA} So what does Ana drink?", "Ana drink"),
    ],
)
def test_the_query_of_an_answer_is_the_question_of_the_user(
    recording: Recording, server: ModelServer, client: openai.OpenAI, content_on: None, message: str, asked: str
) -> None:
    """A search may use other words; a message may hold notes around the question."""
    searched = "Ana drink" if asked != "What does Ana drink?" else asked
    server.replies = ["Green tea."]
    remember(recording)
    with recording.tracer.start_as_current_span("turn"):
        with operation("search_memory", kind="retrieve", system="t", scope=SCOPE, tracer=recording.tracer) as op:
            op.read("query:q", role="query", content=searched)
            op.read("memory:tea", role="hit", content=TEA)
        system = {"role": "system", "content": f"Memories:\n- {TEA}"}
        client.chat.completions.create(model="m1", messages=[system, {"role": "user", "content": message}])  # type: ignore[list-item]
    [chat] = recording.named("chat m1")
    queries = [
        text
        for (_, role, _), text in zip(inputs(chat), values(chat, semconv.INPUTS_CONTENTS), strict=True)
        if role == "query"
    ]
    assert queries == [asked]


def test_an_answer_after_an_empty_search_reads_the_empty_result(
    recording: Recording, server: ModelServer, client: openai.OpenAI
) -> None:
    server.replies = ["I do not know."]
    with recording.tracer.start_as_current_span("turn"):
        with operation("search_memory", kind="retrieve", system="t", scope=SCOPE, tracer=recording.tracer) as op:
            op.read("query:q", role="query", content="What does Ana drink?")
        ask(client, memories="(none)")
    [chat], [found] = recording.named("chat m1"), recording.named("search_memory")
    assert [at for _, role, at in inputs(chat) if role == "context"] == [origin(found)]


def test_a_model_call_that_judges_an_answer_is_a_judge_span(
    recording: Recording, server: ModelServer, client: openai.OpenAI
) -> None:
    server.replies = ["Coffee", 'Sure: {"label": "WRONG", "reason": "she drinks tea"}']
    with recording.tracer.start_as_current_span("turn"):
        search(recording)
        judge(client, ask(client))
    [chat], [judged] = recording.named("chat m1"), recording.named("memtrace.judge")
    attributes = dict(judged.attributes or {})
    assert attributes[semconv.OP_KIND] == "judge"
    assert attributes[semconv.EVALUATION_LABEL] == "wrong"
    assert semconv.GEN_AI_OPERATION_NAME not in attributes
    assert semconv.EVALUATION_EXPLANATION not in attributes  # content is off
    assert [(role, at) for _, role, at in inputs(judged)] == [("query", ""), ("answer", origin(chat)), ("expected", "")]
    assert [(link.attributes or {})[semconv.LINK_TYPE] for link in judged.links] == ["evaluates"]


@pytest.mark.usefixtures("content_on")
def test_the_expected_answer_is_read_from_the_judges_prompt(
    recording: Recording, server: ModelServer, client: openai.OpenAI
) -> None:
    server.replies = ["Coffee", "INCORRECT"]
    with recording.tracer.start_as_current_span("turn"):
        search(recording)
        judge(client, ask(client))
    [judged] = recording.named("memtrace.judge")
    assert values(judged, semconv.INPUTS_CONTENTS)[-1] == "Green tea"


def test_search_answer_and_judge_are_joined_outside_spans(
    recording: Recording, server: ModelServer, client: openai.OpenAI
) -> None:
    server.replies = ["Coffee", '{"correct": false}']
    remember(recording)
    search(recording)
    judge(client, ask(client))
    [chat], [judged] = recording.named("chat m1"), recording.named("memtrace.judge")
    assert values(chat, semconv.INPUTS)[2] == "memory:tea"
    assert judged.parent is not None
    assert chat.context is not None
    assert (judged.parent.trace_id, judged.parent.span_id) == (chat.context.trace_id, chat.context.span_id)


def test_a_second_answer_is_not_a_judgement(recording: Recording, server: ModelServer, client: openai.OpenAI) -> None:
    server.replies = ["Tea", '{"action": "update", "text": "Tea"}']
    with recording.tracer.start_as_current_span("turn"):
        ask(client)
        client.chat.completions.create(model="m1", messages=[{"role": "user", "content": "You said Tea. Update?"}])
    kinds = [(s.attributes or {}).get(semconv.OP_KIND) for s in recording.spans() if s.name != "turn"]
    assert kinds == ["respond", "respond"]


def test_model_calls_inside_a_memory_operation_get_no_spans(
    recording: Recording, server: ModelServer, client: openai.OpenAI
) -> None:
    server.replies = ["facts"]
    with operation(kind="extract", system="t", tracer=recording.tracer):
        ask(client)
    assert [span.name for span in recording.spans()] == ["memtrace.extract"]


def test_streams_pass_through_and_their_text_is_the_answer(
    recording: Recording, server: ModelServer, client: openai.OpenAI
) -> None:
    server.replies = ["one two three", "one two three"]
    messages = [{"role": "user", "content": "count"}]
    with client.chat.completions.create(model="m1", messages=messages, stream=True) as stream:  # type: ignore[call-overload]
        assert isinstance(stream, openai.Stream)
        assert [chunk.choices[0].delta.content for chunk in stream] == ["one", "two", "three"]
    for chunk in client.chat.completions.create(model="m1", messages=messages, stream=True):  # type: ignore[call-overload]
        assert chunk.choices[0].delta.content == "one"
        break
    del chunk
    report_waiting()
    whole, broken_off = recording.named("chat m1")
    assert values(whole, semconv.OUTPUTS_SIZES) == [len("onetwothree")]
    assert values(broken_off, semconv.OUTPUTS_SIZES) == [len("one")]
    assert "truncated" in values(broken_off, semconv.INCOMPLETE)
    assert "truncated" not in values(whole, semconv.INCOMPLETE)


def test_a_raw_response_is_read_and_handed_out(
    recording: Recording, server: ModelServer, client: openai.OpenAI
) -> None:
    server.replies = ["Green tea.", "one two"]
    messages = [{"role": "user", "content": "What does Ana drink?"}]
    raw = client.chat.completions.with_raw_response.create(model="m1", messages=messages)  # type: ignore[arg-type]
    assert raw.parse().choices[0].message.content == "Green tea."
    streamed = client.chat.completions.with_raw_response.create(model="m1", messages=messages, stream=True)  # type: ignore[call-overload]
    assert streamed.parse() is streamed.parse()
    assert [chunk.choices[0].delta.content for chunk in streamed.parse()] == ["one", "two"]
    assert streamed.status_code == 200
    first, second = recording.named("chat m1")
    assert values(first, semconv.OUTPUTS_SIZES) == [len("Green tea.")]
    assert values(second, semconv.OUTPUTS_SIZES) == [len("onetwo")]
    assert not {"unparsed", "truncated"} & set(values(second, semconv.INCOMPLETE))


async def test_an_unparsed_async_raw_stream_is_recorded_at_disposal(
    recording: Recording, server: ModelServer, async_client: openai.AsyncOpenAI
) -> None:
    server.replies = ["one two", "one two"]
    messages = [{"role": "user", "content": "count"}]
    raw = async_client.chat.completions.with_raw_response
    streamed = await raw.create(model="m1", messages=messages, stream=True)  # type: ignore[call-overload]
    assert [chunk.choices[0].delta.content async for chunk in streamed.parse()] == ["one", "two"]
    await raw.create(model="m1", messages=messages, stream=True)  # type: ignore[call-overload]
    report_waiting()
    read, left = recording.named("chat m1")
    assert values(read, semconv.OUTPUTS_SIZES) == [len("onetwo")]
    assert "truncated" in values(left, semconv.INCOMPLETE)


def test_the_history_of_a_conversation_is_not_judged(
    recording: Recording, server: ModelServer, client: openai.OpenAI
) -> None:
    server.replies = ["Sydney", "Wrong. I should have said Canberra."]
    asked: list[object] = [{"role": "user", "content": "What is the capital of Australia?"}]
    later = [{"role": "assistant", "content": "Sydney"}, {"role": "user", "content": "Are you sure?"}]
    with recording.tracer.start_as_current_span("turn"):
        client.chat.completions.create(model="m1", messages=asked)  # type: ignore[arg-type]
        client.chat.completions.create(model="m1", messages=[*asked, *later])  # type: ignore[list-item]
    assert len(recording.named("chat m1")) == 2
    assert recording.named("memtrace.judge") == []


def test_an_operation_of_the_program_around_a_turn_keeps_the_answers(
    recording: Recording, server: ModelServer, client: openai.OpenAI
) -> None:
    server.replies = ["Green tea."]
    with operation(kind="other", system="t", tracer=recording.tracer):
        ask(client)
    assert len(recording.named("chat m1")) == 1


async def test_async_calls_and_streams(
    recording: Recording, server: ModelServer, async_client: openai.AsyncOpenAI
) -> None:
    server.replies = ["hello", "a b"]
    messages = [{"role": "user", "content": "hi"}]
    reply = await async_client.chat.completions.create(model="m1", messages=messages)  # type: ignore[call-overload]
    assert reply.choices[0].message.content == "hello"
    stream = await async_client.chat.completions.create(model="m1", messages=messages, stream=True)  # type: ignore[call-overload]
    assert [chunk.choices[0].delta.content async for chunk in stream] == ["a", "b"]
    assert [values(s, semconv.OUTPUTS_SIZES) for s in recording.named("chat m1")] == [[5], [2]]


def test_the_responses_api(recording: Recording, server: ModelServer, client: openai.OpenAI) -> None:
    server.replies = ["Green tea."]
    with recording.tracer.start_as_current_span("turn"):
        search(recording)
        reply = client.responses.create(model="m1", instructions=f"Memories: {TEA}", input="What does Ana drink?")
    assert reply.output_text == "Green tea."
    [chat] = recording.named("chat m1")
    assert [role for _, role, _ in inputs(chat)] == ["query", "context", "context", "prompt"]
    assert values(chat, semconv.OUTPUTS_SIZES) == [len("Green tea.")]


def test_an_error_of_the_model_passes_unchanged_and_is_recorded(
    recording: Recording, server: ModelServer, client: openai.OpenAI
) -> None:
    server.replies = [503]
    with pytest.raises(openai.InternalServerError):
        ask(client)
    [chat] = recording.named("chat m1")
    assert chat.status.status_code is StatusCode.ERROR
    assert (chat.attributes or {})[semconv.ERROR_TYPE] == "InternalServerError"
    assert [role for _, role, _ in inputs(chat)] == ["query", "prompt"]


def test_a_failing_step_leaves_the_call_unchanged(
    recording: Recording, server: ModelServer, client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.replies = ["Green tea."]
    monkeypatch.setattr("memtrace_otel.instrumentation.openai.ModelCall.finish", lambda *_: 1 / 0)
    assert ask(client) == "Green tea."


LISBON = ("Where does Ann live?", "Ann lives in Lisbon since 2020.")
CHAT = f"User: {LISBON[0]}\nAssistant: {LISBON[1]}\n"


@pytest.mark.parametrize(
    ("prompt", "reply"),
    [
        (f"{CHAT}User: Thanks!\n\nDoes the last message need a search in the memory? Say true or false.", "false"),
        (f"{CHAT}User: True or false: Ann likes coffee?\nAssistant:", "False. She likes tea."),
        (
            f"I asked: {LISBON[0]}\nYou said: {LISBON[1]}\nAre you sure? Summarise it for my notes.",
            "Right! Lisbon it is.",
        ),
        (f"Decide whether the conversation is over. Reply True or False.\n\n{CHAT}", "False"),
        (f"Answer True if it is a booking, False otherwise.\n\n{CHAT}", "False"),
        (f"Answer with True or False only: is more information needed?\n{CHAT}", "False"),
        (f"Return True if the answer cites a source, False otherwise.\n{CHAT}", "False"),
        (f"Decide if a web search is required to answer correctly.\n{CHAT}User: And Bob?", "True"),
        (f"Is this exchange unsafe? Reply True or False.\n{CHAT}", "false"),
        (f'{CHAT}User: And Bob?\nIs this a new topic? Say {{"result": "negative"}} if not.', '{"result": "negative"}'),
    ],
)
@pytest.mark.parametrize("traced", [True, False])
def test_a_chat_written_as_one_text_is_not_a_judge_call(
    recording: Recording, server: ModelServer, client: openai.OpenAI, prompt: str, reply: str, traced: bool
) -> None:
    server.replies = [LISBON[1], reply]
    with recording.tracer.start_as_current_span("turn") if traced else nullcontext():
        for text in (LISBON[0], prompt):
            client.chat.completions.create(model="m1", messages=[{"role": "user", "content": text}])
    assert recording.named("memtrace.judge") == []
    assert len(recording.named("chat m1")) == 2


@pytest.mark.parametrize(
    ("prompt", "reply"),
    [
        ("Question: {}\nAnswer: {}\nRate the answer from 0 to 1 as JSON.", '{"score": 0.2, "reason": "old"}'),
        ("You are a strict grader.\nQ: {}\nA: {}\n", "FAIL"),
        ("{}\n{}\nIs this answer right or wrong?", "Wrong."),
        ("Question: {}\nResponse: {}\nIs the response relevant to the question?", "not relevant"),
        ("{}\nAssistant: {}\n\nWas the assistant's answer correct? Reply true or false.", "false"),
        ("Evaluate the following. Question: {} Reply: {}", "Incorrect: it is old."),
        ("Frage: {}\nAntwort: {}\nBewerte die Antwort.", '{"verdict": "wrong"}'),
    ],
)
def test_a_judge_may_lack_an_expected_answer(
    recording: Recording, server: ModelServer, client: openai.OpenAI, prompt: str, reply: str
) -> None:
    server.replies = [LISBON[1], reply]
    with recording.tracer.start_as_current_span("turn"):
        for text in (LISBON[0], prompt.format(*LISBON)):
            client.chat.completions.create(model="m1", messages=[{"role": "user", "content": text}])
    [judged] = recording.named("memtrace.judge")
    assert "answer" in values(judged, semconv.INPUTS_ROLES)


@pytest.mark.usefixtures("content_on")
def test_feedback_writes_the_judge_span_of_the_newest_answer(
    recording: Recording, server: ModelServer, client: openai.OpenAI
) -> None:
    assert feedback("fail") is False  # nothing was answered yet
    server.replies = ["Coffee"]
    with recording.tracer.start_as_current_span("turn"):
        ask(client)
        assert feedback("fail", expected="Green tea", score=0.0, tracer=recording.tracer) is True
    [chat], [judged] = recording.named("chat m1"), recording.named("memtrace.judge")
    assert inputs(judged)[0][1:] == ("answer", origin(chat))
    assert (judged.attributes or {})[semconv.EVALUATION_LABEL] == "fail"
    assert values(judged, semconv.INPUTS_CONTENTS) == ["", "Green tea"]


@pytest.mark.parametrize(("memories", "unknown"), [(TEA, True), (PARIS, False)])
def test_an_answer_from_a_record_without_a_writer_has_unknown_origin(
    client: openai.OpenAI, server: ModelServer, recording: Recording, memories: str, unknown: bool
) -> None:
    """Not for an answer from another record: the search knows the origins of its hits."""
    server.replies = ["Green tea."]
    with operation("create_memory", kind="create", system="t", scope=SCOPE, tracer=recording.tracer) as op:
        op.wrote("memory:paris", action="ADD", content=PARIS)
    with recording.tracer.start_as_current_span("turn"):
        with operation("search_memory", kind="retrieve", system="t", scope=SCOPE, tracer=recording.tracer) as op:
            op.read("query:q", role="query", content="What does Ana drink?")
            op.read("memory:of-another-process", role="hit", content=TEA)
            op.read("memory:paris", role="hit", content=PARIS)
        ask(client, memories)
    [found], [answer] = recording.named("search_memory"), recording.named("chat m1")
    assert "unknown_origin" in found.attributes[semconv.INCOMPLETE]
    assert ("unknown_origin" in answer.attributes.get(semconv.INCOMPLETE, ())) == unknown


@pytest.mark.parametrize("kind", ["document:d1", "state:system.core"])
def test_an_answer_from_records_loaded_by_the_program_is_complete(
    client: openai.OpenAI, server: ModelServer, recording: Recording, kind: str
) -> None:
    server.replies = ["Green tea."]
    with recording.tracer.start_as_current_span("turn"):
        with operation("search_memory", kind="retrieve", system="t", scope=SCOPE, tracer=recording.tracer) as op:
            op.read("query:q", role="query", content="What does Ana drink?")
            op.read(kind, role="hit", content=TEA, origin="")
        ask(client)
    assert not [span for span in recording.spans() if "unknown_origin" in span.attributes.get(semconv.INCOMPLETE, ())]


def test_instrumenting_twice_wraps_once_and_uninstrumenting_restores(
    recording: Recording, server: ModelServer, client: openai.OpenAI, instrumented: OpenAIInstrumentor
) -> None:
    server.replies = ["x"]
    instrumented.instrument(tracer_provider=recording.provider)
    ask(client)
    assert len(recording.named("chat m1")) == 1
    instrumented.uninstrument()
    for owner in (SyncAPIClient, AsyncAPIClient):
        assert not isinstance(vars(owner)["request"], wrapt.FunctionWrapper)
    instrumented.instrument(tracer_provider=recording.provider)


def test_two_questions_that_find_one_record_have_separate_answers(
    recording: Recording, server: ModelServer, client: openai.OpenAI
) -> None:
    """Each answer reads the search for its own question, not every search that returned the text."""
    server.replies = ["Green tea.", "Nobody knows."]
    remember(recording)
    with recording.tracer.start_as_current_span("turn"):
        for number, question in enumerate(("What does Ana drink?", "Who is Ana?")):
            with operation("search_memory", kind="retrieve", system="t", scope=SCOPE, tracer=recording.tracer) as found:
                found.read(f"query:q{number}", role="query", content=question)
                found.read("memory:tea", role="hit", content=TEA)
        for question in ("What does Ana drink?", "Who is Ana?"):
            messages = [{"role": "user", "content": f"Known: {TEA}. {question}"}]
            client.chat.completions.create(model="m1", messages=messages)  # type: ignore[arg-type]
    first, second = recording.named("search_memory")
    for chat, search_span in zip(recording.named("chat m1"), (first, second), strict=True):
        contexts = [source for ref, role, source in inputs(chat) if str(ref).startswith("context:")]
        assert contexts == [origin(search_span)]
        assert [ref for ref, _, _ in inputs(chat) if str(ref).startswith("memory:")] == ["memory:tea"]
        assert [ref for ref, role, _ in inputs(chat) if role == "query"] == [
            (search_span.attributes or {})[semconv.INPUTS][0]  # type: ignore[index]
        ]


def test_an_answer_after_an_empty_search_has_the_scope_of_the_search(
    recording: Recording, server: ModelServer, client: openai.OpenAI
) -> None:
    server.replies = ["I do not know."]
    with recording.tracer.start_as_current_span("turn"):
        with operation("search_memory", kind="retrieve", system="t", scope=SCOPE, tracer=recording.tracer) as found:
            found.read("query:q", role="query", content="What does Ana drink?")
        ask(client, memories="")
    [chat] = recording.named("chat m1")
    assert (chat.attributes or {})[semconv.SCOPE] == SCOPE


def test_a_span_around_one_model_call_keeps_the_turn(
    recording: Recording, server: ModelServer, client: openai.OpenAI
) -> None:
    """A span of another instrumentation; the earlier search was outside any span."""
    server.replies = ["Green tea."]
    remember(recording)
    search(recording)
    with recording.tracer.start_as_current_span("chat of another"):
        ask(client)
    [chat] = recording.named("chat m1")
    assert [ref for ref, _, _ in inputs(chat) if str(ref).startswith("memory:")] == ["memory:tea"]


def test_an_answer_has_the_scope_of_the_search_for_its_question(
    recording: Recording, server: ModelServer, client: openai.OpenAI
) -> None:
    server.replies = ["Green tea."]
    remember(recording)
    with recording.tracer.start_as_current_span("turn"):
        search(recording)
        other = scope_id("store", user="everybody")
        with operation("search_memory", kind="retrieve", system="t", scope=other, tracer=recording.tracer) as found:
            found.read("query:rules", role="query", content="house rules")
            found.read("memory:rule", role="hit", content="Answers are short")
        ask(client, f"{TEA}\n- Answers are short")
    [chat] = recording.named("chat m1")
    assert (chat.attributes or {})[semconv.SCOPE] == SCOPE
    assert {"memory:tea", "memory:rule"} <= set(values(chat, semconv.INPUTS))
