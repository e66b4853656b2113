"""What one public call of Mem0 has seen so far; carried in the context, so worker threads and tasks share it."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from memtrace_otel.capture import Operation
from memtrace_otel.instrumentation.mem0 import record_origins
from memtrace_otel.instrumentation.mem0.calls import Call
from memtrace_otel.instrumentation.mem0.variables import Record, Turn
from memtrace_otel.instrumentation.recorded_stores import RECORDED
from memtrace_otel.instrumentation.steps import StepFunction
from memtrace_otel.semconv import Incomplete, OpKind, Role

_RANKING = (OpKind.RETRIEVE, OpKind.RERANK)
"""What has scores: they say nothing of what decides about the records, or replaces them."""


@dataclass(frozen=True, slots=True)
class Known:
    """A variable that Mem0 passes on as bare text."""

    ref: str
    content: object
    role: str = Role.OTHER
    origin: str | None = None

    def read_by(self, operation: Operation, role: str | None = None) -> int:
        """Record it as an input of `operation`."""
        return operation.read(self.ref, role=role or self.role, content=self.content, origin=self.origin)


class Given(NamedTuple):
    """A text given to the public operation: its place among the inputs, and what it is."""

    place: int
    known: Known


@dataclass(frozen=True, slots=True)
class Decision:
    """One item of a decision reply of Mem0 1.x: what to do (`event`) to which record ('' for a new one)."""

    event: str
    record_id: str
    fact: Known


@dataclass(slots=True)
class Session:
    """State of one public call.

    `produces`: the public operation itself is the producer of what gets written, its inner steps open none.
    `given`: the texts given to the public operation, of equal ones those that are not written yet.
    `known`: the variables behind the texts that Mem0 passes on.
    `neighbours`: what the searches inside an `add` found, by query text (None elsewhere).
    `considered`: the records a prompt shows to the model, by temporary id.
    `next_reply`: the step that reads the next reply of the language model.
    `prompted`: the prompt that asked for a decision (1.x); `replied`: the reply that the facts were read from.
    `marks`: what rows read from the store say about their origin, by record id (see `record_origins`).
    """

    memory: Any
    operation: Operation
    produces: bool = False
    event_time: str = ""
    query: Known | None = None
    turns: list[Turn] = field(default_factory=list[Turn])
    history: list[Turn] = field(default_factory=list[Turn])
    given: dict[str, list[Given]] = field(default_factory=dict[str, list[Given]])
    known: dict[str, list[Known]] = field(default_factory=dict[str, list[Known]])
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
    marks: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])

    @property
    def scope(self) -> str:
        """Scope of the public operation."""
        return self.operation.scope

    @property
    def said_in(self) -> str:
        """What tells the messages of this call from equal ones of another: the id of its span."""
        return self.operation.origin[33:]

    def read(self, operation: Operation, record: Record, role: str) -> int:
        """Record a stored version as an input of `operation`. What the store says of its origin is the truth: another
        process may have written it since this one did."""
        origin, mark = None, self.marks.get(record.id)
        if mark is not None:
            origin = record_origins.origin_of(*mark)
            if not origin:
                operation.mark(Incomplete.UNKNOWN_ORIGIN)
        return operation.read(
            record.ref,
            role=role,
            content=record.text,
            score=record.score if operation.kind in _RANKING else None,
            scope=record.scope or None,
            origin=origin,
            verbatim=True,
        )

    def read_all(self, operation: Operation, records: Sequence[Record], role: str) -> list[int]:
        """Record stored versions as inputs of `operation`, in their order."""
        return [self.read(operation, record, role) for record in records]

    def unmark(self, call: Call, found: object) -> Any:
        """Note the origins in rows that the store returned; Mem0 gets, and this returns, the rows without them."""
        self.marks.update((id, (text, mark)) for id, text, mark in record_origins.marks(found))
        plain = record_origins.unmarked(found)
        if plain is not found:
            call.hand_out(plain)
        return plain

    def knows(self, text: object) -> list[Known]:
        """The variables behind a text that Mem0 passes on, [] when it is none of ours (an entity name, say)."""
        return self.known.get(text, []) if isinstance(text, str) else []

    def writes(self, record_id: str, text: object) -> Write:
        """The public operation's write of a text given to it; equal texts are taken in turn."""
        equal = self.given.get(text, []) if isinstance(text, str) else []
        taken = [equal.pop(0)] if len(equal) > 1 else list(equal)
        return Write(self.operation, record_id, [each.place for each in taken], taken)

    def embeds(self, text: object) -> list[Known]:
        """The variables behind a text that is embedded: of equal ones that which is being written, or will be next.
        That is a fact, once one is extracted, and no message of the same words."""
        write = WRITE.get()
        next_one = self.given.get(text, [])[:1] if isinstance(text, str) and text not in self.facts else []
        given = next_one if write is None else write.given
        return [each.known for each in given if each.known.content == text] or self.knows(text)

    def learn(self, text: object, known: Known) -> None:
        """Remember which variable a text is; the newest version wins."""
        if isinstance(text, str):
            self.known[text] = [known]

    def decided(self, event: str, *, record_id: str = "", text: object = None) -> Known | None:
        """The fact of the decision that led to a write, None when no decision reply asked for it."""
        for decision in self.decisions:
            if decision.event == event and decision.record_id == record_id and text in (None, decision.fact.content):
                return decision.fact
        return None


@dataclass(slots=True)
class Write:
    """A create, update or delete under way: which operation will own the new version, and what fed it.

    `given`: which of these sources are texts given to the public operation.
    """

    operation: Operation
    record_id: str
    sources: list[int] = field(default_factory=list[int])
    given: Sequence[Given] = ()
    replaced: bool = False


SESSION: ContextVar[Session | None] = ContextVar("memtrace_mem0_session", default=None)
WRITE: ContextVar[Write | None] = ContextVar("memtrace_mem0_write", default=None)
PROVIDER: ContextVar[object] = ContextVar("memtrace_mem0_provider", default=None)


def open_session(call: Call, operation: Operation, *, produces: bool = False) -> Session:
    """Begin the session of a public call on the Memory `call.instance`; its providers are covered on the way."""
    session = Session(call.instance, operation, produces=produces)
    call.carry(SESSION, session)
    call.carry(WRITE, None)
    call.carry(RECORDED, True)
    call.patches.cover_providers(call.instance)
    return session


def session_of(memory: object) -> Session | None:
    """The session under way on this Memory."""
    session = SESSION.get()
    return session if session is not None and session.memory is memory else None


def provider_session(call: Call, attribute: str) -> Session | None:
    """The session whose Memory uses `call.instance` as its `attribute`; None for any other store, model or embedder
    (Mem0's own telemetry store, its entity collection) and inside another call of the same provider."""
    session = SESSION.get()
    if session is None or getattr(session.memory, attribute, None) is not call.instance:
        return None
    if PROVIDER.get() is call.instance:
        return None
    call.carry(PROVIDER, call.instance)
    return session
