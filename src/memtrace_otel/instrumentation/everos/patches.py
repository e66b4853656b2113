"""The wrappers of EverOS, and what they know beyond a single call."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, TypeVar

from opentelemetry.trace import Tracer, TracerProvider

from memtrace_otel.instrumentation.base import Patches
from memtrace_otel.instrumentation.everos.variables import Cell, Space, value
from memtrace_otel.instrumentation.steps import StepFunction
from memtrace_otel.model import content_digest

SYSTEM = "everos"
_REMEMBERED = 10_000
K = TypeVar("K")
V = TypeVar("V")


class EverosPatches(Patches):
    """`provider` is the application's tracer provider (None: the global one).

    EverOS hands memcells over without their ids and sessions without their owners: both are remembered here.
    """

    def __init__(self, tracer: Tracer, provider: TracerProvider | None = None) -> None:
        super().__init__(tracer, SYSTEM)
        self.provider = provider
        self._cells: OrderedDict[str, Cell] = OrderedDict()
        self._scopes: OrderedDict[tuple[Space, str], str] = OrderedDict()
        self._indexed: OrderedDict[str, set[str]] = OrderedDict()

    def wrap_importers(self, definition: str, name: str, step: StepFunction, importers: Iterable[str]) -> None:
        """Wrap a function where other modules have taken it over, unless what they took over is wrapped already."""

        def wrap(module: Any) -> None:
            if getattr(module, name, None) is not getattr(sys.modules[definition], name, None):
                self.wrap(module, name, step)

        for importer in importers:
            self.when_imported(importer, wrap)

    def scope_of_session(self, space: Space, session_id: str, turns: Iterable[Any]) -> str:
        """Scope of a session: of the first user who speaks in it, of the session itself until one does."""
        known = self._scopes.get((space, session_id))
        if known is not None:
            return _keep(self._scopes, (space, session_id), known)
        user = next((value(turn, "sender_id") for turn in turns if value(turn, "role") == "user"), None)
        if user is None:
            return space.session(session_id)
        return _keep(self._scopes, (space, session_id), space.owner(user))

    def learn_cell(self, payload: str, cell: Cell) -> None:
        """Remember which memcell a content is."""
        _keep(self._cells, content_digest(payload), cell)

    def cell_of(self, memcell: Any) -> Cell | None:
        """The memcell with this content, None when this process has not seen its id."""
        return self._cells.get(content_digest(memcell.model_dump_json()))

    def indexed(self, md_path: str) -> set[str]:
        """Ids of the entries of a markdown file that were indexed here."""
        return _keep(self._indexed, md_path, self._indexed.get(md_path, set[str]()))


def _keep(entries: OrderedDict[K, V], key: K, kept: V) -> V:
    """Note an entry; what was asked for longest ago is forgotten first."""
    entries[key] = kept
    entries.move_to_end(key)
    while len(entries) > _REMEMBERED:
        entries.popitem(last=False)
    return kept
