"""What a conversation does to its history, as operations on `state`: messages come in, are trimmed, are summarised."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import time_ns
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context, get_current
from opentelemetry.trace import Span, Tracer

from memtrace_otel.capture import Operation, recall
from memtrace_otel.instrumentation.chat_history import conversations
from memtrace_otel.instrumentation.chat_history.alignment import Continued, Entry, Prompt, aligned, key_of
from memtrace_otel.instrumentation.chat_history.messages import INSTRUCTIONS, Message, Request, Version
from memtrace_otel.instrumentation.chat_history.summaries import find_summaries, has_replaced
from memtrace_otel.model import make_ref, ref_kind, split_ref
from memtrace_otel.semconv import Action, Incomplete, OpKind, RefKind, Role

SYSTEM = "long_context"


def role_in_history(ref: str) -> str:
    """The part that a variable plays in a message which becomes part of a history."""
    return _ROLES.get(ref_kind(ref), Role.OTHER)


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

_ROLES: Mapping[str, str] = {kind: Role(kind) for kind in (RefKind.MESSAGE, RefKind.ANSWER, RefKind.CONTEXT)}

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
        found, doubtful = conversations.find(request, self._place, self._replies_quoted)
        found = self._found = found and conversations.as_written(found, request)
        self.conversation = conversations.begin(request) if found is None else found.conversation
        self.certain = found is None or found.certain
        self.entries: Mapping[int, Entry] = {} if found is None else found.kept
        if request.held_there:
            self.entries = dict(enumerate(self.conversation.entries, len(request.messages)))
        self._new: dict[int, Entry] = {  # said in this call, no history yet
            place: replace(self.conversation.new_entry(message), unknown=place in doubtful)
            for place, message in enumerate(request.messages)
            if place not in self.entries and message.role not in INSTRUCTIONS
        }
        self._key, self._written = conversations.prompt_key(request), found is None
        self._ask_again()

    def _ask_again(self) -> None:
        """The same prompt once more, since another reply is wanted or none has come: what it says, and what it has made
        of the history, stays what it is."""
        written, asked = self.conversation.prompt, conversations.unanswered(self._key, self.conversation, self._place)
        if written is not None and written.key == self._key and self.certain:
            self._written, self.entries = True, written.entries
            self._new = {place: self.conversation.told_again(entry) for place, entry in written.new.items()}
        elif asked is not None:
            self.conversation, self._new = asked[0], dict(asked[1].new)

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

    def says(self, place: int) -> bool:
        """Whether a message of the prompt says something in this call first, and stands for nothing before it."""
        entry = self.entries.get(place)
        return place in self._new and not (entry and has_replaced(entry))

    def said_as(self, place: int) -> tuple[Version, ...]:
        """What a message of the prompt that is no history yet was said as."""
        return self._new[place].made_of

    def was_found(self, place: int, contexts: Iterable[Version]) -> None:
        """Say what searches made of the result of a tool, a message of the prompt that is no history yet."""
        self._new[place] = replace(self._new[place], made_of=tuple(contexts))

    def write(self) -> None:
        """The call has its answer: write what has changed since the reply that it went on from. What another call
        that went on from there has written, or ended, is a record of that one: here it is told again."""
        found = self._found
        if self._written or found is None:
            return
        now = self._told_again(found)
        summaries = find_summaries(found, self._request.messages, self.query, lambda text: bool(self._quoted(text)))
        replaced = {self.query, *(place for places, _ in summaries for place in places)}
        made = {place: entry for place, entry in self._new.items() if place not in replaced}
        stored = self._store([*(entry for entry in now.values() if not entry.origin), *made.values()])
        now = {ref: stored.get(entry.ref, entry) for ref, entry in now.items()}
        placed = {place: replace(now[entry.ref], key=entry.key) for place, entry in self.entries.items()}
        self.entries = placed | {place: stored[entry.ref] for place, entry in made.items()}
        removed = {entry.ref: now[entry.ref] for entry in found.removed}
        told = {entry.ref for entry in found.removed if conversations.has_ended(entry)}  # by another line
        conversations.end([*removed.values(), *(now[ref] for _, refs in summaries for ref in refs)])
        for places, refs in summaries:
            self._summarise(places, [removed.pop(ref, now[ref]) for ref in refs])
        self._trim([entry for ref, entry in removed.items() if ref not in told])
        self._written = True
        conversations.went_on(self.conversation, self._prompt(self.entries))

    def _told_again(self, found: Continued) -> dict[str, Entry]:
        """The entries that the prompt repeats and those that it does not, by their ref, as they are in this line."""
        messages, own = self._request.messages, conversations.go_on(self.conversation)
        texts = {entry.ref: messages[place].text for place, entry in self.entries.items() if place < len(messages)}
        return {
            entry.ref: self.conversation.told_again(entry, texts.get(entry.ref, ""))
            if (entry.ref in texts and conversations.has_ended(entry)) or not (own or entry.origin)
            else entry
            for entry in (*self.entries.values(), *found.removed)
        }

    def unanswered(self) -> None:
        """There was no reply, or not all of it."""
        conversations.wait_for_answer(replace(self.conversation, place=self._place), self._prompt({}))

    def _prompt(self, entries: Mapping[int, Entry]) -> Prompt:
        return Prompt(self._key, len(self._request.messages), entries, self._new)

    def answered(self, replies: Sequence[Sequence[Said]], id: str) -> None:
        """Keep each reply, and what it was given to, for the calls that go on from it. `id` is that of the result."""
        messages = self._request.messages
        held = self._held()
        instructions = self.conversation.instructions.after(messages)
        same = instructions is self.conversation.instructions
        changes = self._found is not None and not self._found.removed and not same
        asked = replace(
            self.conversation,
            instructions=instructions,
            volatile=self.conversation.volatile or changes,
            asked=self.query_ref,
            certain=self.certain,
            continued=False,
            prompt=None,
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
        kept = list(aligned(before, [key_of(message) for message in given]).kept.values())
        known = {entry.ref for entry in kept}
        removed = [entry for entry in held if entry.ref not in known]
        if not removed:  # what it stands for is in the prompt, too
            removed, kept = held, []
        conversations.end(removed)
        summary = self._replace(operation, [compaction], removed)
        fresh = replace(before, certain=self.certain, continued=False, prompt=None, place=self._place)
        after = replace(fresh, entries=(*kept, summary))
        conversations.remember(after, [summary], self._request, id)

    def _held(self) -> list[Entry]:
        """What the history holds, in order: what the model's side holds, then what is in the prompt."""
        placed, prompt = {**self._new, **self.entries}, len(self._request.messages)
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
                alone = len(entry.made_of) == 1  # a text with tool calls: the answer was less
                sources = [
                    operation.read(
                        ref, role=role, origin=origin, content=entry.text if alone and role != Role.CONTEXT else None
                    )
                    for ref, origin in entry.made_of
                    for role in (role_in_history(ref),)
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

    def _summarise(self, places: Sequence[int], removed: Sequence[Entry]) -> None:
        """A text stands where these were: each of them goes on as that text."""
        messages = {place: self._request.messages[place] for place in places}
        with self.summarising() as operation:
            summary = self._replace(operation, list(messages.values()), removed)
        made = {place: replace(summary, key=key_of(message)) for place, message in messages.items()}
        self.entries = {**self.entries, **made}

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
        return replace(removed[0], key=key_of(by[0]), origin=origin, text="", made_of=((ref, origin),))

    def _replies_quoted(self) -> list[recall.Answer]:
        """The replies of this turn that stand in the texts of the prompt."""
        answers = (answer for turn in self._turns for answer in turn.newest_answers())
        texts = [message.text for message in self._request.messages]
        return [answer for answer in answers if any(recall.quotes(text, answer.text) for text in texts)]

    def _quoted(self, text: str) -> recall.Answer | None:
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


def _as_query(entry: Entry) -> str:
    return make_ref(RefKind.QUERY, split_ref(entry.made_of[0][0])[1]) if entry.made_of else ""
