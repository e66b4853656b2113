"""langmem instrumentor: a memory manager's run around its searches, extraction, decisions and writes.

Reads and writes are those of the LangGraph store, model calls those of LangChain: their instrumentors record them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from opentelemetry.context import Context, get_current
from opentelemetry.trace import Tracer

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, variable_ref
from memtrace_otel.capture.content import message_refs
from memtrace_otel.capture.fork import new_lock_after_fork
from memtrace_otel.instrumentation import steps
from memtrace_otel.instrumentation.base import MemoryInstrumentor, Patches, Points
from memtrace_otel.instrumentation.langchain.chat import REPLIES
from memtrace_otel.instrumentation.langchain.documents import Known
from memtrace_otel.instrumentation.langchain.langgraph.store import WRITER, StoreOp, Writer, memory_ref, text_of
from memtrace_otel.instrumentation.langchain.messages import message_of
from memtrace_otel.instrumentation.langchain.state import purpose
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.model import make_ref
from memtrace_otel.semconv import Action, Incomplete, OpKind, RefKind, Role

__all__ = ["LangMemInstrumentor"]

SYSTEM = "langmem"
EXTRACTION_PROMPT = make_ref(RefKind.PROMPT, "langmem.memory_manager")
_PENDING = 1024


class LangMemInstrumentor(MemoryInstrumentor):
    """Instruments the memory managers of `langmem` 0.0.16 and later."""

    system = SYSTEM
    requirement = "langmem>=0.0.16,<0.1"

    def make_patches(self, tracer: Tracer) -> LangMemState:
        """The state that the steps share."""
        return LangMemState(tracer)

    def patch(self, patches: LangMemState) -> None:
        """Wrap the methods below, each once the application has imported its module."""
        points: Points = {
            "langmem.knowledge.extraction": {
                "MemoryStoreManager.invoke": manage,
                "MemoryStoreManager.ainvoke": manage,
                "MemoryStoreManager._sort_results": sort_results,
                "MemoryStoreManager._apply_manager_output": decide,
                "MemoryManager.invoke": extract,
                "MemoryManager.ainvoke": extract,
            },
            "langmem.reflection": {"LocalReflectionExecutor.submit": submit},
        }
        patches.apply(points)


class LangMemState(Patches):
    """`delayed` has the contexts of queued reflections."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__(tracer, SYSTEM)
        self.delayed = Delayed()


class Delayed:
    """The contexts in which payloads were queued: `ReflectionExecutor` runs payloads in another thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        new_lock_after_fork(self)
        self._waiting: OrderedDict[int, tuple[object, Context]] = OrderedDict()

    def put(self, payload: object) -> None:
        """Keep the current context for this object; the oldest contexts are dropped first."""
        with self._lock:
            self._waiting[id(payload)] = (payload, get_current())
            while len(self._waiting) > _PENDING:
                self._waiting.popitem(last=False)

    def take(self, payload: object) -> Context | None:
        """The context of a payload, None if it was not queued."""
        with self._lock:
            kept, context = self._waiting.pop(id(payload), (None, None))
        return context if kept is payload else None


Call: TypeAlias = steps.Call[LangMemState]


@dataclass(frozen=True, slots=True)
class Statement:
    """A memory inside langmem: its id and text, and whether it asks for a removal."""

    id: str
    text: str
    removes: bool = False

    @property
    def ref(self) -> str:
        """`fact:<digest>`; a removal has no text, so its digest is that of the id."""
        return variable_ref(RefKind.FACT, ["remove", self.id] if self.removes else self.text)


@dataclass(slots=True)
class Session:
    """One run of a manager, carried in the context.

    `mark` is part of the names of its messages. `stored` maps the ids in the model's prompt to stored records, `facts`
    maps ids to the newest fact.
    """

    mark: str
    stored: dict[str, Known] = field(default_factory=dict[str, Known])
    ids: dict[tuple[tuple[str, ...], str], str] = field(default_factory=dict[tuple[tuple[str, ...], str], str])
    facts: dict[str, Known] = field(default_factory=dict[str, Known])

    def show(self, id: str, item: Any, scope: str) -> None:
        """Note that the prompt has a stored record under `id`."""
        namespace = tuple(item.namespace)
        self.stored[id] = Known(memory_ref(namespace, item.key), None, scope)
        self.ids[namespace, item.key] = id

    def variable(self, id: str) -> Known:
        """The variable of an id: a fact of this run, a stored record, or a memory of the caller."""
        return self.facts.get(id) or self.stored.get(id) or Known(make_ref(RefKind.MEMORY, id), None)

    def sources(self, op: StoreOp) -> Sequence[Known] | None:
        """The decision behind a write, None for none (a default memory)."""
        known = self.facts.get(self.ids.get((op.namespace, op.key), op.key))
        return None if known is None else [known]


SESSION: ContextVar[Session | None] = ContextVar("memtrace_langmem_session", default=None)


def manage(call: Call) -> Step:
    """`MemoryStoreManager.invoke`: messages in; the nested store operations are the writes."""
    given = call.arguments().get("input")
    operation = call.open(
        semconv.UPSERT_MEMORY, OpKind.INGEST, scope="", purpose=purpose(call), parent=call.patches.delayed.take(given)
    )
    session = Session(operation.origin[33:])
    _read_messages(operation, given, session.mark)
    writer = Writer(session.sources)
    call.carry(SESSION, session)
    call.carry(WRITER, writer)
    written = yield
    operation.scope = writer.scope
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(written))


def extract(call: Call) -> Step:
    """`MemoryManager.invoke`: messages and known memories in, the model's replies and a fact per new memory out."""
    given = call.arguments().get("input")
    writer = WRITER.get()
    operation = call.open(None, OpKind.EXTRACT, scope=writer.scope if writer else "", purpose=purpose(call))
    session = SESSION.get() or Session(operation.origin[33:])
    prompt = operation.read(
        EXTRACTION_PROMPT, role=Role.PROMPT, content=str(getattr(call.instance, "instructions", ""))
    )
    sources = [prompt, *_read_messages(operation, given, session.mark)]
    before = {known.id: known for known in map(statement, _existing(given))}
    shown = {id: session.variable(id).read_by(operation, known.text, Role.CANDIDATE) for id, known in before.items()}
    replies: list[Any] = []
    call.carry(REPLIES, replies)
    extracted = yield
    for text in (message_of(reply).text for reply in replies):
        operation.wrote(variable_ref(RefKind.COMPLETION, text), content=text)
    if replies and not any(getattr(reply, "tool_calls", None) for reply in replies):
        operation.mark(
            Incomplete.UNPARSED
        )  # langmem stores nothing from a reply without a tool call, and raises no error
    for made in map(statement, cast(Sequence[Any], extracted)):
        if made.id in before and not made.removes and made.text == before[made.id].text:
            continue
        fed_by = [*sources, shown[made.id]] if made.id in shown else sources
        operation.wrote(made.ref, content=made.text, sources=fed_by)
        session.facts[made.id] = Known(made.ref, operation.origin)


def sort_results(call: Call) -> Step:
    """`_sort_results`: the ids under which the prompt has the stored records."""
    session, writer = SESSION.get(), WRITER.get()
    shown = yield
    if session is None or writer is None:
        return
    for id, item in cast(Mapping[str, Any], shown).items():
        session.show(id, item, writer.scopes.get(tuple(item.namespace), writer.scope))


def decide(call: Call) -> Step:
    """`_apply_manager_output`: facts and records in, one output per decision; NONE for an unchanged record."""
    session, writer = SESSION.get(), WRITER.get()
    if session is None or writer is None:
        return
    arguments = call.arguments()
    made = [statement(memory) for memory in cast(Sequence[Any], arguments.get("manager_output") or ())]
    before = {row.id: row for row in map(statement, cast(Sequence[Any], arguments.get("store_based") or ()))}
    operation = call.open(None, OpKind.DECIDE, scope=writer.scope, purpose="MemoryStoreManager._apply_manager_output")
    yield
    for fact in made:
        stored, known = session.stored.get(fact.id), session.facts.get(fact.id)
        shown = before.get(fact.id)
        sources = [known.read_by(operation, fact.text)] if known else []
        if stored is not None:
            sources.append(stored.read_by(operation, shown.text if shown else "", Role.CANDIDATE))
        if known is None or known.ref != fact.ref:
            if stored is not None:
                operation.wrote(stored.ref, action=Action.NONE, content=fact.text, sources=sources)
            continue
        action = Action.DELETE if fact.removes else Action.UPDATE if stored is not None else Action.ADD
        operation.wrote(fact.ref, action=action, content=fact.text, sources=sources)
        session.facts[fact.id] = Known(fact.ref, operation.origin)


def submit(call: Call) -> Step:
    """`LocalReflectionExecutor.submit`: the manager is called with this payload later."""
    call.patches.delayed.put(call.arguments().get("payload"))
    yield


def statement(memory: Any) -> Statement:
    """Read an ExtractedMemory, or a row (id, kind, content) of a manager's input."""
    id, content = str(memory[0]), memory[-1]
    name = getattr(content, "__repr_name__", None)
    if callable(name) and name() == "RemoveDoc":
        return Statement(str(getattr(content, "json_doc_id", None) or id), "", removes=True)
    return Statement(id, text_of(_plain(content)))


def _plain(content: Any) -> object:
    if isinstance(content, str | Mapping):
        return cast(object, content)
    fields = getattr(cast(object, content.__class__), "model_fields", None)
    if isinstance(fields, Mapping):  # `model_dump` may raise, and may be the user's own
        return {name: getattr(content, str(name), None) for name in cast(Mapping[str, object], fields)}
    return content


def _read_messages(operation: Operation, given: object, mark: str) -> list[int]:
    found = cast("Mapping[str, Any]", given if isinstance(given, Mapping) else {}).get("messages") or ()
    messages = [message_of(message) for message in cast(Sequence[Any], found)]
    refs = message_refs([(message.text, message.id) for message in messages], mark)
    return [
        operation.read(ref, role=Role.MESSAGE, content=message.text)
        for ref, message in zip(refs, messages, strict=True)
    ]


def _existing(given: object) -> list[Any]:
    """Rows of known memories that have an id; langmem gives bare texts their ids later."""
    rows = cast("Mapping[str, Any]", given if isinstance(given, Mapping) else {}).get("existing") or ()
    return [row for row in cast(Sequence[Any], rows) if isinstance(row, list | tuple)]
