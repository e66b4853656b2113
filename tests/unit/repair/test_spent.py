"""Which calls of a model are counted and priced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest

from memtrace_otel.repair.running import Spent, counted
from memtrace_otel.repair.subjects import RepairError

MESSAGES: Any = [{"role": "user", "content": "x"}]
CALLS: dict[str, Callable[[Any], Any]] = {
    "chat": lambda client: client.chat.completions.create(model="m", messages=MESSAGES),
    "parse": lambda client: client.chat.completions.parse(model="m", messages=MESSAGES),
    "raw": lambda client: client.chat.completions.with_raw_response.create(model="m", messages=MESSAGES),
    "responses": lambda client: client.responses.create(model="m", input="x"),
    "embeddings": lambda client: client.embeddings.create(model="m", input="x"),
}
sent: list[str] = []


def reply(request: httpx.Request) -> httpx.Response:
    """The server: each call reads ten tokens and writes five, an embedding reads ten."""
    sent.append(path := request.url.path)
    if path.endswith("responses"):
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        return httpx.Response(200, json={"id": "1", "object": "response", "output": [], "usage": usage})
    if path.endswith("embeddings"):
        one = {"object": "embedding", "index": 0, "embedding": [1.0]}
        return httpx.Response(200, json={"data": [one], "usage": {"prompt_tokens": 10, "total_tokens": 10}})
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "y"}}
    return httpx.Response(200, json={"id": "1", "choices": [choice], "usage": usage})


def ask(name: str, is_async: bool) -> None:
    """Make one call with a new client."""
    about: dict[str, Any] = {"api_key": "none", "base_url": "http://localhost"}
    transport = httpx.MockTransport(reply)
    if not is_async:
        about["http_client"] = httpx.Client(transport=transport)
        CALLS[name](openai.OpenAI(**about))
        return

    async def asked() -> None:
        about["http_client"] = httpx.AsyncClient(transport=transport)
        await CALLS[name](openai.AsyncOpenAI(**about))

    asyncio.run(asked())


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_every_call_of_a_model_is_counted_and_needs_its_price(name: str, is_async: bool) -> None:
    with counted({"m": (1e5, 1e6)}) as spent:
        ask(name, is_async)
    total = 10 if name == "embeddings" else 15
    found = spent()
    assert found == Spent(1, total, 1.0 + (total - 10), found.seconds)
    sent.clear()
    with counted({"other": (1, 1)}) as spent, pytest.raises(RepairError, match="m has no price"):
        ask(name, is_async)
    with pytest.raises(RepairError, match="m has no price"):
        spent()
    assert sent == []
    ask(name, is_async)  # the clients are as before
    assert len(sent) == 1
