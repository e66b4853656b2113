"""Streams that are left half-way by somebody who closes no stream: what came is recorded."""

from __future__ import annotations

from typing import Any

import openai

from memtrace_otel.instrumentation.openai import streams
from tests.conftest import Recording
from tests.integration.openai.conftest import ModelServer

ASKED: list[Any] = [{"role": "user", "content": "What is my cat called?"}]


def streaming(client: Any) -> Any:
    """The package's helper, which early releases have among the beta features."""
    completions = client.chat.completions
    return getattr(completions, "stream", None) or client.beta.chat.completions.stream


def recorded(recording: Recording) -> list[str]:
    return [str((span.attributes or {}).get("memtrace.incomplete")) for span in recording.named("chat m1")]


def test_a_helper_of_the_package_that_is_left(client: openai.OpenAI, server: ModelServer, recording: Recording) -> None:
    server.replies = ["Tom is the cat"]
    with streaming(client)(model="m1", messages=ASKED) as helper:
        next(iter(helper))
    [incomplete] = recorded(recording)
    assert "truncated" in incomplete


async def test_an_async_helper_of_the_package_that_is_left(
    async_client: openai.AsyncOpenAI, server: ModelServer, recording: Recording
) -> None:
    server.replies = ["Tom is the cat"]
    async with streaming(async_client)(model="m1", messages=ASKED) as helper:
        await anext(aiter(helper))
    [incomplete] = recorded(recording)
    assert "truncated" in incomplete


def test_a_stream_that_is_open_when_the_program_ends(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    server.replies = ["Tom is the cat"]
    stream = client.chat.completions.create(model="m1", messages=ASKED, stream=True)
    next(stream)
    streams.end_open()
    [incomplete] = recorded(recording)
    assert "truncated" in incomplete
    assert [chunk.choices[0].delta.content for chunk in stream] == ["is", "the", "cat"]
    assert len(recorded(recording)) == 1
