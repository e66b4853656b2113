"""LangGraph with all libraries of a graph under observation."""

from __future__ import annotations

from collections.abc import Iterator
from time import sleep
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from memtrace_otel.instrumentation.chat_history import conversations
from memtrace_otel.instrumentation.langchain import LangChainInstrumentor
from memtrace_otel.instrumentation.langchain.langgraph import LangGraphInstrumentor
from memtrace_otel.instrumentation.langchain.langmem import LangMemInstrumentor
from memtrace_otel.instrumentation.openai import OpenAIInstrumentor
from tests.conftest import Recording
from tests.integration.langchain.conftest import model, server

__all__ = ["SlowSaver", "model", "server"]


class SlowSaver(InMemorySaver):
    """A checkpointer that writes a thread after the next model call."""

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        sleep(0.2)
        return super().put(config, checkpoint, metadata, new_versions)


@pytest.fixture
def instrumented(recording: Recording) -> Iterator[None]:
    conversations.forget()
    instrumentors = (OpenAIInstrumentor(), LangChainInstrumentor(), LangGraphInstrumentor(), LangMemInstrumentor())
    for instrumentor in instrumentors:
        instrumentor.instrument(tracer_provider=recording.provider, skip_dep_check=True)
    yield
    for instrumentor in reversed(instrumentors):
        instrumentor.uninstrument()
