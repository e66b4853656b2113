"""What one run of a memory manager has seen so far; carried in the context, so worker threads and tasks share it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, cast

from memtrace_otel.capture import variable_ref
from memtrace_otel.instrumentation.langchain.documents import Known
from memtrace_otel.instrumentation.langchain.langgraph.store import StoreOp, memory_ref
from memtrace_otel.instrumentation.langchain.langgraph.values import text_of
from memtrace_otel.model import make_ref
from memtrace_otel.semconv import RefKind


@dataclass(frozen=True, slots=True)
class Statement:
    """A memory as langmem handles it in memory: its id, what it says, and whether it asks for a removal."""

    id: str
    text: str
    removes: bool = False

    @property
    def ref(self) -> str:
        """`fact:<digest>`; a removal says nothing but what it removes."""
        return variable_ref(RefKind.FACT, ["remove", self.id] if self.removes else self.text)


@dataclass(slots=True)
class Session:
    """State of one run. `said_in` tells its messages from equal ones of another run, `stored` maps the ids that the
    model is shown to the records behind them, `facts` maps ids to the newest fact that stands for them."""

    said_in: str
    stored: dict[str, Known] = field(default_factory=dict[str, Known])
    ids: dict[tuple[tuple[str, ...], str], str] = field(default_factory=dict[tuple[tuple[str, ...], str], str])
    facts: dict[str, Known] = field(default_factory=dict[str, Known])

    def show(self, id: str, item: Any, scope: str) -> None:
        """Note that the model is shown a stored record under `id`."""
        namespace = tuple(item.namespace)
        self.stored[id] = Known(memory_ref(namespace, item.key), None, scope)
        self.ids[namespace, item.key] = id

    def variable(self, id: str) -> Known:
        """The variable that an id stands for: a fact of this run, a stored record, or one of the caller's own."""
        return self.facts.get(id) or self.stored.get(id) or Known(make_ref(RefKind.MEMORY, id), None)

    def sources(self, op: StoreOp) -> Sequence[Known] | None:
        """The decision that led to a write, None when there was none (a default memory)."""
        known = self.facts.get(self.ids.get((op.namespace, op.key), op.key))
        return None if known is None else [known]


SESSION: ContextVar[Session | None] = ContextVar("memtrace_langmem_session", default=None)


def statement(memory: Any) -> Statement:
    """Read an ExtractedMemory, or a row (id, kind, content) of what a manager is given."""
    id, content = str(memory[0]), memory[-1]
    if _kind(content) == "RemoveDoc":
        return Statement(str(getattr(content, "json_doc_id", None) or id), "", removes=True)
    return Statement(id, text_of(_plain(content)))


def _kind(content: object) -> str:
    name = getattr(content, "__repr_name__", None)
    return str(name()) if callable(name) else ""


def _plain(content: Any) -> object:
    if isinstance(content, str | Mapping):
        return cast(object, content)
    fields = getattr(cast(object, content.__class__), "model_fields", None)
    if isinstance(fields, Mapping):  # not model_dump, which may raise and may be the user's own
        return {name: getattr(content, str(name), None) for name in cast(Mapping[str, object], fields)}
    return content
