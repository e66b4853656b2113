"""What a conversation does to its history, as operations on `state`: messages come in, are trimmed, are summarised."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from opentelemetry.context import Context
from opentelemetry.trace import Tracer

from memtrace_otel.capture import Operation, recall, variable_ref
from memtrace_otel.instrumentation.openai import conversations
from memtrace_otel.instrumentation.openai.calls import INSTRUCTIONS, Message, Request
from memtrace_otel.instrumentation.openai.conversations import Continued, Entry
from memtrace_otel.model import make_ref, split_origin
from memtrace_otel.semconv import Action, Incomplete, OpKind, RefKind, Role

SYSTEM = "long_context"


@dataclass(frozen=True, slots=True)
class Kept:
    """A history that somebody else keeps and records (a checkpointed thread): it is read, and nothing is written.
    `entries` maps positions among the prompt's messages to versions of `scope`."""

    scope: str
    entries: Mapping[int, Entry]


Keeper = Callable[[Sequence[Message]], Kept | None]
"""Who keeps the history of a model call made here, None when nobody does."""

keepers: list[Keeper] = []
"""Asked before a model call. Instrumentors of what keeps histories enter theirs."""


def kept_history(messages: Sequence[Message]) -> Kept | None:
    """The history that somebody else keeps for a model call made here."""
    return next((kept for keeper in keepers if (kept := keeper(messages)) is not None), None)


def asked_last(messages: Sequence[Message]) -> int:
    """Position of what the user asked last, -1 when nothing was asked."""
    return next((place for place in range(len(messages) - 1, -1, -1) if messages[place].role == "user"), -1)


class History:
    """The history before one model call. `entries` maps positions among the prompt's messages to what they are."""

    def __init__(self, request: Request, tracer: Tracer, parent: Context | None) -> None:
        self._request, self._tracer, self._parent = request, tracer, parent
        self.entries: dict[int, Entry] = {}
        self.certain = True
        found = conversations.find(request)
        self.conversation = conversations.begin(request) if found is None else found.conversation
        self.continues = found is not None
        if found is not None:
            self._go_on(found)

    @property
    def query(self) -> int:
        """Position of what the user asked last, -1 when nothing was asked."""
        return asked_last(self._request.messages)

    def answered(self, text: str, origin: str, reply_id: str) -> None:
        """Keep the reply, and what it was given to, for the call that goes on from here."""
        messages, query = self._request.messages, self.query
        held = list(self.conversation.entries) if self._request.previous_id else []
        for place, message in enumerate(messages):
            if place in self.entries:
                held.append(self.entries[place])
            elif message.role not in INSTRUCTIONS and (place == query or not self.continues):
                held.append(self.conversation.new_entry(message.role, message.text))
        held.append(self.conversation.new_entry("assistant", text, origin))
        self.conversation.entries[:] = held
        self.conversation.instructions = conversations.instructions_key(messages)
        conversations.remember(self.conversation, conversations.key_of("assistant", text), reply_id)

    def _go_on(self, found: Continued) -> None:
        """Write what has changed since the last call of this conversation."""
        self.certain = found.certain
        messages, query = self._request.messages, self.query
        kept, removed = found.kept, found.removed
        if self._request.previous_id:
            kept = dict(enumerate(self.conversation.entries, len(messages)))
        summaries = _summaries(messages, kept, removed)
        fresh = [
            place
            for place, message in enumerate(messages)
            if place not in kept and place != query and message.role not in INSTRUCTIONS and place not in summaries
        ]
        made = {place: self.conversation.new_entry(messages[place].role, messages[place].text) for place in fresh}
        stored = self._store([*(e for e in (*kept.values(), *removed) if not e.origin), *made.values()])
        removed = [stored.get(entry.ref, entry) for entry in removed]
        self.entries = {place: stored.get(entry.ref, entry) for place, entry in {**kept, **made}.items()}
        if not removed:
            return
        changed = conversations.instructions_key(messages) != self.conversation.instructions
        if summaries:
            self._summarise(messages, summaries, removed)
        elif changed:
            self._summarise(messages, [i for i, m in enumerate(messages) if m.role in INSTRUCTIONS][-1:], removed)
        else:
            self._trim(removed)

    def _store(self, entries: Sequence[Entry]) -> dict[str, Entry]:
        """Messages become part of the history; returns the entries by ref, with their origin."""
        if not entries:
            return {}
        with self._operation(OpKind.INGEST, "memory_update") as operation:
            self._doubt(operation)
            for entry in entries:
                if entry.answered:
                    answer = make_ref(RefKind.ANSWER, split_origin(entry.answered)[1])
                    source = operation.read(answer, role=Role.ANSWER, origin=entry.answered, content=entry.text)
                else:
                    message = variable_ref(RefKind.MESSAGE, entry.text)
                    source = operation.read(message, role=Role.MESSAGE, content=entry.text)
                operation.wrote(entry.ref, action=Action.ADD, content=entry.text, sources=[source])
        return {entry.ref: replace(entry, origin=operation.origin, text="") for entry in entries}

    def _trim(self, removed: Sequence[Entry]) -> None:
        """The prompt no longer repeats these."""
        with self._operation(OpKind.DELETE, "trim") as operation:
            self._doubt(operation)
            for entry in removed:
                source = operation.read(entry.ref, role=Role.PREVIOUS, origin=entry.origin)
                operation.wrote(entry.ref, action=Action.DELETE, sources=[source])

    def _summarise(self, messages: Sequence[Message], places: Sequence[int], removed: Sequence[Entry]) -> None:
        """A text stands where these were: each of them goes on as that text."""
        text = "\n".join(messages[place].text for place in places)
        with self._operation(OpKind.CONSOLIDATE, "summarize") as operation:
            self._doubt(operation)
            previous = [operation.read(entry.ref, role=Role.PREVIOUS, origin=entry.origin) for entry in removed]
            written = [self._read_answer(operation, text)]
            for entry, source in zip(removed, previous, strict=True):
                sources = previous if entry is removed[0] else [source]
                operation.wrote(entry.ref, action=Action.UPDATE, content=text, sources=[*sources, *written])
        summary = replace(removed[0], key=_key(messages[places[0]]), origin=operation.origin)
        self.entries.update(dict.fromkeys(places, summary))

    def _read_answer(self, operation: Operation, text: str) -> int:
        """The reply that the summary was taken from, -1 when none of this turn is in it."""
        turn = recall.recall(operation.origin[:32])
        for answer in turn.newest_answers() if turn else ():
            if recall.quotes(text, answer.text):
                return operation.read(answer.ref, role=Role.ANSWER, origin=answer.origin, content=answer.text)
        return -1

    def _operation(self, kind: OpKind, purpose: str) -> Operation:
        return Operation(
            kind=kind,
            system=SYSTEM,
            scope=self.conversation.scope,
            purpose=purpose,
            tracer=self._tracer,
            parent=self._parent,
        )

    def _doubt(self, operation: Operation) -> None:
        if not self.certain:
            operation.mark(Incomplete.INFERRED)


def _summaries(messages: Sequence[Message], kept: dict[int, Entry], removed: Sequence[Entry]) -> list[int]:
    """Positions of new messages that stand where removed ones were: before something that was kept."""
    if not removed or not kept:
        return []
    last = max(kept)
    return [
        place
        for place, message in enumerate(messages)
        if place < last and place not in kept and message.role not in INSTRUCTIONS
    ]


def _key(message: Message) -> str:
    return conversations.key_of(message.role, message.text)
