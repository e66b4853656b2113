"""Beside opentelemetry-instrumentation-genai-openai: its span is enriched, no chat call has two."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor as TheirInstrumentor
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from memtrace_otel import semconv
from memtrace_otel.capture import operation, scope_id
from memtrace_otel.instrumentation.openai import OpenAIInstrumentor, conversations
from memtrace_otel.testing import violations
from tests.conftest import Recording
from tests.integration.openai.conftest import ModelServer

OURS, THEIRS = OpenAIInstrumentor, TheirInstrumentor
QUESTION: list[Any] = [{"role": "user", "content": "What does Ana drink?"}]


def instrument(kind: Any, recording: Recording) -> None:
    kind().instrument(tracer_provider=recording.provider, skip_dep_check=True)


@contextmanager
def instrumented(*kinds: Any) -> Generator[Recording]:
    recording = Recording()
    conversations.forget()
    for kind in kinds:
        instrument(kind, recording)
    try:
        yield recording
    finally:
        for kind in reversed(kinds):
            kind().uninstrument()


ORDERS = pytest.mark.parametrize("order", [(OURS, THEIRS), (THEIRS, OURS)], ids=["ours first", "theirs first"])


@pytest.fixture(params=[(OURS, THEIRS), (THEIRS, OURS)], ids=["ours first", "theirs first"])
def both(request: pytest.FixtureRequest) -> Iterator[Recording]:
    with instrumented(*request.param) as recording:
        yield recording


def theirs_in(span: ReadableSpan) -> dict[str, Any]:
    """Their attributes, without the one that is a time."""
    given = (span.attributes or {}).items()
    return {k: v for k, v in given if not k.startswith("memtrace.") and not k.endswith("time_to_first_chunk")}


def calls(client: openai.OpenAI, stream: bool, api: str) -> Callable[[], Any]:
    def chat() -> Any:
        reply = client.chat.completions.create(model="m1", messages=QUESTION, stream=stream)
        return list(reply) if stream else reply

    def respond() -> Any:
        return client.responses.create(model="m1", input="What does Ana drink?")

    return chat if api == "chat" else respond


@ORDERS
@pytest.mark.parametrize(("api", "stream"), [("chat", False), ("chat", True), ("responses", False)])
def test_their_span_stays_what_it_is_and_carries_ours(
    server: ModelServer, client: openai.OpenAI, order: tuple[Any, Any], api: str, stream: bool
) -> None:
    call = calls(client, stream, api)
    server.replies = ["Green tea."] * 2
    with instrumented(THEIRS) as alone:
        call()
    with instrumented(*order) as together:
        call()
    [expected], [span] = alone.spans(), together.spans()
    assert span.name == expected.name
    assert theirs_in(span) == theirs_in(expected)
    attributes = dict(span.attributes or {})
    assert attributes[semconv.OP_KIND] == "respond"
    assert len(attributes[semconv.OUTPUTS]) == 1
    assert violations(span) == []


async def test_async_calls_and_streams(both: Recording, server: ModelServer, async_client: openai.AsyncOpenAI) -> None:
    server.replies = ["Green tea.", "Green tea."]
    await async_client.chat.completions.create(model="m1", messages=QUESTION)
    stream = await async_client.chat.completions.create(model="m1", messages=QUESTION, stream=True)
    async for _ in stream:
        pass
    assert len(both.spans()) == 2
    assert all((span.attributes or {})[semconv.OP_KIND] == "respond" for span in both.spans())


def test_the_links_of_an_answer_are_on_their_span(both: Recording, server: ModelServer, client: openai.OpenAI) -> None:
    scope = scope_id("store", user="ana")
    with both.tracer.start_as_current_span("turn"):
        with operation("create_memory", kind="create", system="t", scope=scope, tracer=both.tracer) as created:
            created.wrote("memory:tea", action="ADD", content="Ana likes green tea")
        with operation("search_memory", kind="retrieve", system="t", scope=scope, tracer=both.tracer) as search:
            search.read("query:q", role="query", content="What does Ana drink?")
            search.read("memory:tea", role="hit", content="Ana likes green tea")
        server.replies = ["Green tea."]
        messages: list[Any] = [{"role": "system", "content": "Known: Ana likes green tea"}, *QUESTION]
        client.chat.completions.create(model="m1", messages=messages)
    [chat] = [span for span in both.spans() if span.name.startswith("chat")]
    assert {f"{link.context.span_id:016x}" for link in chat.links} == {created.origin[33:], search.origin[33:]}


def test_a_conversation_goes_on_beside_their_spans(both: Recording, server: ModelServer, client: openai.OpenAI) -> None:
    server.replies = ["Noted.", "Green tea."]
    messages: list[Any] = [{"role": "user", "content": "Ana likes green tea."}]
    with both.tracer.start_as_current_span("turn"):
        client.chat.completions.create(model="m1", messages=messages)
        messages += [{"role": "assistant", "content": "Noted."}, *QUESTION]
        client.chat.completions.create(model="m1", messages=messages)
    [turn] = [span for span in both.spans() if span.name == "turn"]
    assert sorted(span.name for span in both.spans()) == ["chat m1", "chat m1", "memtrace.ingest", "turn"]
    assert turn.context is not None
    assert {span.parent.span_id for span in both.spans() if span.parent} == {turn.context.span_id}


def test_errors_are_told_by_them(both: Recording, server: ModelServer, client: openai.OpenAI) -> None:
    server.replies = [503]
    with pytest.raises(openai.InternalServerError):
        client.chat.completions.create(model="m1", messages=QUESTION)
    [span] = both.spans()
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})[semconv.OP_KIND] == "respond"


def test_a_call_inside_an_operation_answers_nobody(both: Recording, server: ModelServer, client: openai.OpenAI) -> None:
    server.replies = ["likes green tea"]
    with operation(kind="extract", system="mine", purpose="facts", tracer=both.tracer):
        client.chat.completions.create(model="m1", messages=QUESTION)
    [chat] = [span for span in both.spans() if span.name.startswith("chat")]
    attributes = dict(chat.attributes or {})
    told = [attributes[key] for key in (semconv.OP_KIND, semconv.SYSTEM, semconv.OP_PURPOSE)]
    assert told == ["other", "mine", "facts"]
    assert violations(chat) == []
