"""What a conversation does to its history, as operations on `state`: messages come in, are trimmed, are summarised."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import time_ns
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context, get_current
from opentelemetry.trace import Span, Tracer

from memtrace_otel.capture import Operation, recall
from memtrace_otel.instrumentation.openai import conversations
from memtrace_otel.instrumentation.openai.calls import INSTRUCTIONS, Message, Request
from memtrace_otel.instrumentation.openai.conversations import Entry, Version
from memtrace_otel.model import make_ref, ref_kind, split_ref
from memtrace_otel.semconv import Action, Incomplete, OpKind, RefKind, Role

SYSTEM = "long_context"


@dataclass(frozen=True, slots=True)
class Kept:
    """A history that somebody else keeps and records (a checkpointed thread): it is read, and nothing is written.
    `entries` maps positions among the prompt's messages to versions of `scope`; `query_ref` names what is asked, ''
    where that is not known."""

    scope: str
    entries: Mapping[int, Entry]
    query_ref: str = ""


Said = tuple[str, tuple[Version, ...]]
"""A part of a reply as the next prompt repeats it: its text, and what it is made of."""

_ROLES: Mapping[str, str] = {RefKind.MESSAGE: Role.MESSAGE, RefKind.ANSWER: Role.ANSWER}

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


class _Then(Tracer):
    """Starts spans as of when it was made: what a call has done to the history is told once it has its answer."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer, self._began = tracer, time_ns()

    def start_span(self, name: str, *args: Any, **kwargs: Any) -> Span:
        return self._tracer.start_span(name, *args, **{"start_time": self._began, **kwargs})

    @contextmanager
    def start_as_current_span(self, name: str, *args: Any, **kwargs: Any) -> Generator[Span]:  # pyright: ignore[reportIncompatibleMethodOverride]
        with trace.use_span(self.start_span(name, *args, **kwargs)) as span:
            yield span


class History:
    """The history before one model call. `entries` maps positions among the prompt's messages to what they are; what
    the model's side holds comes behind."""

    def __init__(self, request: Request, tracer: Tracer, parent: Context | None) -> None:
        request = replace(request, user=request.user or conversations.user_here())
        self._request, self._tracer, self._parent = request, _Then(tracer), parent or get_current()
        self._place = conversations.here()
        # Another instrumentation's span of this very call may be the current one: what was said before is not in it.
        self._turns = [turn for turn in (recall.turn_here(), recall.recall("")) if turn is not None]
        possible = conversations.find(request, self._place)
        found = self._found = possible[0] if len(possible) == 1 else None
        self.conversation = conversations.begin(request) if found is None else found.conversation
        self.certain = found is None or found.certain
        self.entries: dict[int, Entry] = {} if found is None else found.kept
        if request.held_there:
            self.entries = dict(enumerate(self.conversation.entries, len(request.messages)))
        doubtful = {place for one in possible for place in one.kept}
        self._new = {  # said in this call, no history yet
            place: replace(self.conversation.new_entry(message), unknown=place in doubtful)
            for place, message in enumerate(request.messages)
            if place not in self.entries and message.role not in INSTRUCTIONS
        }

    @property
    def continues(self) -> bool:
        """Whether the prompt goes on from a known conversation."""
        return self._found is not None

    @property
    def unknown(self) -> bool:
        """Whether it cannot be told which of several conversations something in the prompt is of."""
        return any(entry.unknown and not entry.origin for entry in (*self.entries.values(), *self._new.values()))

    @property
    def query(self) -> int:
        """Position of what the user asked last, in the prompt or in what it goes on from; -1 when nothing was asked."""
        asked = asked_last(self._request.messages)
        held = () if asked >= 0 else self.entries.items()
        return next((place for place, entry in held if _as_query(entry) == self.conversation.asked), asked)

    @property
    def query_ref(self) -> str:
        """Ref of what the user asked last, here or before this call: the name of the message, as a query."""
        asked = self.entries.get(self.query) or self._new.get(self.query)
        return _as_query(asked) if asked else self.conversation.asked

    def message_ref(self, place: int) -> str:
        """Ref of a message of the prompt that is no history yet."""
        return self._new[place].made_of[0][0]

    def write(self) -> None:
        """The call has its answer: write what has changed since the reply that it went on from. What another call
        that went on from there has written, or ended, is a record of that one: here it is told again."""
        if self._found is None:
            return
        messages, query = self._request.messages, self.query
        own = conversations.go_on(self.conversation)
        texts = {entry.ref: messages[place].text for place, entry in self.entries.items() if place < len(messages)}
        again = {
            entry.ref: self.conversation.told_again(entry, texts.get(entry.ref, ""))
            for entry in (*self.entries.values(), *self._found.removed)
            if (entry.ref in texts and conversations.has_ended(entry)) or not (own or entry.origin)
        }
        kept = {place: again.get(entry.ref, entry) for place, entry in self.entries.items()}
        removed = [again.get(entry.ref, entry) for entry in self._found.removed]
        summaries = self._summaries(query)
        standing_for = {place for places, _ in summaries for place in places}
        made = {place: entry for place, entry in self._new.items() if place != query and place not in standing_for}
        stored = self._store([*(e for e in (*kept.values(), *removed) if not e.origin), *made.values()])
        removed = {
            before.ref: stored.get(now.ref, now) for before, now in zip(self._found.removed, removed, strict=True)
        }
        self.entries = {place: stored.get(entry.ref, entry) for place, entry in {**kept, **made}.items()}
        if not removed:
            return
        found = self._found.kept.items()
        standing = next((place for place, entry in found if messages[place].compaction and not entry.origin), None)
        if standing is not None:
            summaries = [([standing], [entry.ref for entry in self._found.removed])]
        elif not summaries and (place := self._new_instructions()) is not None:
            summaries = [([place], [entry.ref for entry in self._found.removed])]
        told = {entry.ref for entry in self._found.removed if conversations.has_ended(entry)}  # by another line
        before = [] if standing is None else [self.entries[standing]]
        conversations.end([*removed.values(), *before])
        for places, refs in summaries:
            self._summarise(messages, places, [*[removed.pop(ref) for ref in refs], *before])
        self._trim([entry for ref, entry in removed.items() if ref not in told])

    def _summaries(self, query: int) -> list[tuple[list[int], list[str]]]:
        """Positions of new messages that stand where removed ones were, and the refs of those: between the same two
        that were kept or, where nothing was, before the question; what quotes a reply may stand anywhere.

        A text that has replaced others before, a note say, is replaced alone: what else is gone was trimmed. Only a
        text that a model has made of both, a rolling summary, replaces both.
        """
        assert self._found is not None
        messages, kept = self._request.messages, self._found.kept
        at = {entry.ref: index for index, entry in enumerate(self._found.conversation.entries)}
        left = {at[entry.ref]: entry for entry in self._found.removed}
        gaps: dict[tuple[int, int], list[int]] = {}
        for place, message in enumerate(messages[: max(kept, default=query)]):
            if place not in kept and message.role not in INSTRUCTIONS:
                before = max((at[entry.ref] for p, entry in kept.items() if p < place), default=-1)
                behind = min((at[entry.ref] for p, entry in kept.items() if p > place), default=len(at))
                gaps.setdefault((before, behind), []).append(place)
        found: list[tuple[list[int], list[str]]] = []
        for (before, behind), places in gaps.items():
            quotes = self._quoted("\n".join(messages[place].text for place in places)) is not None
            here = [index for index in left if before < index < behind] or (list(left) if quotes else [])
            if here and not quotes and _has_replaced(left[here[0]]):
                del here[1:]
            if here:
                found.append((places, [left.pop(index).ref for index in here]))
        return found

    def _new_instructions(self) -> int | None:
        """Position of the system message that a history went into; None where it is the same, or always another one."""
        messages = self._request.messages
        if conversations.instructions_key(messages) == self.conversation.instructions:
            return None
        place = max((i for i, message in enumerate(messages) if message.role in INSTRUCTIONS), default=None)
        if place is None or (self.conversation.volatile and self._quoted(messages[place].text) is None):
            return None
        return place

    def answered(self, replies: Sequence[Sequence[Said]], id: str) -> None:
        """Keep each reply, and what it was given to, for the calls that go on from it. `id` is that of the result."""
        messages = self._request.messages
        held = self._held()
        instructions = conversations.instructions_key(messages)
        changes = self._found is not None and not self._found.removed and instructions != self.conversation.instructions
        asked = replace(
            self.conversation,
            instructions=instructions,
            volatile=self.conversation.volatile or changes,
            asked=self.query_ref,
            certain=self.certain,
            continued=False,
            place=self._place,
        )
        for number, reply in reversed(list(enumerate(replies))):  # the first is the newest
            said = [asked.new_entry(Message("assistant", text), made_of) for text, made_of in reply]
            line = [asked.told_again(entry) if number and not entry.origin else entry for entry in held]
            conversations.remember(replace(asked, entries=(*line, *said)), said, self._request, id)

    def compacted(self, operation: Operation, given: Sequence[Message], id: str) -> None:
        """The call has had its history summarised: the messages `given` stand for it from now on."""
        self.write()
        compaction = next((message for message in given if message.compaction), None)
        stored = self._store([entry for entry in self._held() if not entry.origin])
        held = [stored.get(entry.ref, entry) for entry in self._held()]
        if compaction is None or not held:
            return
        before = replace(self.conversation, entries=tuple(held))
        kept = list(conversations.aligned(before, [_key(message) for message in given]).kept.values())
        known = {entry.ref for entry in kept}
        removed = [entry for entry in held if entry.ref not in known]
        if not removed:  # what it stands for is in the prompt, too
            removed, kept = held, []
        conversations.end(removed)
        summary = self._replace(operation, [compaction], removed)
        after = replace(before, entries=(*kept, summary), certain=self.certain, continued=False, place=self._place)
        conversations.remember(after, [summary], self._request, id)

    def _held(self) -> list[Entry]:
        """What the history holds, in order: what the model's side holds, then what is in the prompt."""
        placed, prompt = self._new | self.entries, len(self._request.messages)
        return [placed[place] for place in sorted(placed, key=lambda place: (place < prompt, place))]

    def _store(self, entries: Sequence[Entry]) -> dict[str, Entry]:
        """Messages become part of the history; returns the entries by ref, with their origin."""
        if not entries:
            return {}
        with self._operation(OpKind.INGEST, "memory_update") as operation:
            self._doubt(operation)
            if any(entry.unknown for entry in entries):
                operation.mark(Incomplete.UNKNOWN_ORIGIN)
            for entry in entries:
                whole = entry.text if len(entry.made_of) == 1 else None  # a text with tool calls: the answer was less
                sources = [
                    operation.read(ref, role=_ROLES.get(ref_kind(ref), Role.OTHER), origin=origin, content=whole)
                    for ref, origin in entry.made_of
                ]
                operation.wrote(entry.ref, action=Action.ADD, content=entry.text, sources=sources)
        return {entry.ref: replace(entry, origin=operation.origin, text="") for entry in entries}

    def _trim(self, removed: Sequence[Entry]) -> None:
        """The prompt no longer repeats these."""
        if not removed:
            return
        with self._operation(OpKind.DELETE, "trim") as operation:
            self._doubt(operation)
            for entry in removed:
                source = operation.read(entry.ref, role=Role.PREVIOUS, origin=entry.origin)
                operation.wrote(entry.ref, action=Action.DELETE, sources=[source])

    def _summarise(self, messages: Sequence[Message], places: Sequence[int], removed: Sequence[Entry]) -> None:
        """A text stands where these were: each of them goes on as that text."""
        with self.summarising() as operation:
            summary = self._replace(operation, [messages[place] for place in places], removed)
        self.entries.update(dict.fromkeys(places, summary))

    def _replace(self, operation: Operation, by: Sequence[Message], removed: Sequence[Entry]) -> Entry:
        """Each of these entries goes on as the text of some messages; returns what the history holds in their place."""
        self._doubt(operation)
        text = None if by[0].compaction else "\n".join(message.text for message in by)
        if text is None:
            operation.mark(Incomplete.UNSERIALISABLE)
        previous = [operation.read(entry.ref, role=Role.PREVIOUS, origin=entry.origin) for entry in removed]
        answer = self._quoted(text) if text else None
        written: list[int] = []
        if answer is not None:
            source = operation.read(answer.ref, role=Role.ANSWER, origin=answer.origin, content=answer.text)
            written.append(source)
        elif text:
            operation.mark(Incomplete.INFERRED)  # by its place alone
        for entry, source in zip(removed, previous, strict=True):
            sources = previous if entry is removed[0] else [source]
            operation.wrote(entry.ref, action=Action.UPDATE, content=text, sources=[*sources, *written])
        ref, origin = removed[0].ref, operation.origin
        return replace(removed[0], key=_key(by[0]), origin=origin, text="", made_of=((ref, origin),))

    def _quoted(self, text: str) -> recall.Recalled | None:
        """The reply of this turn that a summary was taken from, None when none is in it."""
        answers = (answer for turn in self._turns for answer in turn.newest_answers())
        return next((answer for answer in answers if recall.quotes(text, answer.text)), None)

    def summarising(self) -> Operation:
        """A text is to stand for a part of the history."""
        return self._operation(OpKind.CONSOLIDATE, "summarize")

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


def _has_replaced(entry: Entry) -> bool:
    """Whether it stands where other messages were."""
    return bool(entry.made_of) and ref_kind(entry.made_of[0][0]) == RefKind.STATE


def _as_query(entry: Entry) -> str:
    return make_ref(RefKind.QUERY, split_ref(entry.made_of[0][0])[1]) if entry.made_of else ""


def _key(message: Message) -> str:
    return conversations.key_of(message.role, message.text)
