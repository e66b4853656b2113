"""Alignment of a prompt with a known conversation: the repeated and the dropped messages."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from memtrace_otel.capture import recall, variable_ref
from memtrace_otel.instrumentation.chat_history.messages import INSTRUCTIONS, Message, Version
from memtrace_otel.model import content_digest, make_ref, split_ref
from memtrace_otel.semconv import RefKind

REPEATED_BY_CHANCE = 64
"""A reply of at most this many characters ("OK", "You are welcome.") does not identify a conversation."""
NO_MATCH, LONG_REPLY, EXCHANGE = range(3)
"""How well a prompt identifies a conversation; see `Match.strength`."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One message of a history.

    `key` is equal for equal messages. `origin` is the span that stored the message, '' until a call repeats the
    message; until then `text` is kept. `made_of` lists the versions behind the message: a message, or the answer and
    the tool calls of a reply. `unknown`: the conversation of the message is unknown.
    """

    key: str
    ref: str
    origin: str = ""
    text: str = ""
    made_of: tuple[Version, ...] = ()
    unknown: bool = False

    @property
    def versions(self) -> tuple[Version, ...]:
        """The versions that a reader reads: the stored entry, or `made_of` before the entry is stored."""
        return self.made_of if self.made_of and not self.origin else ((self.ref, self.origin),)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call is made: the session in the baggage and the id of the current trace, '' for none."""

    session: str = ""
    trace: str = ""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The history of one conversation as of one reply, the last of `entries`.

    `mark` is part of the refs: a conversation that another process begins under the same `id` has other refs.
    `instructions` are digests of its system messages. `asked` is the ref of the newest question, `place` is where the
    question was asked. `certain` is False after an ambiguous match. `continued`: a call has continued this state.
    """

    id: str
    mark: str
    scope: str
    user: str = ""
    entries: tuple[Entry, ...] = ()
    instructions: tuple[str, ...] = ()
    asked: str = ""
    certain: bool = True
    continued: bool = False
    place: Place = Place()
    numbers: Iterator[int] = field(default_factory=lambda: count(1))  # shared by all states of the conversation

    @property
    def name(self) -> str:
        """The caller's name of the conversation, '' without one."""
        return self.id if self.id != self.mark else ""

    @property
    def state(self) -> str:
        """The identity of this state: the reply, or the version of a summary, that it ends with."""
        return self.entries[-1].ref + self.entries[-1].origin if self.entries else ""

    @property
    def size(self) -> int:
        """Bytes of the kept texts, about."""
        return sum(len(entry.text) + 8 for entry in self.entries)

    def begins_with(self, keys: Sequence[str]) -> bool:
        """Whether the entries begin with these keys and go on: few-shot examples that every prompt repeats."""
        return 1 < len(keys) < len(self.entries) and all(
            entry.key == key for entry, key in zip(self.entries, keys, strict=False)
        )

    def was_given_to(self, reply: recall.Answer) -> bool:
        """Whether the call with this reply, of another conversation, was given the kept messages in one text."""
        if any(reply.origin == origin for entry in self.entries for _, origin in entry.made_of):
            return False
        texts = [e.text for e in self.entries if e.text and not any(origin for _, origin in e.made_of)]
        return bool(texts) and all(recall.quotes(reply.question, text) for text in texts)

    def renew(self, entry: Entry) -> Entry:
        """The same message as a record of its own, for another branch of the conversation."""
        return entry if entry.origin else replace(entry, ref=self._new_ref())

    def new_entry(self, message: Message, made_of: tuple[Version, ...] = ()) -> Entry:
        """An entry with a new ref, so that equal messages of two turns stay two."""
        ref = self._new_ref()
        if not made_of:
            digest = split_ref(variable_ref(RefKind.MESSAGE, message.text))[1]
            made_of = ((make_ref(RefKind.MESSAGE, f"{message.id or digest}.{split_ref(ref)[1]}"), ""),)
        return Entry(key_of(message), ref, text=message.text, made_of=made_of)

    def _new_ref(self) -> str:
        return make_ref(RefKind.STATE, f"{self.mark}.{next(self.numbers)}")


@dataclass(frozen=True, slots=True)
class Match:
    """A prompt matched with the state that it continues.

    `kept` maps positions of the prompt to entries, `removed` are the entries that the prompt has dropped. `fit` is the
    number of messages in the order of the history, and whether the last exchange is complete.
    """

    conversation: Conversation
    kept: dict[int, Entry]
    removed: list[Entry]
    certain: bool
    fit: tuple[int, bool] = (0, False)

    def strength(self, messages: Sequence[Message]) -> int:
        """`EXCHANGE` if the prompt repeats a question with its reply, a compaction, or begins with a long reply.

        `LONG_REPLY` if the question of a long reply is unknown. A short reply to an unknown question identifies no
        conversation: `NO_MATCH`.
        """
        best = NO_MATCH
        for place in self.kept:
            if messages[place].compaction:
                return EXCHANGE
            if messages[place].role != "assistant":
                continue
            before = next((p for p in range(place - 1, -1, -1) if messages[p].role not in INSTRUCTIONS), None)
            long = len(messages[place].text) > REPEATED_BY_CHANCE
            if before in self.kept or (before is None and long):
                return EXCHANGE
            if long and before is not None and messages[before].role == "user":
                best = LONG_REPLY
        return best


def key_of(message: Message) -> str:
    """Equal for equal messages, whatever white space is around them."""
    return f"{message.role} {content_digest(f'{message.answers} {message.text.strip()}')}"


def aligned(conversation: Conversation, keys: Sequence[str]) -> Match:
    """Match the keys of a prompt with the entries: in order, then the rest in any order."""
    entries = conversation.entries
    rows = [entry.key for entry in entries]
    ends = bool(keys and rows) and keys[-1] == rows[-1]
    matched = paired(keys[: len(keys) - ends], rows[: len(rows) - ends])
    if ends:
        matched[len(keys) - 1] = len(rows) - 1
    fit = len(matched), matched.get(len(keys) - 2) == len(entries) - 2
    free: dict[str, list[int]] = {}
    for index in sorted(set(range(max(matched.values(), default=0))) - set(matched.values())):
        free.setdefault(rows[index], []).append(index)
    for place in range(len(keys) - 1, -1, -1):
        if place not in matched and free.get(keys[place]):
            matched[place] = free[keys[place]].pop()
    held = {entries[index].ref for index in matched.values()}  # several messages may be one summary
    removed = [entry for entry in entries[: max(matched.values(), default=len(entries))] if entry.ref not in held]
    kept = {place: entries[matched[place]] for place in sorted(matched)}
    return Match(conversation, kept, removed, conversation.certain, fit)


def paired(keys: Sequence[object], rows: Sequence[object]) -> dict[int, int]:
    """Positions of equal values, in the order of both sequences.

    The newest values are paired first, as a trimmed prompt needs. Where pairing the oldest first finds more, that is
    taken: a late message may repeat an early one.
    """
    oldest, newest = _first_fits(keys, rows), _first_fits(keys[::-1], rows[::-1])
    if len(oldest) > len(newest):
        return oldest
    return {len(keys) - 1 - place: len(rows) - 1 - at for place, at in newest.items()}


def _first_fits(keys: Sequence[object], rows: Sequence[object]) -> dict[int, int]:
    places: dict[object, list[int]] = {}
    for at, row in enumerate(rows):
        places.setdefault(row, []).append(at)
    pairs: dict[int, int] = {}
    after = 0
    for place, key in enumerate(keys):
        known = places.get(key, ())
        index = bisect_left(known, after)
        if index < len(known):
            pairs[place] = known[index]
            after = known[index] + 1
    return pairs


def best_match(matches: Sequence[Match], messages: Sequence[Message], place: Place) -> Match | None:
    """The match with most of the prompt and least else; of equal ones that of this session, then of this trace.

    Ambiguous (None) if states of two conversations match equally. `matches` has the newest first.
    """
    instructions = instructions_of(messages)

    def rank(one: Match) -> tuple[tuple[int, bool], int, bool]:
        return one.fit, -len(one.removed), one.conversation.instructions == instructions

    ids = dict.fromkeys(one.conversation.id for one in matches)
    best = [_best_state([one for one in matches if one.conversation.id == id]) for id in ids]
    best = [one for one in best if rank(one) == max(map(rank, best))]
    for attribute in ("session", "trace"):
        here = getattr(place, attribute)
        best = [one for one in best if here and getattr(one.conversation.place, attribute) == here] or best
    return best[0] if len(best) == 1 else None


def _best_state(matches: Sequence[Match]) -> Match:
    """Of the states of one conversation the newest one that fits best; of equal ones one that no call has continued.

    `certain` is False if another state fits equally and is waiting, too, or is all that the prompt repeats.
    """
    best = max(matches, key=lambda one: (one.fit, not one.conversation.continued))  # the first of equal ones
    others = [one for one in matches if one is not best and one.fit == best.fit]
    doubt = any(one.conversation.continued == best.conversation.continued or not one.removed for one in others)
    return replace(best, certain=False) if doubt else best


def instructions_of(messages: Sequence[Message]) -> tuple[str, ...]:
    """Digests of the system messages."""
    return tuple(content_digest(message.text) for message in messages if message.role in INSTRUCTIONS)
