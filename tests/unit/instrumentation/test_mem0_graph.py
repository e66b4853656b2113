"""Graph memory of Mem0 1.x, its steps alone. No Mem0 needed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from memtrace_otel.capture import operation
from memtrace_otel.instrumentation.mem0 import graph
from memtrace_otel.instrumentation.mem0.patches import Mem0Patches
from memtrace_otel.instrumentation.mem0.session import Session
from memtrace_otel.instrumentation.steps import observed
from tests.conftest import Recording


def test_a_reply_belongs_to_the_step_that_asks_for_it_and_to_none_that_failed(recording: Recording) -> None:
    patches = Mem0Patches(recording.tracer)
    memory = SimpleNamespace(collection_name="memories", graph=SimpleNamespace(llm=SimpleNamespace()))
    ask, reply = observed(graph.extract_entities, patches), observed(graph.generate_response, patches)

    def says(text: str) -> str:
        return text

    def answered() -> str:
        return reply(says, memory.graph.llm, ("one",), {})

    def failed() -> None:
        raise TimeoutError

    with operation(kind="ingest", system="mem0", tracer=recording.tracer) as adding:
        work = graph.Work(Session(memory, adding), "scope")
        token = graph.WORK.set(work)
        try:
            ask(answered, memory.graph, (), {})
            with pytest.raises(TimeoutError):
                ask(failed, memory.graph, (), {})
            reply(says, memory.graph.llm, ("late",), {})
        finally:
            graph.WORK.reset(token)
    assert [known.content for known in work.replies] == ["one"]
