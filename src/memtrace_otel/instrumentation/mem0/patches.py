"""The wrappers of Mem0, and what they know beyond a single call."""

from __future__ import annotations

import importlib
from typing import Any

from opentelemetry.trace import Tracer

from memtrace_otel.instrumentation.mem0 import points
from memtrace_otel.instrumentation.mem0.earlier_messages import EarlierMessages
from memtrace_otel.instrumentation.mem0.known_records import KnownRecords
from memtrace_otel.instrumentation.patches import Patches
from memtrace_otel.instrumentation.threads import ContextThread, Namespace, with_context_threads

SYSTEM = "mem0"


class Mem0Patches(Patches):
    """`main` is the module `mem0.memory.main`."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__(tracer, SYSTEM)
        self.main: Any = None
        self.records = KnownRecords()
        self.messages = EarlierMessages()

    def wrap_main(self, main: Any) -> None:
        """Wrap what this release of Mem0 has of the table, and let its thread pools keep the context."""
        self.main = main
        for class_name in points.CLASSES:
            self.wrap_all(getattr(main, class_name, None), points.METHODS)
        self.wrap_all(main, points.FUNCTIONS)
        futures = getattr(main, "concurrent", None)
        if futures is not None:
            self.replace(main, "concurrent", with_context_threads(futures))

    def wrap_proxy(self, proxy: Any) -> None:
        """`mem0.proxy` adds to the memory in a bare thread: let it keep the context of the chat call."""
        self.replace(proxy, "threading", Namespace(proxy.threading, Thread=ContextThread))

    def cover_providers(self, memory: Any) -> None:
        """Wrap the methods of the providers of a Memory, once per provider class.

        Done when a Memory is used, so it makes no difference who built its providers, when, and from which package.
        """
        for attribute, steps in points.PROVIDERS.items():
            provider: object = memory
            for name in attribute.split("."):
                provider = getattr(provider, name, None)
            if provider is not None:
                self.cover(type(provider), steps)

    @property
    def decides(self) -> bool:
        """Whether this release asks a model what to do with extracted facts (1.x)."""
        return hasattr(self.main, "get_update_memory_messages")

    @property
    def default_decision_prompt(self) -> str:
        """The prompt template of 1.x for decisions, '' where there is none."""
        prompts = importlib.import_module("mem0.configs.prompts")
        return str(getattr(prompts, "DEFAULT_UPDATE_MEMORY_PROMPT", ""))
