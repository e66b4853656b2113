"""State of the Mem0 instrumentor: known records, saved messages, and the session of one public call."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from opentelemetry.trace import Tracer

from memtrace_otel.capture import Operation, variable_ref
from memtrace_otel.capture.fork import new_lock_after_fork
from memtrace_otel.instrumentation import steps
from memtrace_otel.instrumentation.base import Patches
from memtrace_otel.instrumentation.mem0 import record_origins
from memtrace_otel.instrumentation.mem0.values import Record, Turn, turns
from memtrace_otel.instrumentation.steps import RECORDED, StepFunction
from memtrace_otel.semconv import Incomplete, OpKind, RefKind, Role

_SCORED = (OpKind.RETRIEVE, OpKind.RERANK)
"""Operations that rank: only there the score of a record is recorded."""
_RECORDS, _MESSAGES = 10_000, 10_000


class KnownRecord(NamedTuple):
    """A record of a vector collection (`store`)."""

    store: str
    scope: str
    id: str


class KnownRecords:
    """The newest 10,000 records that this process has seen. They give the owner of an id and the records that a reset
    deletes."""

    def __init__(self) -> None:
        self._records: OrderedDict[KnownRecord, None] = OrderedDict()
        self._scopes: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.RLock()  # Mem0 works on its graph in threads
        new_lock_after_fork(self)

    def saw(self, record: KnownRecord) -> None:
        """Remember a record that exists; a record without an owner is left out."""
        if not record.scope:
            return
        with self._lock:
            self._records[record] = None
            self._records.move_to_end(record)
            self._scopes[record.id] = record.scope
            self._scopes.move_to_end(record.id)
            for known in (self._records, self._scopes):
                while len(known) > _RECORDS:
                    known.popitem(last=False)

    def __contains__(self, record: KnownRecord) -> bool:
        return record in self._records

    def scope_of(self, id: str) -> str:
        """Scope of the owner of a record, also of a deleted one; '' when unknown."""
        return self._scopes.get(id, "")

    def take(self, store: str, *, scope: str = "", prefix: str = "") -> list[KnownRecord]:
        """Forget and return the records of a store: of one owner with `scope`, with ids that begin with `prefix`."""
        with self._lock:
            found = [
                record
                for record in self._records
                if record.store == store and scope in ("", record.scope) and record.id.startswith(prefix)
            ]
            for record in found:
                del self._records[record]
        return found

    def lost(self, record: KnownRecord) -> None:
        """Forget a record that was deleted."""
        with self._lock:
            self._records.pop(record, None)


class EarlierMessages:
    """The refs of the newest 10,000 messages that this process saved (2.x shows them to later extractions).

    The key is (owner, session, digest of the text).
    """

    def __init__(self) -> None:
        self._refs: OrderedDict[tuple[str, str, str], str] = OrderedDict()
        self._lock = threading.RLock()
        new_lock_after_fork(self)

    def save(self, owner: str, session: str, messages: Sequence[Turn]) -> None:
        """Remember the refs of saved messages. Of equal texts the newest message wins."""
        with self._lock:
            for turn in messages:
                self._refs[owner, session, _digest(turn.content)] = turn.ref
            while len(self._refs) > _MESSAGES:
                self._refs.popitem(last=False)

    def find(self, owner: str, session: str, rows: Sequence[Mapping[str, Any]]) -> list[Turn]:
        """The messages in these rows. A message of another process gets a ref of its text and time."""
        found = [turn for row in rows for turn in turns(row, str(row.get("created_at")))]
        refs = [self._refs.get((owner, session, _digest(turn.content)), turn.ref) for turn in found]
        return [replace(turn, ref=ref) for turn, ref in zip(found, refs, strict=True)]


def _digest(content: object) -> str:
    return variable_ref(RefKind.MESSAGE, content)


class Mem0Patches(Patches):
    """The wrappers of one `instrument()` and the state of this process. `main` is the module `mem0.memory.main`."""

    def __init__(self, tracer: Tracer, cover_providers: Callable[[Mem0Patches, Any], None]) -> None:
        super().__init__(tracer, "mem0")
        self.main: Any = None
        self.records = KnownRecords()
        self.messages = EarlierMessages()
        self._cover_providers = cover_providers

    def cover_providers(self, memory: Any) -> None:
        """Wrap the providers of a Memory in use."""
        self._cover_providers(self, memory)

    @property
    def decides(self) -> bool:
        """Whether this release asks a model what to do with extracted facts (1.x)."""
        return hasattr(self.main, "get_update_memory_messages")


Call = steps.Call[Mem0Patches]


@dataclass(frozen=True, slots=True)
class Known:
    """A variable that Mem0 passes on as bare text."""

    ref: str
    content: object
    role: str = Role.OTHER
    origin: str | None = None

    def read_by(self, operation: Operation, role: str | None = None) -> int:
        """Record the variable as an input of `operation`; returns the index of the input."""
        return operation.read(self.ref, role=role or self.role, content=self.content, origin=self.origin)


@dataclass(frozen=True, slots=True)
class Decision:
    """One item of a decision reply of 1.x: the action (`event`) on a record ('' for a new record)."""

    event: str
    record_id: str
    fact: Known


@dataclass(slots=True)
class Write:
    """A create, update or delete in progress: the operation that owns the new version, and its sources."""

    operation: Operation
    record_id: str
    sources: list[int] = field(default_factory=list[int])
    replaced: bool = False


@dataclass(slots=True)
class Session:
    """State of one public call; carried in the context, so worker threads and tasks share the session.

    `produces`: the public operation is the producer of the written records, its inner steps open no operation.
    `given`: the input indices of each text given to the public operation, without the texts already written.
    `known`: the variables behind the texts that Mem0 passes on.
    `neighbours`: the records that the searches inside an `add` found, by query text (None outside an `add`).
    `considered`: the records that a prompt shows to the model, by temporary id.
    `next_reply`: the step that reads the next reply of the language model.
    `prompted`: the prompt that asked for a decision (1.x). `replied`: the reply that the facts were read from.
    `marks`: the origins in rows read from the store, by record id (`record_origins`).
    """

    memory: Any
    operation: Operation
    produces: bool = False
    event_time: str = ""
    query: Known | None = None
    turns: list[Turn] = field(default_factory=list[Turn])
    history: list[Turn] = field(default_factory=list[Turn])
    given: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    known: dict[str, Known] = field(default_factory=dict[str, Known])
    facts: list[str] = field(default_factory=list[str])
    candidates: list[Record] = field(default_factory=list[Record])
    neighbours: dict[str, list[Record]] | None = None
    considered: dict[str, Record] = field(default_factory=dict[str, Record])
    decisions: list[Decision] = field(default_factory=list[Decision])
    next_reply: StepFunction | None = None
    prompted: Known | None = None
    replied: Known | None = None
    instructions: str = ""
    deleted: int = 0
    marks: record_origins.Marks = field(default_factory=record_origins.Marks)

    @property
    def scope(self) -> str:
        """Scope of the public operation."""
        return self.operation.scope

    @property
    def said_in(self) -> str:
        """The span id of the public operation: separates equal messages of two calls."""
        return self.operation.origin[33:]

    def read(self, operation: Operation, record: Record, role: str) -> int:
        """Record a stored version as an input of `operation`. An origin in the store takes precedence over the
        table."""
        origin, mark = None, self.marks.get(record.id)
        if mark is not None:
            origin = record_origins.origin_of(*mark)
            if not origin:
                operation.mark(Incomplete.UNKNOWN_ORIGIN)
        return operation.read(
            record.ref,
            role=role,
            content=record.text,
            score=record.score if operation.kind in _SCORED else None,
            scope=record.scope or None,
            origin=origin,
            verbatim=True,
        )

    def read_all(self, operation: Operation, records: Sequence[Record], role: str) -> list[int]:
        """Record stored versions as inputs of `operation`, in their order."""
        return [self.read(operation, record, role) for record in records]

    def unmark(self, call: Call, found: object) -> Any:
        """Keep the origins of the rows that the store returned. Mem0 gets the rows without origins, and so does the
        caller."""
        plain = record_origins.unmarked(found, self.marks)
        if plain is not found:
            call.hand_out(plain)
        return plain

    def variable_of(self, text: object) -> list[Known]:
        """The variable with this text; [] for a text without a variable (an entity name)."""
        known = self.known.get(text) if isinstance(text, str) else None
        return [] if known is None else [known]

    def learn(self, text: object, known: Known) -> None:
        """Remember the variable of a text. The newest variable wins."""
        if isinstance(text, str):
            self.known[text] = known

    def give(self, text: object, known: Known) -> None:
        """Record a text given to the public operation as its input."""
        place = known.read_by(self.operation)
        self.learn(text, known)
        if isinstance(text, str):
            self.given.setdefault(text, []).append(place)

    def write_of(self, record_id: str, text: object) -> Write:
        """The public operation's write of a given text. Equal texts are taken in order."""
        places = self.given.get(text, []) if isinstance(text, str) else []
        return Write(self.operation, record_id, [places.pop(0)] if len(places) > 1 else list(places))

    def fact_behind(self, event: str, *, record_id: str = "", text: object = None) -> Known | None:
        """The fact of the decision that led to a write; None when no decision reply asked for the write."""
        for decision in self.decisions:
            if decision.event == event and decision.record_id == record_id and text in (None, decision.fact.content):
                return decision.fact
        return None


SESSION: ContextVar[Session | None] = ContextVar("memtrace_mem0_session", default=None)
WRITE: ContextVar[Write | None] = ContextVar("memtrace_mem0_write", default=None)
_PROVIDER: ContextVar[object] = ContextVar("memtrace_mem0_provider", default=None)


def open_session(call: Call, operation: Operation, *, produces: bool = False) -> Session:
    """Begin the session of a public call on the Memory `call.instance`, and wrap the providers of the Memory."""
    session = Session(call.instance, operation, produces=produces)
    call.carry(SESSION, session)
    call.carry(WRITE, None)
    call.carry(RECORDED, True)
    call.patches.cover_providers(call.instance)
    return session


def session_of(memory: object) -> Session | None:
    """The session in progress on this Memory."""
    session = SESSION.get()
    return session if session is not None and session.memory is memory else None


def provider_session(call: Call, attribute: str) -> Session | None:
    """The session whose Memory holds `call.instance` in `attribute`.

    None for any other store or model (Mem0 has a store for its statistics), and inside another call of the provider.
    """
    session = SESSION.get()
    if session is None or getattr(session.memory, attribute, None) is not call.instance:
        return None
    if _PROVIDER.get() is call.instance:
        return None
    call.carry(_PROVIDER, call.instance)
    return session
