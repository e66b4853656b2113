"""The wrappers of LangChain, and what they know beyond a single call."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from typing import Any
from weakref import WeakKeyDictionary

from opentelemetry.trace import Tracer

from memtrace_otel.capture import origins, scope_id
from memtrace_otel.instrumentation.langchain.documents import KnownTexts, store_name
from memtrace_otel.instrumentation.langchain.points import FAMILIES
from memtrace_otel.instrumentation.patches import Patches

SYSTEM = "langchain"
_TOMBSTONES = 10_000


class LangChainPatches(Patches):
    """`loaded` knows what documents and chunks are before they are stored, `stored` what they are afterwards."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__(tracer, SYSTEM)
        self.loaded, self.stored = KnownTexts(), KnownTexts()
        self._guard = threading.Lock()
        self._nameless: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self._deleted: OrderedDict[tuple[str, str], None] = OrderedDict()

    def cover_families(self) -> None:
        """Cover each base class once its module is imported."""
        for (module_name, class_name), steps in FAMILIES.items():
            self.when_imported(
                module_name,
                lambda module, name=class_name, steps=steps: self.cover_family(getattr(module, name), steps),
            )

    def scope_of(self, store: Any) -> str:
        """Scope of a vector store: its collection. One without a name is alone with the memories of this object."""
        name = store_name(store)
        if name != type(store).__name__:
            return scope_id(name)
        with self._guard:
            try:
                own = self._nameless.setdefault(store, secrets.token_hex(8))
            except TypeError:  # an object that cannot be hashed or referred to weakly
                own = ""
        return scope_id(name, run=own or None)

    def is_stored(self, scope: str, ref: str) -> bool:
        """Whether this process has written the record and not deleted it since."""
        return bool(origins().find(scope, ref)) and (scope, ref) not in self._deleted

    def note(self, scope: str, ref: str, *, deleted: bool) -> None:
        """Remember whether the newest version of a record is a tombstone."""
        with self._guard:
            self._deleted.pop((scope, ref), None)
            if deleted:
                self._deleted[scope, ref] = None
                while len(self._deleted) > _TOMBSTONES:
                    self._deleted.popitem(last=False)
