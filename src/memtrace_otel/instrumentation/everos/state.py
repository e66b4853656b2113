"""State of the EverOS instrumentor: memcells, owners of sessions, the session of one call or background run."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from opentelemetry.trace import Tracer

from memtrace_otel.capture import Operation
from memtrace_otel.instrumentation import steps
from memtrace_otel.instrumentation.base import Patches
from memtrace_otel.instrumentation.everos.values import Cell, Space, value
from memtrace_otel.instrumentation.steps import StepFunction
from memtrace_otel.model import content_digest
from memtrace_otel.semconv import Role

_REMEMBERED = 10_000
K = TypeVar("K")
V = TypeVar("V")


class EverosPatches(Patches):
    """The wrappers of one `instrument()` and the state of this process.

    EverOS passes memcells without ids and sessions without owners. This class keeps both.
    """

    def __init__(self, tracer: Tracer) -> None:
        super().__init__(tracer, "everos")
        self._cells: OrderedDict[str, Cell] = OrderedDict()
        self._scopes: OrderedDict[tuple[Space, str], str] = OrderedDict()
        self._indexed: OrderedDict[str, set[str]] = OrderedDict()

    def wrap_importers(self, definition: str, name: str, step: StepFunction, importers: Iterable[str]) -> None:
        """Wrap a function in the modules that import it by name, unless they import the wrapped function."""

        def wrap(module: Any) -> None:
            if getattr(module, name, None) is not getattr(sys.modules[definition], name, None):
                self.wrap(module, name, step)

        for importer in importers:
            self.when_imported(importer, wrap)

    def scope_of_session(self, space: Space, session_id: str, turns: Iterable[Any]) -> str:
        """Scope of a session: of its first user, of the session itself before a user speaks."""
        known = self._scopes.get((space, session_id))
        if known is not None:
            return _keep(self._scopes, (space, session_id), known)
        user = next((value(turn, "sender_id") for turn in turns if value(turn, "role") == "user"), None)
        if user is None:
            return space.session(session_id)
        return _keep(self._scopes, (space, session_id), space.owner(user))

    def learn_cell(self, payload: str, cell: Cell) -> None:
        """Remember the memcell with this content."""
        _keep(self._cells, content_digest(payload), cell)

    def cell_of(self, memcell: Any) -> Cell | None:
        """The memcell with this content; None when this process has not seen its id."""
        return self._cells.get(content_digest(memcell.model_dump_json()))

    def indexed(self, md_path: str) -> set[str]:
        """Ids of the entries of a markdown file that this process has indexed."""
        return _keep(self._indexed, md_path, self._indexed.get(md_path, set[str]()))


def _keep(entries: OrderedDict[K, V], key: K, kept: V) -> V:
    """Store an entry; the least recently used entry is forgotten first."""
    entries[key] = kept
    entries.move_to_end(key)
    while len(entries) > _REMEMBERED:
        entries.popitem(last=False)
    return kept


Call = steps.Call[EverosPatches]


@dataclass(frozen=True, slots=True)
class Known:
    """A variable that EverOS passes on as bare text."""

    ref: str
    content: object
    origin: str

    def read_by(self, operation: Operation, role: str = Role.OTHER) -> int:
        """Record the variable as an input of `operation`; returns the index of the input."""
        return operation.read(self.ref, role=role, content=self.content, origin=self.origin)


@dataclass(slots=True)
class Session:
    """State of one write, strategy run or search.

    `scope`: of the owner. `known`: the variables behind texts. `event`: the event that started a strategy.
    """

    space: Space
    scope: str
    event: Any = None
    known: dict[str, Known] = field(default_factory=dict[str, Known])

    def learn(self, text: str, ref: str, operation: Operation) -> None:
        """Remember the variable of a text. The newest variable wins."""
        self.known[text] = Known(ref, text, operation.origin)


SESSION: ContextVar[Session | None] = ContextVar("memtrace_everos_session", default=None)


@dataclass(slots=True)
class Asking:
    """The model calls of one step: the name of the prompt and the number of calls.

    `once`: a second call means that EverOS could not use the first reply. `given`, `made`: tokens of all
    prompts and replies.
    """

    prompt: str
    once: bool = True
    calls: int = 0
    given: int = 0
    made: int = 0


ASKING: ContextVar[Asking | None] = ContextVar("memtrace_everos_asking", default=None)


def ask(call: Call, prompt: str, *, once: bool = True) -> None:
    """Name the prompt of the model calls inside `call`."""
    call.carry(ASKING, Asking(prompt, once))
