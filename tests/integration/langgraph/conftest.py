"""LangGraph with everything that runs in one of its graphs under observation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memtrace_otel.instrumentation.langchain import LangChainInstrumentor
from memtrace_otel.instrumentation.langgraph import LangGraphInstrumentor
from memtrace_otel.instrumentation.langmem import LangMemInstrumentor
from memtrace_otel.instrumentation.openai import OpenAIInstrumentor, conversations
from tests.conftest import Recording
from tests.integration.langchain.conftest import model, server

__all__ = ["model", "server"]


@pytest.fixture
def instrumented(recording: Recording) -> Iterator[None]:
    conversations.forget()
    instrumentors = (OpenAIInstrumentor(), LangChainInstrumentor(), LangGraphInstrumentor(), LangMemInstrumentor())
    for instrumentor in instrumentors:
        instrumentor.instrument(tracer_provider=recording.provider, skip_dep_check=True)
    yield
    for instrumentor in reversed(instrumentors):
        instrumentor.uninstrument()
