"""OpenInference, OpenLLMetry and Logfire beside ours, in both orders: every chat call is recorded exactly once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import logfire
import openai
import pytest
from openai.resources.chat import completions
from openinference.instrumentation.openai import OpenAIInstrumentor as OpenInference
from opentelemetry.instrumentation.openai import OpenAIInstrumentor as OpenLLMetry
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from memtrace_otel import semconv
from memtrace_otel.instrumentation.chat_history import conversations
from memtrace_otel.instrumentation.openai import OpenAIInstrumentor
from tests.conftest import Recording
from tests.integration.openai.conftest import ModelServer

QUESTION: list[Any] = [{"role": "user", "content": "What does Ana drink?"}]
AGAIN: list[Any] = [*QUESTION, {"role": "assistant", "content": "Tea."}, {"role": "user", "content": "Where?"}]


@contextmanager
def instrumentor(kind: Any, recording: Recording) -> Iterator[None]:
    kind().instrument(tracer_provider=recording.provider, skip_dep_check=True)
    try:
        yield
    finally:
        kind().uninstrument()


@contextmanager
def by_openllmetry(recording: Recording) -> Iterator[None]:
    """Its `uninstrument` leaves wrappers behind."""
    kinds: list[Any] = [completions.Completions, completions.AsyncCompletions]
    before = [kind.create for kind in kinds]
    with instrumentor(OpenLLMetry, recording):
        yield
    for kind, create in zip(kinds, before, strict=True):
        kind.create = create


@contextmanager
def by_logfire(recording: Recording) -> Iterator[None]:
    """Logfire suppresses all other instrumentations during a model call."""
    settings: Any = {"send_to_logfire": False, "console": False, "metrics": False}
    processor = SimpleSpanProcessor(recording._exporter)  # pyright: ignore[reportPrivateUsage]
    instance = logfire.configure(local=True, **settings, additional_span_processors=[processor])
    with instance.instrument_openai():
        yield


OTHERS: dict[str, Callable[[Recording], Any]] = {
    "openinference": lambda recording: instrumentor(OpenInference, recording),
    "openllmetry": by_openllmetry,
    "logfire": by_logfire,
}


@pytest.fixture(params=["ours first", "theirs first"])
def order(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=OTHERS)
def both(request: pytest.FixtureRequest, order: str) -> Iterator[Recording]:
    recording = Recording()
    conversations.forget()
    with ExitStack() as stack:
        kinds = [lambda recording: instrumentor(OpenAIInstrumentor, recording), OTHERS[request.param]]
        for kind in kinds if order == "ours first" else reversed(kinds):
            stack.enter_context(kind(recording))
        yield recording


def kinds_of(recording: Recording) -> list[str]:
    """The kinds of our operations, with a span and its continuation as one."""
    spans = [span for span in recording.spans() if semconv.OUTPUTS in (span.attributes or {})]
    return sorted(str((span.attributes or {})[semconv.OP_KIND]) for span in spans)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_every_chat_call_is_recorded_once(
    both: Recording, server: ModelServer, client: openai.OpenAI, streamed: bool
) -> None:
    server.replies = ["Tea.", "Home.", "Tea."]
    with both.tracer.start_as_current_span("turn"):
        for messages in (QUESTION, AGAIN):
            asked = client.chat.completions.create(model="m1", messages=messages, stream=streamed)
            for _ in asked if streamed else ():
                pass
        async with openai.AsyncOpenAI(base_url=server.url, api_key="none") as async_client:
            reply: Any = await async_client.chat.completions.create(model="m1", messages=QUESTION, stream=streamed)
            if streamed:
                async for _ in reply:
                    pass
    assert kinds_of(both) == ["ingest", "respond", "respond", "respond"]


@pytest.mark.parametrize("order", ["ours first"], indirect=True)
def test_their_span_is_enriched(both: Recording, server: ModelServer, client: openai.OpenAI) -> None:
    server.replies = ["Tea."]
    client.chat.completions.create(model="m1", messages=QUESTION)
    [span] = both.spans()
    assert (span.attributes or {})[semconv.OP_KIND] == "respond"
    assert span.instrumentation_scope is not None
    assert not span.instrumentation_scope.name.startswith("memtrace_otel")


def test_calls_that_the_program_suppresses_are_counted(
    server: ModelServer, client: openai.OpenAI, recording: Recording
) -> None:
    server.replies = ["Tea."]
    with instrumentor(OpenAIInstrumentor, recording):
        with suppress_instrumentation():
            client.chat.completions.create(model="m1", messages=QUESTION)
        patches: Any = OpenAIInstrumentor().patches
        patches.report_at_exit()
    [span] = recording.spans()
    told = {semconv.SYSTEM: "openai", semconv.LOST: 1}
    assert (span.name, dict(span.attributes or {})) == (semconv.SUPPRESSED_SPAN, told)
