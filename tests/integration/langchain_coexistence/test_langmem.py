"""langmem beside other instrumentations of LangChain: the model calls of its extraction answer nobody."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore
from openinference.instrumentation.langchain import LangChainInstrumentor as OpenInference
from opentelemetry.instrumentation.genai.langchain import LangChainInstrumentor as GenAI

from memtrace_otel import semconv
from memtrace_otel.capture import operation
from memtrace_otel.instrumentation.langchain import LangChainInstrumentor
from memtrace_otel.instrumentation.langchain.langgraph import LangGraphInstrumentor
from memtrace_otel.instrumentation.langchain.langmem import LangMemInstrumentor
from memtrace_otel.instrumentation.openai import OpenAIInstrumentor
from tests.integration.langchain.conftest import ChatStub, graph_of, model, operations, server
from tests.integration.langchain_coexistence.test_coexistence import instrumented, records_chat, theirs
from tests.integration.langmem.conftest import Remember, aremember, manager, memory, remember, remembers

__all__ = ["aremember", "manager", "memory", "model", "remember", "server"]

OURS = (OpenAIInstrumentor, LangChainInstrumentor, LangGraphInstrumentor, LangMemInstrumentor)

pytestmark = pytest.mark.usefixtures("content_on")


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
@pytest.mark.parametrize("ours_first", [True, False], ids=["ours first", "theirs first"])
@pytest.mark.parametrize("other", [GenAI, OpenInference], ids=["genai", "openinference"])
async def test_the_span_of_an_extraction_is_no_answer(
    other: Any,
    ours_first: bool,
    way: str,
    remember: Remember,
    aremember: Remember,
    memory: InMemoryStore,
    model: ChatOpenAI,
    server: ChatStub,
) -> None:
    async def learn() -> None:
        server.script = [remembers("Ann drinks tea.")]
        if way == "invoke":
            remember("I drink tea.")
        else:
            await aremember("I drink tea.")

    with instrumented(other) as alone:
        await learn()
    for item in memory.search(()):
        memory.delete(item.namespace, item.key)
    with instrumented(*((*OURS, other) if ours_first else (other, *OURS))) as both:
        await learn()
        server.script = ["Tea."]
        assert model.invoke("What is it that Ann drinks?").content == "Tea."

    assert records_chat(alone)
    assert [row for row in theirs(alone) if row not in theirs(both)] == []  # theirs, as they were
    [answer] = graph_of(both).operations(kind="respond")
    [step] = [op for op in operations(both) if op.kind == "other"]
    assert (step.system, step.attributes[semconv.OP_PURPOSE]) == ("langmem", "MemoryManager.invoke")
    assert step.origin != answer.origin
    assert [op.kind for op in operations(both) if op.system == "langmem"].count("extract") == 1


@pytest.mark.parametrize("other", [GenAI, OpenInference], ids=["genai", "openinference"])
def test_a_step_that_is_streamed_is_no_answer(other: Any, model: ChatOpenAI, server: ChatStub) -> None:
    server.script = ["Tea."]
    with instrumented(*OURS, other) as both, operation(kind="extract", system="mine", tracer=both.tracer):
        assert "".join(str(chunk.content) for chunk in model.stream("What does Ann say?")) == "Tea."
    assert records_chat(both)
    assert [op.system for op in operations(both) if op.kind == "other"] == ["mine"]
    assert not graph_of(both).operations(kind="respond")
