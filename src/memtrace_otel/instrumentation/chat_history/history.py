"""The history of a conversation as memory: operations on `state` add, trim and summarise messages."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import time_ns
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context, get_current
from opentelemetry.trace import Span, Tracer

from memtrace_otel.capture import Operation, recall
from memtrace_otel.instrumentation.chat_history import conversations
from memtrace_otel.instrumentation.chat_history.alignment import Entry, Match, instructions_of, key_of
from memtrace_otel.instrumentation.chat_history.messages import INSTRUCTIONS, Message, Request, Version
from memtrace_otel.model import make_ref, ref_kind, split_ref
from memtrace_otel.semconv import Action, Incomplete, OpKind, RefKind, Role

SYSTEM = "long_context"
_ROLES: Mapping[str, str] = {kind: Role(kind) for kind in (RefKind.MESSAGE, RefKind.ANSWER, RefKind.CONTEXT)}

Said = tuple[str, tuple[Version, ...]]
"""A message of a reply: its text as the next prompt repeats it, and the versions behind it."""


def role_in_history(ref: str) -> str:
    """The role of a variable from which a message of a history is made."""
    return _ROLES.get(ref_kind(ref), Role.OTHER)


def asked_last(messages: Sequence[Message]) -> int:
    """Position of the last message of the user, -1 without one."""
    return next((place for place in range(len(messages) - 1, -1, -1) if messages[place].role == "user"), -1)


@dataclass(frozen=True, slots=True)
class KeptHistory:
    """A history that another library keeps and records (a checkpointed thread): calls read it and write nothing.

    `entries` maps positions of the prompt to entries of `scope`. `query_ref` is the ref of the question, '' if unknown.
    """

    scope: str
    entries: Mapping[int, Entry]
    query_ref: str = ""


keepers: list[Callable[[Sequence[Message]], KeptHistory | None]] = []
"""Asked before a model call. Instrumentors of libraries that keep histories add theirs."""


def kept_history(messages: Sequence[Message]) -> KeptHistory | None:
    """The history that another library keeps for a model call made here, None for none."""
    return next((kept for keeper in keepers if (kept := keeper(messages)) is not None), None)


class _BackdatingTracer(Tracer):
    """Starts spans at the time of its creation: changes of the history are recorded after the answer."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer, self._began = tracer, time_ns()

    def start_span(self, name: str, *args: Any, **kwargs: Any) -> Span:
        return self._tracer.start_span(name, *args, **{"start_time": self._began, **kwargs})

    @contextmanager
    def start_as_current_span(self, name: str, *args: Any, **kwargs: Any) -> Generator[Span]:  # pyright: ignore[reportIncompatibleMethodOverride]
        with trace.use_span(self.start_span(name, *args, **kwargs)) as span:
            yield span


class History:
    """The history before one model call.

    `entries` maps positions of the prompt to entries; those that the provider holds have the positions behind.
    """

    def __init__(self, request: Request, tracer: Tracer, parent: Context | None) -> None:
        request = replace(request, user=request.user or conversations.user_here())
        self._request, self._tracer, self._parent = request, _BackdatingTracer(tracer), parent or get_current()
        self._place = conversations.here()
        # The current span may be another instrumentation's span of this very call, which has no earlier answers.
        self._turns = [turn for turn in (recall.turn_here(), recall.recall("")) if turn is not None]
        match, ambiguous = conversations.find(request, self._place, self._replies_quoted)
        self._asked = asked_last(request.messages)
        self._match = match
        self.conversation = conversations.begin(request) if match is None else match.conversation
        self.certain = match is None or match.certain
        self.entries: Mapping[int, Entry] = {} if match is None else match.kept
        if request.held_there:
            self.entries = dict(enumerate(self.conversation.entries, len(request.messages)))
        self._new = {
            place: replace(self.conversation.new_entry(message), unknown=ambiguous)
            for place, message in enumerate(request.messages)
            if place not in self.entries and message.role not in INSTRUCTIONS
        }

    @property
    def continues(self) -> bool:
        """Whether the prompt continues a known conversation."""
        return self._match is not None

    @property
    def unknown(self) -> bool:
        """Whether the conversation of a message of the prompt is ambiguous."""
        return any(entry.unknown and not entry.origin for entry in (*self.entries.values(), *self._new.values()))

    @property
    def query(self) -> int:
        """Position of the newest question, in the prompt or among the entries that the provider holds; -1 for none."""
        held = () if self._asked >= 0 else self.entries.items()
        return next((place for place, entry in held if _as_query(entry) == self.conversation.asked), self._asked)

    @property
    def query_ref(self) -> str:
        """Ref of the newest question, of this or an earlier call: the name of the message, as a query."""
        asked = self.entries.get(self.query) or self._new.get(self.query)
        return _as_query(asked) if asked else self.conversation.asked

    def is_new(self, place: int) -> bool:
        """Whether the message at this position of the prompt is new and no summary."""
        entry = self.entries.get(place)
        return place in self._new and not (entry and _is_summary(entry))

    def new_versions(self, place: int) -> tuple[Version, ...]:
        """The versions behind a new message."""
        return self._new[place].made_of

    def set_sources(self, place: int, contexts: Iterable[Version]) -> None:
        """Say which searches made a new message, the result of a tool."""
        self._new[place] = replace(self._new[place], made_of=tuple(contexts))

    def write(self) -> None:
        """Record what has changed since the reply that this call continues; called once the call has its answer.

        Only the first call that continues a state trims and summarises. A later call is a branch: it adds messages.
        """
        match = self._match
        if match is None:
            return
        first = conversations.continue_first(self.conversation)
        summary, replaced_refs = self._find_summary(match) if first else ((), ())
        now = {e.ref: e if first else self.conversation.renew(e) for e in (*self.entries.values(), *match.removed)}
        made = {place: entry for place, entry in self._new.items() if place not in (self.query, *summary)}
        removed = {entry.ref: entry for entry in match.removed} if first else {}
        kept = {entry.ref: now[entry.ref] for entry in (*self.entries.values(), *removed.values())}
        stored = self._store([*(entry for entry in kept.values() if not entry.origin), *made.values()])
        now = {ref: stored.get(entry.ref, entry) for ref, entry in now.items()}
        placed = {place: replace(now[entry.ref], key=entry.key) for place, entry in self.entries.items()}
        self.entries = placed | {place: stored[entry.ref] for place, entry in made.items()}
        if summary:
            self._summarise(summary, [now[ref] for ref in replaced_refs])
        self._trim([now[ref] for ref in removed if ref not in replaced_refs])

    def answered(self, choices: Sequence[Sequence[Said]], id: str) -> None:
        """Keep each choice with the history before it, for the calls that continue it. `id` is that of the reply."""
        held = self._held()
        asked = replace(
            self.conversation,
            instructions=instructions_of(self._request.messages),
            asked=self.query_ref,
            certain=self.certain,
            continued=False,
            place=self._place,
        )
        for number, choice in reversed(list(enumerate(choices))):  # the first one is the newest state
            said = [asked.new_entry(Message("assistant", text), made_of) for text, made_of in choice]
            entries = [asked.renew(entry) if number else entry for entry in held]
            conversations.remember(replace(asked, entries=(*entries, *said)), said, self._request, id)

    def _held(self) -> list[Entry]:
        """The history in order: the entries that the provider holds, then those in the prompt."""
        placed, prompt = {**self._new, **self.entries}, len(self._request.messages)
        return [placed[place] for place in sorted(placed, key=lambda place: (place < prompt, place))]

    def _store(self, entries: Sequence[Entry]) -> dict[str, Entry]:
        """Record that messages become part of the history; returns the stored entries by ref."""
        if not entries:
            return {}
        with self._operation(OpKind.INGEST, "memory_update") as operation:
            self._mark(operation)
            if any(entry.unknown for entry in entries):
                operation.mark(Incomplete.UNKNOWN_ORIGIN)
            for entry in entries:
                alone = len(entry.made_of) == 1  # of a text with tool calls, the answer was only the text
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
        """Record that the prompt no longer repeats these entries."""
        if not removed:
            return
        with self._operation(OpKind.DELETE, "trim") as operation:
            self._mark(operation)
            for entry in removed:
                source = operation.read(entry.ref, role=Role.PREVIOUS, origin=entry.origin)
                operation.wrote(entry.ref, action=Action.DELETE, sources=[source])

    def _find_summary(self, match: Match) -> tuple[Sequence[int], Sequence[str]]:
        """Positions of the messages that summarise dropped messages, and the refs of the entries that they replace.

        A summary is a new compaction, or new messages or instructions that quote a reply of this turn.
        """
        messages, removed = self._request.messages, [entry.ref for entry in match.removed]
        if not removed:
            return (), ()
        for place, entry in match.kept.items():
            if messages[place].compaction and not entry.origin:
                return [place], [*removed, entry.ref]
        for place, message in enumerate(messages):
            if place not in match.kept and place != self.query and self._quoted(message.text) is not None:
                return [place], removed
        return (), ()

    def _summarise(self, places: Sequence[int], removed: Sequence[Entry]) -> None:
        """Record that the messages at these positions replace the removed entries."""
        messages = {place: self._request.messages[place] for place in places}
        with self._operation(OpKind.CONSOLIDATE, "summarize") as operation:
            summary = self._replace(operation, list(messages.values()), removed)
        made = {place: replace(summary, key=key_of(message)) for place, message in messages.items()}
        self.entries = {**self.entries, **made}

    def _replace(self, operation: Operation, by: Sequence[Message], removed: Sequence[Entry]) -> Entry:
        """Record a new version of each removed entry, the text of `by`; returns the entry that replaces all."""
        self._mark(operation)
        text = None if by[0].compaction else "\n".join(message.text for message in by)
        if text is None:
            operation.mark(Incomplete.UNSERIALISABLE)
        previous = [operation.read(entry.ref, role=Role.PREVIOUS, origin=entry.origin) for entry in removed]
        answer = self._quoted(text) if text else None
        written: list[int] = []
        if answer is not None:
            written = [operation.read(answer.ref, role=Role.ANSWER, origin=answer.origin, content=answer.text)]
        for entry, source in zip(removed, previous, strict=True):
            sources = previous if entry is removed[0] else [source]
            operation.wrote(entry.ref, action=Action.UPDATE, content=text, sources=[*sources, *written])
        ref, origin = removed[0].ref, operation.origin
        return replace(removed[0], key=key_of(by[0]), origin=origin, text="", made_of=((ref, origin),))

    def _replies_quoted(self) -> list[recall.Answer]:
        """The replies of this turn that the prompt quotes."""
        texts = [message.text for message in self._request.messages]
        return [answer for answer in self._answers() if any(recall.quotes(text, answer.text) for text in texts)]

    def _quoted(self, text: str) -> recall.Answer | None:
        """The reply of this turn that a text quotes, None for none."""
        return next((answer for answer in self._answers() if recall.quotes(text, answer.text)), None)

    def _answers(self) -> Iterator[recall.Answer]:
        return (answer for turn in self._turns for answer in turn.newest_answers())

    def _operation(self, kind: OpKind, purpose: str) -> Operation:
        return Operation(
            kind=kind,
            system=SYSTEM,
            scope=self.conversation.scope,
            purpose=purpose,
            tracer=self._tracer,
            parent=self._parent,
        )

    def _mark(self, operation: Operation) -> None:
        if not self.certain:
            operation.mark(Incomplete.INFERRED)


def _is_summary(entry: Entry) -> bool:
    return bool(entry.made_of) and ref_kind(entry.made_of[0][0]) == RefKind.STATE


def _as_query(entry: Entry) -> str:
    return make_ref(RefKind.QUERY, split_ref(entry.made_of[0][0])[1]) if entry.made_of else ""
