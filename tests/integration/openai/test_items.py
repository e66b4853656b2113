"""Refusals and tool calls: replies of a model beside text."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from memtrace_otel import semconv
from memtrace_otel.capture import feedback, operation
from memtrace_otel.instrumentation.chat_history import conversations
from tests.conftest import Recording
from tests.integration.openai.conftest import ModelServer, chunks, completion, events, response

NO = "I cannot help with that request."
ASKED: list[Any] = [{"role": "user", "content": "How do I pick a lock?"}]


@pytest.fixture(autouse=True)
def no_conversations(content_on: None) -> None:
    conversations.forget()


def said(recording: Recording) -> list[tuple[str, str]]:
    """Kind and content of the outputs of the last call."""
    written = recording.named("chat m1")[-1].attributes or {}
    refs, texts = (list(written.get(name, ())) for name in (semconv.OUTPUTS, semconv.OUTPUTS_CONTENTS))  # type: ignore[arg-type]
    return [(str(ref).partition(":")[0], str(text)) for ref, text in zip(refs, texts, strict=True)]


def roles(recording: Recording) -> list[str]:
    return list((recording.named("chat m1")[-1].attributes or {})[semconv.INPUTS_ROLES])  # type: ignore[arg-type]


def test_a_refusal_is_the_answer(client: openai.OpenAI, server: ModelServer, recording: Recording) -> None:
    server.replies = [completion({"refusal": NO})]
    with recording.tracer.start_as_current_span("turn"):
        client.chat.completions.create(model="m1", messages=ASKED)
        assert feedback("fail", tracer=recording.tracer) is True
    assert said(recording) == [("answer", NO)]


def test_a_streamed_refusal_is_the_answer(client: openai.OpenAI, server: ModelServer, recording: Recording) -> None:
    server.replies = [chunks({"role": "assistant", "refusal": NO[:9]}, {"refusal": NO[9:]})]
    list(client.chat.completions.create(model="m1", messages=ASKED, stream=True))
    assert said(recording) == [("answer", NO)]


REFUSED = {
    "type": "message",
    "id": "m-1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "refusal", "refusal": NO}],
}


@pytest.mark.parametrize("repeated", [{"refusal": NO}, {"content": [{"type": "refusal", "refusal": NO}]}])
def test_a_conversation_continues_after_a_refusal(
    client: openai.OpenAI, server: ModelServer, recording: Recording, repeated: dict[str, Any]
) -> None:
    server.replies = ["So you live in Lisbon.", completion({"refusal": NO}), "In Lisbon."]
    messages: list[Any] = [{"role": "user", "content": "I live in Lisbon."}]
    client.chat.completions.create(model="m1", messages=messages)
    messages += [{"role": "assistant", "content": "So you live in Lisbon."}, *ASKED]
    client.chat.completions.create(model="m1", messages=messages)
    messages += [{"role": "assistant", **repeated}, {"role": "user", "content": "Where do I live?"}]
    client.chat.completions.create(model="m1", messages=messages)
    stored = [list((span.attributes or {})[semconv.OUTPUTS]) for span in recording.named("memtrace.ingest")]  # type: ignore[arg-type]
    assert [len(refs) for refs in stored] == [2, 2]
    assert roles(recording) == ["query", *["history"] * 4]


def sql(number: int) -> dict[str, Any]:
    return {"id": f"t-{number}", "type": "custom", "custom": {"name": "sql", "input": f"SELECT {number}"}}


SAID_SQL = [("completion", '["sql", "SELECT 1"]\n["sql", "SELECT 2"]')]


def test_custom_tools_are_called_with_their_input(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    server.replies = [completion({"tool_calls": [sql(1), sql(2)]}), "Both."]
    client.chat.completions.create(model="m1", messages=ASKED)
    assert said(recording) == SAID_SQL
    results = [{"role": "tool", "tool_call_id": f"t-{number}", "content": f"{number} row"} for number in (1, 2)]
    repeated: list[Any] = [*ASKED, {"role": "assistant", "tool_calls": [sql(1), sql(2)]}, *results]
    client.chat.completions.create(model="m1", messages=repeated)
    assert roles(recording) == ["query", *["history"] * 3]
    assert len(recording.named("memtrace.ingest")) == 1


def test_a_streamed_custom_tool_call_is_joined(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    begun = [{"index": number - 1, **sql(number)} for number in (1, 2)]
    begun[1]["custom"] = {"name": "sql", "input": "SELECT"}
    rest = {"index": 1, "custom": {"input": " 2"}}
    server.replies = [chunks({"role": "assistant", "tool_calls": begun}, {"tool_calls": [rest]})]
    list(client.chat.completions.create(model="m1", messages=ASKED, stream=True))
    assert said(recording) == SAID_SQL


@pytest.mark.parametrize("stream", [False, True])
def test_a_legacy_function_call_is_a_tool_call(
    client: openai.OpenAI, server: ModelServer, recording: Recording, stream: bool
) -> None:
    begun = {"function_call": {"name": "weather", "arguments": '{"city":'}}
    rest = {"function_call": {"arguments": ' "Oslo"}'}}
    whole = {"function_call": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    server.replies = [chunks(begun, rest) if stream else completion(whole)]
    for _ in client.chat.completions.create(model="m1", messages=ASKED, stream=stream):
        pass
    assert said(recording) == [("completion", r'["weather", "{\"city\": \"Oslo\"}"]')]


CALLS: list[Any] = [
    {"type": "custom_tool_call", "name": "sql", "input": "SELECT 1"},
    {"type": "local_shell_call", "status": "completed", "action": {"type": "exec", "command": ["ls"], "env": {}}},
]


@pytest.mark.parametrize("call", CALLS)
def test_a_tool_call_of_any_kind_and_its_output_are_history(
    client: openai.OpenAI, server: ModelServer, recording: Recording, call: dict[str, Any]
) -> None:
    call = call | {"id": "k-1", "call_id": "t-1"}
    server.replies = [response(call), "Two rows."]
    client.responses.create(model="m1", input=ASKED)
    [(kind, text)] = said(recording)
    assert kind == "completion"
    assert ("SELECT 1" if "input" in call else "ls") in text
    output: Any = {"type": f"{call['type']}_output", "call_id": "t-1", "output": "one\ntwo"}
    client.responses.create(model="m1", input=[*ASKED, call, output])
    [stored] = recording.named("memtrace.ingest")
    assert list((stored.attributes or {})[semconv.OUTPUTS_CONTENTS]) == [ASKED[0]["content"], text, "one\ntwo"]  # type: ignore[arg-type]


def test_a_tool_call_repeated_with_nulls_is_the_same(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    action: dict[str, Any] = {"type": "drag", "path": [{"x": 1}]}
    nulls = {"env": None, "path": [{"x": 1, "y": None}]}
    call = {"type": "computer_call", "id": "k-1", "call_id": "t-1", "status": "completed", "action": action}
    server.replies = [response(call | {"pending_safety_checks": []}), "Done."]
    client.responses.create(model="m1", input=ASKED)
    output = {"type": "computer_call_output", "call_id": "t-1", "output": "a picture"}
    repeated: list[Any] = [*ASKED, call | {"action": action | nulls}, output]
    client.responses.create(model="m1", input=repeated)
    assert len(recording.named("memtrace.ingest")) == 1
    assert recording.named("memtrace.consolidate") == []


def test_a_tool_call_run_by_the_provider_is_no_completion(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    searched = {
        "type": "web_search_call",
        "id": "w-1",
        "status": "completed",
        "action": {"type": "search", "query": "q"},
    }
    server.replies = [response(searched, REFUSED)]
    client.responses.create(model="m1", input=ASKED)
    assert said(recording) == [("answer", NO)]


RAN_THERE: list[tuple[dict[str, Any], Any]] = [
    ({"type": "shell_call", "action": {"commands": ["ls"]}}, [{"stdout": "one row", "stderr": ""}]),
    ({"type": "function_call", "name": "rows", "arguments": "{}"}, "one row"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("call", "output"), RAN_THERE)
def test_the_output_of_a_provider_tool_is_no_answer(
    client: openai.OpenAI, server: ModelServer, recording: Recording, call: dict[str, Any], output: Any, stream: bool
) -> None:
    gave = {"type": f"{call['type']}_output", "id": "o-1", "call_id": "t-1", "status": "completed", "output": output}
    items: list[Any] = [call | {"id": "k-1", "call_id": "t-1", "status": "completed"}, gave, REFUSED]
    whole = response(*items)
    server.replies = [events({"type": "response.completed", "response": json.loads(whole)}) if stream else whole, "Ok."]
    for _ in client.responses.create(model="m1", input=ASKED, stream=stream):
        pass
    assert [kind for kind, _ in said(recording)] == ["completion", "answer"]
    assert said(recording)[-1] == ("answer", NO)
    client.responses.create(model="m1", input=[*ASKED, *items, {"role": "user", "content": "Why?"}])
    [stored] = recording.named("memtrace.ingest")
    assert sorted((stored.attributes or {})[semconv.INPUTS_ROLES]) == ["answer", "message", "message", "other"]  # type: ignore[arg-type]
    assert recording.named("memtrace.consolidate") == []
    assert roles(recording) == ["query", *["history"] * 4]


@pytest.mark.parametrize("image", [True, False])
def test_a_prompt_with_images_is_marked_unserialisable(
    client: openai.OpenAI, server: ModelServer, recording: Recording, image: bool
) -> None:
    parts: list[Any] = [{"type": "text", "text": "What is this?"}]
    parts += [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}] * image
    server.replies = ["A cat."]
    client.chat.completions.create(model="m1", messages=[{"role": "user", "content": parts}])
    incomplete = (recording.named("chat m1")[0].attributes or {}).get(semconv.INCOMPLETE, ())
    assert ("unserialisable" in incomplete) is image  # type: ignore[operator]


def test_a_tool_result_has_its_search_as_source(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "recall", "arguments": '{"about": "tea"}'}}
    server.replies = [completion({"tool_calls": [call]}), "You like green tea.", "Your notes say so."]
    history: list[Any] = [{"role": "user", "content": "What do I like?"}]
    with recording.tracer.start_as_current_span("turn"):
        client.chat.completions.create(model="m1", messages=history)
        with operation("search_memory", kind="retrieve", system="notes", scope="a", tracer=recording.tracer) as found:
            found.read("query:tea", role="query", content="about tea")
            found.read("memory:17", role="hit", content="Ann likes green tea", origin="")
            context = found.context()
        result = {"role": "tool", "tool_call_id": "c1", "content": '["Ann likes green tea"]'}
        history += [{"role": "assistant", "tool_calls": [call]}, result]
        client.chat.completions.create(model="m1", messages=history)
    with recording.tracer.start_as_current_span("turn"):
        history = [*history[1:], {"role": "assistant", "content": "You like green tea."}]
        client.chat.completions.create(model="m1", messages=[*history, {"role": "user", "content": "Why?"}])
    stored = [dict(span.attributes or {}) for span in recording.named("memtrace.ingest")]
    versions = [pair for one in stored for pair in zip(one[semconv.INPUTS], one[semconv.INPUTS_ORIGINS], strict=True)]  # type: ignore[arg-type]
    assert (context, found.origin) in versions
    assert sum(ref.startswith("message:") for ref, _ in versions) == 1  # the first question
