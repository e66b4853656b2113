"""The wrappers of LangChain, and what they know beyond a single call."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from opentelemetry.trace import Tracer

from memtrace_otel.capture import scope_id
from memtrace_otel.instrumentation.base import Patches
from memtrace_otel.instrumentation.langchain.documents import KnownTexts, store_name
from memtrace_otel.instrumentation.langchain.identity import Records
from memtrace_otel.instrumentation.langchain.points import FAMILIES, POINTS
from memtrace_otel.instrumentation.langchain.runs import Runs
from memtrace_otel.instrumentation.store_location import ObjectNames, Places

SYSTEM = "langchain"


class LangChainPatches(Patches):
    """`documents` knows whole documents, `pieces` what was cut out of them, `stored` the records that they became;
    `runs` what runs and of which turn that is."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__(tracer, SYSTEM)
        self.documents, self.pieces, self.stored = KnownTexts(), KnownTexts(), KnownTexts()
        self.records, self.runs = Records(), Runs()
        self._nameless, self._places = ObjectNames(), Places()
        self._scope = lru_cache(maxsize=1024)(scope_id)

    def cover_families(self) -> None:
        """Cover each base class once its module is imported."""
        self.apply(POINTS)
        for (module_name, class_name), steps in FAMILIES.items():
            self.when_imported(
                module_name,
                lambda module, name=class_name, steps=steps: self.cover_family(getattr(module, name), steps),
            )

    def scope_of(self, store: Any) -> str:
        """Scope of a vector store: its collection in its place. One without a name is alone with the memories of this
        object."""
        name = store_name(store)
        if name == type(store).__name__:
            return self._scope(name, run=self._nameless.name(store))
        return self._scope(name, app=self._places.of(store) or None)
