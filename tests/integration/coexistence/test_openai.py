"""opentelemetry-instrumentation-genai-openai beside ours: its span is enriched, a chat call has one span."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor as TheirInstrumentor
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode
from pydantic import BaseModel

from memtrace_otel import semconv
from memtrace_otel.capture import operation, scope_id
from memtrace_otel.capture.finalizers import report_waiting
from memtrace_otel.graph import build_graph
from memtrace_otel.instrumentation.chat_history import conversations
from memtrace_otel.instrumentation.openai import OpenAIInstrumentor
from memtrace_otel.otlp import decode_request
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


class Tea(BaseModel):
    """A structured reply."""

    name: str


def _opened(manager: Any) -> Any:
    with manager as events:
        return list(events)


CHAT: dict[str, Any] = {"model": "m1", "messages": QUESTION}
ASK: dict[str, Any] = {"model": "m1", "input": "What does Ana drink?"}
WAYS: dict[str, Callable[[openai.OpenAI], Any]] = {
    "chat": lambda client: client.chat.completions.create(**CHAT),
    "chat, streamed": lambda client: list(client.chat.completions.create(**CHAT, stream=True)),
    "chat, a stream opened": lambda client: _opened(client.chat.completions.create(**CHAT, stream=True)),
    "chat, raw": lambda client: client.chat.completions.with_raw_response.create(**CHAT).parse(),
    "chat, raw and streamed": lambda client: list(
        client.chat.completions.with_raw_response.create(**CHAT, stream=True).parse()
    ),
    "chat, parsed": lambda client: client.beta.chat.completions.parse(**CHAT, response_format=Tea),
    "chat, events": lambda client: _opened(client.beta.chat.completions.stream(**CHAT)),
    "responses": lambda client: client.responses.create(**ASK),
    "responses, streamed": lambda client: list(client.responses.create(**ASK, stream=True)),
    "responses, raw": lambda client: client.responses.with_raw_response.create(**ASK).parse(),
    "responses, parsed": lambda client: client.responses.parse(**ASK, text_format=Tea),
    "responses, events": lambda client: _opened(client.responses.stream(**ASK)),
}


@ORDERS
@pytest.mark.parametrize("way", WAYS)
def test_the_span_of_the_other_instrumentation_keeps_its_attributes_and_gets_ours(
    server: ModelServer, client: openai.OpenAI, order: tuple[Any, Any], way: str
) -> None:
    def call() -> None:
        WAYS[way](client.copy())  # a client keeps what it has wrapped

    server.replies = ['{"name": "Green tea"}'] * 2
    with instrumented(THEIRS) as alone:
        call()
    server.responses = 0
    with instrumented(*order) as together:
        call()
    [expected], [span] = alone.spans(), together.spans()
    assert span.name == expected.name
    assert theirs_in(span) == theirs_in(expected)
    attributes = dict(span.attributes or {})
    assert attributes[semconv.OP_KIND] == "respond"
    assert len(attributes[semconv.OUTPUTS]) == 1
    assert violations(span) == []


def test_a_dropped_stream_is_recorded_as_part_of_the_other_span(
    both: Recording, server: ModelServer, client: openai.OpenAI
) -> None:
    """They end it when their wrapper dies, before ours can tell what was said."""
    server.replies = ["Green tea."]
    for _ in client.chat.completions.create(**CHAT, stream=True):
        break
    report_waiting()
    [answer] = build_graph(decode_request(encode_spans(both.spans()).SerializeToString())).operations(kind="respond")
    assert answer.name == "chat m1"
    assert [v.role for v in answer.outputs] == ["answer"]
    assert "truncated" in answer.incomplete


async def test_async_responses_are_recorded_before_the_other_span_ends(
    both: Recording, server: ModelServer, async_client: openai.AsyncOpenAI
) -> None:
    server.replies = ["Green tea."] * 2
    async for _ in await async_client.responses.create(**ASK, stream=True):
        pass
    async with async_client.responses.stream(**ASK) as events:
        async for _ in events:
            pass
    assert [len((span.attributes or {})[semconv.OUTPUTS]) for span in both.spans()] == [1, 1]
    assert [violations(span) for span in both.spans()] == [[], []]


async def test_async_calls_and_streams(both: Recording, server: ModelServer, async_client: openai.AsyncOpenAI) -> None:
    server.replies = ["Green tea.", "Green tea."]
    await async_client.chat.completions.create(model="m1", messages=QUESTION)
    stream = await async_client.chat.completions.create(model="m1", messages=QUESTION, stream=True)
    async for _ in stream:
        pass
    assert len(both.spans()) == 2
    assert all((span.attributes or {})[semconv.OP_KIND] == "respond" for span in both.spans())


def test_the_links_of_an_answer_are_on_the_other_span(
    both: Recording, server: ModelServer, client: openai.OpenAI
) -> None:
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


def test_a_conversation_continues_across_the_other_spans(
    both: Recording, server: ModelServer, client: openai.OpenAI
) -> None:
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


def test_errors_are_recorded_by_the_other_instrumentation(
    both: Recording, server: ModelServer, client: openai.OpenAI
) -> None:
    server.replies = [503]
    with pytest.raises(openai.InternalServerError):
        client.chat.completions.create(model="m1", messages=QUESTION)
    [span] = both.spans()
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})[semconv.OP_KIND] == "respond"


def test_a_call_inside_an_operation_is_not_an_answer(
    both: Recording, server: ModelServer, client: openai.OpenAI
) -> None:
    server.replies = ["likes green tea"]
    with operation(kind="extract", system="mine", purpose="facts", tracer=both.tracer):
        client.chat.completions.create(model="m1", messages=QUESTION)
    [chat] = [span for span in both.spans() if span.name.startswith("chat")]
    attributes = dict(chat.attributes or {})
    told = [attributes[key] for key in (semconv.OP_KIND, semconv.SYSTEM, semconv.OP_PURPOSE)]
    assert told == ["other", "mine", "facts"]
    assert violations(chat) == []
