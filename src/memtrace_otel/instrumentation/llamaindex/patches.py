"""The wrappers of LlamaIndex, and what they know beyond a single call."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import wrapt
from opentelemetry.trace import Tracer

from memtrace_otel.capture import scope_id
from memtrace_otel.capture.finalizers import report_waiting
from memtrace_otel.instrumentation.base import Patches
from memtrace_otel.instrumentation.llamaindex.ledger import Ledger
from memtrace_otel.instrumentation.llamaindex.messages import Queues
from memtrace_otel.instrumentation.llamaindex.owners import chat_store_of, session_of, store_name
from memtrace_otel.instrumentation.llamaindex.points import AGENT, POINTS, RETRIEVER, VECTOR_STORE
from memtrace_otel.instrumentation.steps import StepFunction
from memtrace_otel.instrumentation.store_location import ObjectNames, Places
from memtrace_otel.instrumentation.threads import with_context_executor, with_context_threads

SYSTEM = "llamaindex"


class LlamaIndexPatches(Patches):
    """`ledger`: the chunks and documents that this process has stored; `queues`: the messages of its conversations."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__(tracer, SYSTEM)
        self.ledger = Ledger()
        self.queues = Queues()
        self._nameless, self._places = ObjectNames(), Places()
        self._scope = lru_cache(maxsize=1024)(scope_id)

    def wrap_all_points(self) -> None:
        """Wrap each module of the table once the application has imported it."""
        self.apply(POINTS)
        self.when_imported(
            "llama_index.core.base.base_retriever",
            lambda module: self.wrap_inside(module.BaseRetriever, RETRIEVER),
        )
        self.when_imported(
            "llama_index.core.vector_stores.types",
            lambda module: self.cover_family(module.BasePydanticVectorStore, VECTOR_STORE),
        )
        self.when_imported(
            "llama_index.core.agent.workflow.base_agent",
            lambda module: self.cover_family(module.BaseWorkflowAgent, AGENT),
        )
        self.when_imported("llama_index.core.async_utils", self._keep_context)
        self.when_imported("llama_index.core.tools.function_tool", self._keep_context_of_tools)

    def scope_of(self, store: Any, new: str = "") -> str:
        """Scope of what a store holds, '' for None: its name in its place. One without a name is alone with what this
        object holds; `new` is what it goes by if it was not seen before."""
        if store is None:
            return ""
        name = store_name(store)
        if name != type(store).__name__:
            return self._scope(name, app=self._places.of(store) or None)
        return self.scope_of_nameless(name, self._nameless.name(store, new))

    def scope_of_nameless(self, kind: str, name: str) -> str:
        """Scope of a store of this class that has no name of its own and goes by this one."""
        return self._scope(kind, run=name or None)

    def scope_of_chat(self, memory: Any) -> str:
        """Scope of a chat memory: table and session in the place of its chat store, '' for None. One without a chat
        store is alone with its object."""
        store = chat_store_of(memory)
        if store is None:
            return self.scope_of(memory)
        return self._scope(store_name(store), run=session_of(memory), app=self._places.of(store) or None)

    def wrap_inside(self, owner: type, steps: Mapping[str, StepFunction]) -> None:
        """Wrap methods inside their decorators: a span that LlamaIndex has others make for the call is current in the
        step, which enriches it."""

        def within(function: Any, step: StepFunction) -> Any:
            decorator = getattr(function, "_self_wrapper", None)
            if decorator is None:
                return self.around(function, step)
            return wrapt.FunctionWrapper(within(function.__wrapped__, step), decorator)

        for name, step in steps.items():
            self.replace(owner, name, within(vars(owner)[name], step))

    def remove(self) -> None:
        """Restore the originals and report the streams that nobody reads."""
        super().remove()
        report_waiting()

    def _keep_context(self, async_utils: Any) -> None:
        """Earlier releases lose the context where a synchronous call runs a coroutine inside a running event loop."""
        futures = getattr(async_utils, "concurrent", None)
        if futures is not None:
            self.replace(async_utils, "concurrent", with_context_threads(futures))

    def _keep_context_of_tools(self, function_tool: Any) -> None:
        """Earlier releases lose it where a plain function is the tool of an agent, too."""
        if not hasattr(function_tool, "contextvars"):
            self.replace(function_tool, "asyncio", with_context_executor(function_tool.asyncio))
