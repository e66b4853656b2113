"""State of the LangChain instrumentor between calls: documents, records, runs and scopes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary, WeakValueDictionary

from opentelemetry.trace import Tracer

from memtrace_otel.capture import recall, scope_id
from memtrace_otel.instrumentation import steps
from memtrace_otel.instrumentation.base import Patches
from memtrace_otel.instrumentation.langchain.documents import KnownTexts, store_name
from memtrace_otel.instrumentation.langchain.records import Records
from memtrace_otel.instrumentation.store_location import ObjectNames, Places

SYSTEM = "langchain"


@dataclass(frozen=True, slots=True)
class Run:
    """A run: its place in the tree of runs, and its turn (None if a span is around the run)."""

    place: recall.Place
    turn: recall.Turn | None


class Runs:
    """The current runs of chains, tools and retrievers, as long as the library holds their run managers."""

    def __init__(self) -> None:
        self._managers: WeakValueDictionary[object, Any] = WeakValueDictionary()
        self._runs: WeakKeyDictionary[Any, Run] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._managers)

    def find(self, run_id: object) -> Run | None:
        """The run with this id, None if unknown."""
        manager = self._managers.get(run_id)
        return None if manager is None else self._runs.get(manager)

    def keep(self, manager: Any, run: Run) -> None:
        """Note a run that has started."""
        self._runs[manager] = run
        self._managers[manager.run_id] = manager


class LangChainState(Patches):
    """`documents` knows whole documents, `pieces` their chunks and extracts, `stored` the records of vector stores."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__(tracer, SYSTEM)
        self.documents, self.pieces, self.stored = KnownTexts(), KnownTexts(), KnownTexts()
        self.records, self.runs = Records(), Runs()
        self._nameless, self._places = ObjectNames(), Places()
        self._scope = lru_cache(maxsize=1024)(scope_id)

    def scope_of(self, store: Any) -> str:
        """Scope of a vector store: its collection in its place. A store without a name has a scope per object."""
        name = store_name(store)
        if name == type(store).__name__:
            return self._scope(name, run=self._nameless.name(store))
        return self._scope(name, app=self._places.of(store) or None)


Call: TypeAlias = steps.Call[LangChainState]
Families: TypeAlias = Mapping[tuple[str, str], Mapping[str, steps.StepFunction]]
"""Module and base class -> the steps of methods, wherever the base or a derived class defines them."""


def cover(patches: Patches, families: Families) -> None:
    """Cover each base class once the application has imported its module."""
    for (module_name, class_name), family in families.items():
        patches.when_imported(
            module_name,
            lambda module, name=class_name, family=family: patches.cover_family(getattr(module, name), family),
        )


def purpose(call: steps.Call[Any]) -> str:
    """`Class.method` of the library; a coroutine has the name of its sync twin."""
    owner = call.instance if isinstance(call.instance, type) else type(call.instance)
    name = call.wrapped.__name__
    plain = name.removeprefix("a") if inspect.iscoroutinefunction(call.wrapped) else name
    return f"{owner.__name__}.{plain}"


def first(call: Call, name: str) -> Any:
    """The argument of this name, else the first one: a class of the application may rename the argument."""
    return call.arguments().get(name, call.args[0] if call.args else None)
