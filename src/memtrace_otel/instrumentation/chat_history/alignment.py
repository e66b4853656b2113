"""One line of a conversation: its messages as of one reply, and which of them a prompt repeats."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from memtrace_otel.capture import recall, variable_ref
from memtrace_otel.instrumentation.chat_history.instructions import Instructions
from memtrace_otel.instrumentation.chat_history.messages import INSTRUCTIONS, Message, Version
from memtrace_otel.model import content_digest, make_ref, split_ref
from memtrace_otel.semconv import RefKind

REPEATED_BY_CHANCE = 64
"""A reply of at most as many characters, alone, tells no conversation from others: "OK", "You are welcome."."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Entry:
    """One message that a conversation holds. `key` tells equal messages; `origin` is the span that put it into the
    history, '' while no call has repeated it yet: so long its `text` is kept. `made_of` are the versions it was said
    as: a message, or the answer and the tool calls of a reply. `unknown`: it cannot be told of which conversation."""

    key: str
    ref: str
    origin: str = ""
    text: str = ""
    made_of: tuple[Version, ...] = ()
    unknown: bool = False

    @property
    def versions(self) -> tuple[Version, ...]:
        """What a reader reads: the entry, or what it was said as while it is no history."""
        return self.made_of if self.made_of and not self.origin else ((self.ref, self.origin),)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call is made: the session that its baggage names and the trace that it is in, '' for none."""

    session: str = ""
    trace: str = ""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt and what it was taken for: `entries` by position among its messages, as they were written, and what was
    `new` in it. `key` tells it from others of this process, it has `length` messages."""

    key: int
    length: int
    entries: Mapping[int, Entry]
    new: Mapping[int, Entry]


@dataclass(frozen=True, slots=True)
class Conversation:
    """The history of one conversation as of one reply, with which `entries` end; `instructions` are its system
    messages, `asked` is the ref of its newest question.

    `mark` is in the refs of its entries: one that is begun anew under the same id (another process, a restart) does not
    write on the old one's. `volatile`: its instructions change though nothing is summarised (a clock, notes found).
    `certain` is False once another conversation could have been meant. `continued`: a call has gone on from here, the
    first one with `prompt`. `place` is where its newest question was asked. `user` is whoever was named first, `scope`
    the memory scope that it was begun with.
    """

    id: str
    mark: str
    scope: str
    user: str = ""
    entries: tuple[Entry, ...] = ()
    instructions: Instructions = field(default_factory=Instructions)
    asked: str = ""
    volatile: bool = False
    certain: bool = True
    continued: bool = False
    prompt: Prompt | None = None
    place: Place = Place()
    numbers: Iterator[int] = field(default_factory=lambda: count(1))  # this and the next: one for all its states

    @property
    def name(self) -> str:
        """The caller's own name of the conversation, '' without one."""
        return self.id if self.id != self.mark else ""

    @property
    def state(self) -> str:
        """What tells this state from all others: the reply, or the version of a summary, that it ends with."""
        return self.entries[-1].ref + self.entries[-1].origin if self.entries else ""

    @property
    def size(self) -> int:
        """Characters of text that are kept, and 8 for each entry."""
        entries = [*self.entries, *(self.prompt.new.values() if self.prompt else ())]
        return sum(len(entry.text) for entry in entries) + 8 * len(entries)

    def was_asked_behind(self, said: Sequence[str]) -> bool:
        """Whether its own prompt began with these messages and went on: examples, say, one as the reply to it."""
        return 1 < len(said) < len(self.entries) and all(
            e.key == key for e, key in zip(self.entries, said, strict=False)
        )

    def was_given(self, reply: recall.Answer, *, whole: bool) -> bool:
        """Whether a call that is none of its own gave this reply to what it was asked last, in one text with what else
        was said; `whole`: also with what it replied to that."""
        if any(reply.origin == origin for entry in self.entries for _, origin in entry.made_of):
            return False
        said = [(entry.text, any(origin for _, origin in entry.made_of)) for entry in self.entries if entry.text]
        texts = [text for text, replied in said if whole or not replied]
        return bool(texts) and all(recall.quotes(reply.question, text) for text in texts)

    def told_again(self, entry: Entry, text: str = "") -> Entry:
        """The same message as another record: what becomes of the first one is no matter of this line."""
        return replace(entry, ref=self._new_ref(), origin="", text=entry.text or text)

    def new_entry(self, message: Message, made_of: tuple[Version, ...] = ()) -> Entry:
        """An entry with a ref of its own: equal messages of two turns stay two, as what was said and in the history."""
        ref = self._new_ref()
        if not made_of:
            mark = split_ref(ref)[1]
            digest = split_ref(variable_ref(RefKind.MESSAGE, message.text))[1]
            made_of = ((make_ref(RefKind.MESSAGE, f"{message.id or digest}.{mark}"), ""),)
        return Entry(key_of(message), ref, text=message.text, made_of=made_of)

    def _new_ref(self) -> str:
        return make_ref(RefKind.STATE, f"{self.mark}.{next(self.numbers)}")


@dataclass(frozen=True, slots=True)
class Continued:
    """A prompt matched with the conversation it continues.

    `kept` maps positions among the prompt's messages to entries, `removed` are the entries it does not repeat;
    `certain` is False when another one could have been meant, now or before: with the same history, or an unknown one.
    `fit`: how many messages stand in the prompt in the order of the history, and whether both end with one exchange.
    """

    conversation: Conversation
    kept: dict[int, Entry]
    removed: list[Entry]
    certain: bool
    fit: tuple[int, bool] = (0, False)


_QUESTION = "user "


def key_of(message: Message) -> str:
    """What tells a message from others of its conversation, however it was trimmed of white space."""
    return f"{message.role} {content_digest(f'{message.answers} {message.text.strip()}')}"


def aligned(conversation: Conversation, keys: Sequence[str]) -> Continued:
    """Match the keys of a prompt, up to the reply that it goes on from, with the entries, in order and newest first,
    behind what they stand behind there if that can be; then those that stand elsewhere now."""
    entries = conversation.entries
    places: dict[str, list[int]] = {}
    pairs: dict[tuple[str, str], list[int]] = {}
    for index, entry in enumerate(entries):
        places.setdefault(entry.key, []).append(index)
        if index:
            pairs.setdefault((entries[index - 1].key, entry.key), []).append(index)
    matched: dict[int, int] = {}
    before = len(entries)
    for place in range(len(keys) - 1, -1, -1):
        behind = pairs.get((keys[place - 1], keys[place]), []) if place and matched else []
        if keys[place].startswith(_QUESTION) and 0 < before < len(entries) and entries[before - 1].key == keys[place]:
            behind = []  # a question stands above its reply
        for known in (behind, places.get(keys[place], [])):
            at = bisect_left(known, before) - 1
            if at >= 0 and place not in matched:
                matched[place] = before = known[at]
    fit = len(matched), matched.get(len(keys) - 2) == len(entries) - 2
    newest, taken = max(matched.values(), default=0), set(matched.values())
    missing = [place for place in range(len(keys) - 1, -1, -1) if place not in matched]
    moved = {
        key: [index for index in places.get(key, ()) if index < newest and index not in taken]
        for key in {keys[place] for place in missing}
    }
    for place in missing:
        if moved[keys[place]]:
            matched[place] = moved[keys[place]].pop()
    held = {entries[index].ref for index in matched.values()}  # of a summary in several messages one may be left
    removed = [entry for entry in entries[: max(matched.values(), default=len(entries))] if entry.ref not in held]
    kept = {place: entries[matched[place]] for place in sorted(matched)}
    return Continued(conversation, kept, removed, conversation.certain, fit)


def one_of_each(found: Sequence[Continued], prompt: int, place: Place, recent: str) -> list[Continued]:
    """Of the states of each conversation, newest first, the one that a prompt of this key goes on from: that which has
    most of it; of these the newest that no call has gone on from yet or else, where a branch is told, that which was
    asked this before. There is a doubt where another one has as much: it is like that one, it was asked this before, or
    it is all that the prompt repeats, so that this may be a branch of it. `recent` is the newest state of the context.
    """

    def was_asked_this(one: Continued) -> bool:
        return one.conversation.prompt is not None and one.conversation.prompt.key == prompt

    def rank(one: Continued) -> tuple[tuple[int, bool], bool, bool]:
        return one.fit, not one.conversation.continued, was_asked_this(one)

    def nearness(one: Continued) -> tuple[bool, bool, bool]:
        session, trace = one.conversation.place.session, one.conversation.place.trace
        return session == place.session != "", trace == place.trace != "", one.conversation.state == recent

    chosen: list[Continued] = []
    for id in dict.fromkeys(one.conversation.id for one in found):
        states = [one for one in found if one.conversation.id == id]
        best = max(states, key=lambda one: (rank(one), nearness(one)))
        others = [one for one in states if one is not best and one.fit == best.fit]
        doubt = any(rank(one) == rank(best) or was_asked_this(one) or not one.removed for one in others)
        chosen.append(replace(best, certain=False) if doubt else best)
    return chosen


SURELY, HERE, ALONE, NOTHING = 3, 2, 1, 0


def how_far_told(kept: Mapping[int, Entry], messages: Sequence[Message]) -> int:
    """How far what a prompt repeats makes a conversation known: a question with its reply and a long reply that comes
    first do; a short one does where the context is the same. One that follows an unknown question may have been given
    to somebody else, a long one only if that is known, too."""
    told = NOTHING
    for place in kept:
        if messages[place].compaction:
            return SURELY
        if messages[place].role != "assistant":
            continue
        before = next((p for p in range(place - 1, -1, -1) if messages[p].role not in INSTRUCTIONS), None)
        if before in kept or (before is None and len(messages[place].text) > REPEATED_BY_CHANCE):
            return SURELY
        if before is None or messages[before].role != "user":
            told = HERE
        elif len(messages[place].text) > REPEATED_BY_CHANCE:
            told = max(told, ALONE)
    return told
