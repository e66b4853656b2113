"""Map-reduce: an answer made of the replies of earlier calls of its turn is made of what those were made of, and of
nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from contextvars import Context
from typing import Any

import openai
import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from memtrace_otel.capture import operation
from memtrace_otel.graph import build_graph
from memtrace_otel.instrumentation.chat_history import conversations
from memtrace_otel.instrumentation.chat_history.messages import get
from memtrace_otel.otlp import decode_request
from tests.conftest import Recording
from tests.integration.openai.conftest import ModelServer

pytestmark = pytest.mark.usefixtures("content_on")

DOCUMENTS = {name: f"Notes of the {name}, which nobody else has seen." for name in ("mill", "port", "farm")}
LONG = "They say that the harvest was good this year, and that the barns will have to be made larger."
FOUND_NOTHING = "I have looked at everything that you gave me, and there is nothing in it about your question."


@pytest.fixture(autouse=True)
def no_conversations() -> None:
    conversations.forget()


def said_of(name: str) -> str:
    return f"The {name} has done well this year: three men have been hired, and a second floor is being built."


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def system(text: str) -> Any:
    return {"role": "system", "content": text}


class Program:
    """Asks a model for a summary of each document, then about the summaries."""

    def __init__(self, client: openai.OpenAI, recording: Recording) -> None:
        self._client, self._recording = client, recording

    def ask(self, *messages: Any, user: str = "") -> str:
        named: Any = {"user": user} if user else {}
        reply = self._client.chat.completions.create(model="m", messages=list(messages), **named)
        return reply.choices[0].message.content or ""

    def look_up(self, name: str, owner: str = "all", text: str = "") -> str:
        text = text or DOCUMENTS[name]
        tracer = self._recording.tracer
        with operation("search_memory", kind="retrieve", system="notes", scope=owner, tracer=tracer) as found:
            found.read(f"query:{name}", role="query", content=f"Which notes are there of the {name}?")
            found.read(f"memory:{owner}-{name}", role="hit", content=text)
        return text

    def summary(self, name: str) -> str:
        return self.ask(system(f"Notes:\n{self.look_up(name)}"), user(f"What do the notes of the {name} say?"))

    def turn(self, traced: bool) -> Any:
        return self._recording.tracer.start_as_current_span("turn") if traced else nullcontext()

    def read(self, at: int = -1) -> tuple[set[str], list[str]]:
        """The records behind an answer (the last by default), and its `memtrace.incomplete`."""
        spans = decode_request(encode_spans(self._recording.spans()).SerializeToString())
        answer = sorted((span for span in spans if span.kind == "respond"), key=lambda span: span.start)[at]
        refs = {getattr(node, "ref", "") for node in build_graph(spans).slice_of_answer(answer.origin)}
        once = [(v.ref, v.origin) for v in answer.inputs if v.ref.startswith("answer:")]
        assert len(once) == len(set(once))
        return {ref.partition(":")[2] for ref in refs if ref.startswith("memory:")}, list(answer.incomplete)


@pytest.fixture
def program(client: openai.OpenAI, recording: Recording) -> Program:
    return Program(client, recording)


@pytest.fixture
def summarising(server: ModelServer) -> None:
    """A model that names the owner of the given notes."""

    def says(asked: dict[str, Any]) -> str:
        prompt = json.dumps(asked)
        return next((said_of(name) for name, text in DOCUMENTS.items() if text in prompt), "All is well.")

    server.says = says


def all_of(owner: str = "all") -> set[str]:
    return {f"{owner}-{name}" for name in DOCUMENTS}


def put_together(summaries: Iterable[str]) -> Any:
    return user("Summaries:\n\n" + "\n\n".join(f"- {text}" for text in summaries) + "\n\nHow was the year?")


@pytest.mark.usefixtures("summarising")
@pytest.mark.parametrize("traced", [True, False])
def test_an_answer_from_summaries_leads_to_all_documents(program: Program, traced: bool) -> None:
    with program.turn(traced):
        summaries = [program.summary(name) for name in DOCUMENTS]
        program.ask(put_together(summaries))
    assert program.read() == (all_of(), [] if traced else ["inferred"])
    for at, name in enumerate(DOCUMENTS):
        assert program.read(at)[0] == {f"all-{name}"}


@pytest.mark.usefixtures("summarising")
@pytest.mark.parametrize("traced", [True, False])
def test_only_quoted_summaries_are_inputs(program: Program, traced: bool) -> None:
    with program.turn(traced):
        summaries = [program.summary(name) for name in DOCUMENTS]
        program.ask(put_together(summaries[1:]))
    assert program.read()[0] == {"all-port", "all-farm"}


@pytest.mark.usefixtures("summarising")
@pytest.mark.parametrize("searched_before", [True, False])
async def test_summaries_made_at_once_in_tasks(
    program: Program, recording: Recording, async_client: openai.AsyncOpenAI, searched_before: bool
) -> None:
    async def summary(name: str, text: str) -> str:
        messages = [system(f"Notes:\n{text}"), user(f"What do the notes of the {name} say?")]
        reply = await async_client.chat.completions.create(model="m", messages=messages)
        return reply.choices[0].message.content or ""

    with program.turn(not searched_before):
        texts = {name: program.look_up(name) for name in DOCUMENTS}
        summaries = await asyncio.gather(*(summary(name, text) for name, text in texts.items()))
        program.ask(put_together(summaries))
    assert program.read() == (all_of(), ["inferred"] if searched_before else [])


@pytest.mark.usefixtures("summarising")
@pytest.mark.parametrize("traced", [True, False])
def test_streams_and_responses(program: Program, client: openai.OpenAI, traced: bool) -> None:
    with program.turn(traced):
        stream = client.chat.completions.create(
            model="m", messages=[system(program.look_up("mill")), user("What of the mill?")], stream=True
        )
        mill = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        port = client.responses.create(model="m", instructions=program.look_up("port"), input="What of the port?")
        events = client.responses.create(model="m", input=f"{program.look_up('farm')} What of it?", stream=True)
        farm = "".join(get(event, "delta") or "" for event in events)
        parts = client.responses.create(model="m", input=[put_together([mill, port.output_text, farm])], stream=True)
        list(parts)
    assert program.read()[0] == all_of()


@pytest.mark.usefixtures("summarising")
@pytest.mark.parametrize("traced", [True, False])
def test_refining_one_summary_document_by_document(program: Program, server: ModelServer, traced: bool) -> None:
    server.says, server.replies = None, [said_of(name) for name in DOCUMENTS]
    with program.turn(traced):
        known = "Nothing is known yet."
        for name in DOCUMENTS:
            known = program.ask(user(f"Known so far: {known}\nNew notes: {program.look_up(name)}\nRefine it."))
    assert program.read()[0] == all_of()
    assert program.read(1)[0] == {"all-mill", "all-port"}


def test_a_tool_result_may_quote_a_reply(program: Program, server: ModelServer) -> None:
    """An agent as a tool of another agent."""
    server.replies = [LONG, {"name": "ask_mill", "arguments": "{}"}, LONG.replace("good", "bad"), "A bad one."]
    call: Any = {"id": "call-1", "type": "function", "function": {"name": "ask_mill", "arguments": "{}"}}
    with program.turn(True):
        messages = [user("How was the harvest?")]
        program.ask(system(program.look_up("port")), *messages)
        program.ask(*messages)
        bad = program.ask(system(program.look_up("mill")), user("Well?"))
        asked: Any = {"role": "assistant", "content": None, "tool_calls": [call]}
        program.ask(*messages, asked, {"role": "tool", "tool_call_id": "call-1", "content": bad})
    assert program.read()[0] == {"all-mill"}


# --- texts that quote no answer -------------------------------------------------------------------------------------


@pytest.mark.parametrize("traced", [True, False])
@pytest.mark.parametrize("answer", ["I don't know.", FOUND_NOTHING])
def test_instructions_quote_no_answers(program: Program, server: ModelServer, answer: str, traced: bool) -> None:
    server.replies = [answer, answer]
    with program.turn(traced):
        program.ask(system(f"Notes: {program.look_up('mill', 'ann')}"), user("Where do I live?"))
        program.ask(system(f"If you do not know, reply: {answer}"), user("Where do I work?"))
    assert program.read()[0] == set()


@pytest.mark.parametrize("traced", [True, False])
@pytest.mark.parametrize(
    ("template", "answer"),
    [("Answer true, false or unknown: {}", "false"), (f"{{}} Say 'yes' or '{FOUND_NOTHING}'", FOUND_NOTHING)],
)
def test_template_words_identify_no_answer(
    program: Program, server: ModelServer, template: str, answer: str, traced: bool
) -> None:
    server.replies = [answer, answer]
    with program.turn(traced):
        program.ask(system(program.look_up("mill", "ann")), user(template.format("Is the mill old?")))
        program.ask(user(template.format("Is the port new?")))
    assert program.read()[0] == set()


@pytest.mark.parametrize("traced", [True, False])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("asking", ["User: {}", "User: {}\nAssistant: ", "Question: {}\nAnswer:"])
def test_a_chat_written_as_one_text_quotes_no_answers(
    program: Program, server: ModelServer, traced: bool, whole: bool, asking: str
) -> None:
    """`whole`: the prompt repeats the whole chat, else the last exchange."""
    server.replies = [LONG, said_of("port"), said_of("farm")]
    chat = ["A chat.\n"]
    with program.turn(traced):
        for name in DOCUMENTS:
            asked = f"And what of the {name}?"
            reply = program.ask(system(program.look_up(name)), user("".join((*chat, asking.format(asked)))))
            chat = [*(chat if whole else chat[:1]), f"User: {asked}\nAssistant: {reply}\n"]
    assert [program.read(at)[0] for at in range(3)] == [{f"all-{name}"} for name in DOCUMENTS]


def test_a_record_with_the_text_of_an_answer_is_the_input(program: Program, server: ModelServer) -> None:
    server.replies = [LONG, "Good."]
    with program.turn(True):
        program.ask(system(program.look_up("mill", "ann")), user("How was the harvest?"))
        program.ask(user(f"{program.look_up('port', 'bob', LONG)} And now?"))
    assert program.read()[0] == {"bob-port"}


def serve(program: Program, owner: str, name: str) -> None:
    """Two calls: the second quotes the answer of the first, equal for all owners."""
    answer = program.ask(system(program.look_up(name, owner)), user("How was the harvest?"))
    program.ask(user(f"Make this shorter: {answer}"))


def in_tasks(program: Program) -> None:
    async def main() -> None:
        await asyncio.gather(*(asyncio.to_thread(serve, program, *user) for user in (("ann", "mill"), ("bob", "port"))))

    asyncio.run(main())


def in_threads(program: Program) -> None:
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(serve, [program] * 2, ("ann", "bob"), ("mill", "port")))


def step_by_step(program: Program) -> None:
    """Interleaved steps of all owners, each owner in its own context."""
    contexts = {"ann": Context(), "bob": Context()}
    names = {"ann": "mill", "bob": "port"}
    answers = {
        owner: context.run(
            lambda owner=owner: program.ask(system(program.look_up(names[owner], owner)), user("How was the harvest?"))
        )
        for owner, context in contexts.items()
    }
    for owner, context in contexts.items():
        context.run(program.ask, user(f"Make this shorter: {answers[owner]}"))


@pytest.mark.parametrize(
    ("way", "around"), [(in_tasks, False), (in_tasks, True), (in_threads, False), (step_by_step, False)]
)
def test_equal_answers_of_two_users_at_the_same_time(
    program: Program, server: ModelServer, way: Callable[[Program], None], around: bool
) -> None:
    """`around`: one span is around both owners, each in its own context."""
    server.says = lambda asked: LONG if asked["messages"][-1]["content"].startswith("How was") else "Good."
    with program.turn(around):
        way(program)
    behind = [program.read(at)[0] for at in range(4)]
    assert sorted(map(sorted, behind)) == [["ann-mill"]] * 2 + [["bob-port"]] * 2


def test_an_answer_may_quote_a_hundred_answers(program: Program, server: ModelServer) -> None:
    def says(asked: dict[str, Any]) -> str:
        number = json.dumps(asked).rpartition("house ")[2][:3]
        return f"House {number} has been painted, has a new roof of slate, and is let to a family of {number}."

    server.says = says
    houses = [f"{number:03}" for number in range(100, 200)]
    with program.turn(True):
        notes = [program.look_up(name, text=f"Notes of the house {name}, which nobody has seen.") for name in houses]
        summaries = [program.ask(user(text)) for text in notes]
        server.says = lambda asked: "All is well."
        program.ask(put_together(summaries))
    assert program.read() == ({f"all-{name}" for name in houses}, [])
