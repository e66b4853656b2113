"""Streamed graphs: recorded like a call; an abandoned stream leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from memtrace_otel.capture import current_operation
from memtrace_otel.graph import VersionKey
from memtrace_otel.instrumentation.langchain.langgraph import LangGraphInstrumentor
from memtrace_otel.testing.programs import Started
from tests.conftest import Recording
from tests.harness import StreamedContract
from tests.integration.langchain.conftest import graph_of, operations

SAID = "It sleeps on the red sofa, I think."
MODES = ("values", "updates", "messages", "custom", "debug")


class Streaming:
    """A graph of one model with a checkpointed thread, streamed in one mode."""

    def __init__(self, mode: Any, asynchronous: bool) -> None:
        self.mode, self.asynchronous = mode, asynchronous
        self.model = GenericFakeChatModel(messages=(AIMessage(SAID) for _ in itertools.count()))
        graph = StateGraph(MessagesState).add_node("answer", self._aanswer if asynchronous else self._answer)
        self.graph: Any = graph.add_edge(START, "answer").compile(checkpointer=InMemorySaver())
        self.config: Any = {"configurable": {"thread_id": "t1"}}

    def _answer(self, state: MessagesState) -> Any:
        return {"messages": [self.model.invoke(state["messages"])]}

    async def _aanswer(self, state: MessagesState) -> Any:
        return {"messages": [await self.model.ainvoke(state["messages"])]}

    def start(self, query: str) -> Any:
        stream = self.graph.astream if self.asynchronous else self.graph.stream
        return stream({"messages": [HumanMessage(query)]}, self.config, stream_mode=self.mode)

    async def stream(self, query: str) -> list[object]:
        stream = self.start(query)
        pieces = [piece async for piece in stream] if self.asynchronous else list(stream)
        if self.mode == "messages":
            return [message.content for message, _ in pieces]
        state = pieces[-1] if self.mode == "values" else pieces[-1]["answer"]
        return [state["messages"][-1].content]

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("mode", ["values", "updates", "messages"])
class TestStreams(StreamedContract):
    instrumentor = LangGraphInstrumentor

    @pytest.fixture
    def program(self, mode: str, asynchronous: bool) -> Callable[[], Streaming]:
        return lambda: Streaming(mode, asynchronous)


def recorded(recording: Recording) -> list[tuple[str, str, list[str], list[str]]]:
    """Each operation with its inputs and outputs, without ids."""

    def kinds_of(variables: Any) -> list[str]:
        return [f"{variable.role} {variable.ref.partition(':')[0]} {variable.content}" for variable in variables]

    return sorted((op.name, op.kind, kinds_of(op.inputs), kinds_of(op.outputs)) for op in operations(recording))


@pytest.mark.usefixtures("instrumented", "content_on")
@pytest.mark.parametrize("mode", MODES)
async def test_a_stream_is_recorded_like_a_call(mode: str, recording: Recording) -> None:
    graph = Streaming(mode, True)
    for question in ("Where is the cat?", "And the dog?"):
        await graph.graph.ainvoke({"messages": [HumanMessage(question)]}, graph.config)
    expected = recorded(recording)
    for asynchronous in (True, False):
        recording.clear()
        streaming = Streaming(mode, asynchronous)
        for question in ("Where is the cat?", "And the dog?"):
            stream = streaming.start(question)
            pieces = [piece async for piece in stream] if asynchronous else list(stream)
            assert bool(pieces) == (mode != "custom")
        assert recorded(recording) == expected


async def read(stream: Any) -> list[object]:
    return [piece async for piece in stream]


async def left(stream: Any, way: str) -> None:
    """Read only the first item."""
    if way == "sync":
        next(stream)
        stream.close()
    elif way == "async":
        await anext(stream)
        await stream.aclose()
    else:
        task = asyncio.create_task(read(stream))
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.usefixtures("instrumented", "content_on")
@pytest.mark.parametrize("way", ["sync", "async", "cancelled"])
@pytest.mark.parametrize("mode", ["values", "messages"])
async def test_an_abandoned_stream_leaves_no_context_behind(mode: str, way: str, recording: Recording) -> None:
    streaming = Streaming(mode, way != "sync")
    spans = Started()
    recording.provider.add_span_processor(spans)
    await left(streaming.start("Where is the cat?"), way)
    gc.collect()
    assert current_operation() is None
    streaming.mode, streaming.config = "values", {"configurable": {"thread_id": "t2"}}
    assert await streaming.stream("And the dog?") == [SAID]
    assert len(spans.started) == len(spans.ended) > 0
    graph = graph_of(recording)
    answer = graph.operations(kind="respond")[-1]
    slice_ = graph.slice_of_answer(answer.origin)
    said = {graph.content(node) for node in slice_ if isinstance(node, VersionKey)}
    assert "And the dog?" in said
    assert "Where is the cat?" not in said
