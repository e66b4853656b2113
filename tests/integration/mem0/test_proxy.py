"""`mem0.proxy`: the chat call adds to the memory in a thread, and the add is in the trace of the caller."""

from __future__ import annotations

import importlib
import sys
import threading
from types import ModuleType
from typing import Any

import pytest

from memtrace_otel.instrumentation.mem0 import Mem0Instrumentor
from tests.conftest import Recording
from tests.integration.mem0.test_client import Platform, platform

__all__ = ["platform"]


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The real module. litellm, which it wants to import, is no dependency of Mem0: the two names it uses stand in."""
    litellm: Any = ModuleType("litellm")
    litellm.supports_function_calling = lambda model: True
    litellm.completion = lambda **asked: asked["messages"][-1]["content"]
    monkeypatch.setitem(sys.modules, "litellm", litellm)
    module = importlib.import_module("mem0.proxy.main")
    monkeypatch.setattr(module, "litellm", litellm)
    return module


def chat(proxy: ModuleType, platform: Platform) -> Any:
    """One chat call, with what it added to the memory waited for. No release gets over its own search of the hosted
    service (1.x takes the result for a list, 2.x refuses the arguments): then the error."""
    messages = [{"role": "user", "content": "I live in Paris."}]
    before = set(threading.enumerate())
    try:
        mem0 = proxy.Mem0(api_key="secret", host=platform.url)
        result = mem0.chat.completions.create("gpt", messages=messages, user_id="ann")
    except Exception as error:
        result = str(error)
    for thread in set(threading.enumerate()) - before:
        if type(thread).__name__ in ("Thread", "ContextThread") and "add_task" in thread.name:
            thread.join()
    return result


def test_the_proxy_adds_in_the_trace_of_its_caller(proxy: ModuleType, platform: Platform, recording: Recording) -> None:
    platform.answers["POST", "/memories/search/"] = {"results": [{"id": "r1", "memory": "Ann", "user_id": "ann"}]}
    platform.answers["POST", "/memories/add/"] = {"results": [{"id": "r2", "event": "ADD", "memory": "Lives in Paris"}]}
    platform.answers["POST", "/v1/memories/"] = platform.answers["POST", "/memories/add/"]
    without = chat(proxy, platform)
    Mem0Instrumentor().instrument(tracer_provider=recording.provider)
    try:
        with recording.provider.get_tracer("app").start_as_current_span("turn") as turn:
            assert chat(proxy, platform) == without
    finally:
        Mem0Instrumentor().uninstrument()
    assert proxy.threading is threading  # given back
    (added,) = [span for span in recording.spans() if span.name == "upsert_memory"]
    assert added.parent is not None
    assert added.parent.span_id == turn.get_span_context().span_id
