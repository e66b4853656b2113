"""The instrumentor contract, for an application that repeats its history."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import openai
import pytest

from memtrace_otel.instrumentation.chat_history import conversations
from memtrace_otel.instrumentation.openai import OpenAIInstrumentor
from tests.harness import (
    CancelledContract,
    InstrumentorContract,
    ReentrantContract,
    StreamedContract,
    SynchronousContract,
    ThreadedContract,
)
from tests.integration.openai.conftest import ModelServer

chats = count()


class Conversation:
    """A chat over one client, sync or async; `streamed` reads the replies chunk by chunk."""

    def __init__(self, url: str, asynchronous: bool, streamed: bool) -> None:
        kind: Any = openai.AsyncOpenAI if asynchronous else openai.OpenAI
        self.client = kind(base_url=url, api_key="none", max_retries=0)
        self.asynchronous, self.streamed = asynchronous, streamed
        # Every program is a conversation of its own: equal first messages would continue an earlier conversation.
        self.history: list[Any] = [{"role": "system", "content": f"Be brief in chat {next(chats)}."}]

    async def write(self, text: str) -> object:
        return await self._say(text)

    async def read(self, query: str) -> object:
        return await self._say(query)

    async def fail(self) -> object:
        return await self._ask([{"role": "user", "content": "fail"}])

    async def close(self) -> None:
        closed = self.client.close()
        if self.asynchronous:
            await closed

    async def _say(self, text: str) -> str:
        self.history.append({"role": "user", "content": text})
        said = await self._ask(self.history)
        self.history.append({"role": "assistant", "content": said})
        return said

    async def stream(self, query: str) -> list[object]:
        return await self._pieces([{"role": "user", "content": query}], True)

    async def reenter(self, text: str, query: str) -> object:
        """The HTTP client of the program makes another call, once, before the first request."""
        found, own = list[object](), {"model": "m1", "messages": [{"role": "user", "content": query}]}

        def ask(request: object) -> None:
            if not found:
                found.append(None)
                found[0] = self.client.chat.completions.create(**own).choices[0].message.content

        async def ask_async(request: object) -> None:
            if not found:
                found.append(None)
                found[0] = (await self.client.chat.completions.create(**own)).choices[0].message.content

        self.client._client.event_hooks = {"request": [ask_async if self.asynchronous else ask]}
        return await self._say(text), found

    async def _ask(self, messages: list[Any]) -> str:
        return "".join(map(str, await self._pieces(messages, self.streamed)))

    async def _pieces(self, messages: list[Any], stream: bool) -> list[object]:
        reply = self.client.chat.completions.create(model="m1", messages=messages, stream=stream)
        if self.asynchronous:
            reply = await reply
        if not stream:
            return [reply.choices[0].message.content]
        chunks = [chunk async for chunk in reply] if self.asynchronous else list(reply)
        return [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]


class AsyncConversation(Conversation):
    """The async calls can be cancelled."""

    async def hang(self) -> object:
        return await self._ask([{"role": "user", "content": "hang"}])


@pytest.fixture(autouse=True)
def instrumented() -> None:
    """The contract runs the instrumentor."""
    conversations.forget()


class Contract(InstrumentorContract, ThreadedContract, StreamedContract, ReentrantContract):
    instrumentor = OpenAIInstrumentor
    entry_point = "memtrace_openai"
    reading = ("respond", "history")
    remembers_answers = True
    nests = False
    """A nested call is a step of the outer call."""


class TestSync(Contract, SynchronousContract):
    @pytest.fixture(params=[False, True], ids=["whole", "stream"])
    def program(self, request: pytest.FixtureRequest, server: ModelServer) -> Callable[[], Conversation]:
        server.echo = True
        return lambda: Conversation(server.url, False, request.param)


class TestAsync(Contract, CancelledContract):
    @pytest.fixture(params=[False, True], ids=["whole", "stream"])
    def program(self, request: pytest.FixtureRequest, server: ModelServer) -> Callable[[], AsyncConversation]:
        server.echo = True
        return lambda: AsyncConversation(server.url, True, request.param)
