"""Messages and texts of checkpointed threads that this process has seen."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from memtrace_otel.capture import as_text, recall, variable_ref
from memtrace_otel.capture.fork import new_lock_after_fork
from memtrace_otel.instrumentation.chat_history.messages import Message, Version, get
from memtrace_otel.instrumentation.langchain.messages import message_of, role_of
from memtrace_otel.instrumentation.langchain.records import answers_of
from memtrace_otel.model import make_ref, split_ref
from memtrace_otel.semconv import RefKind

_THREADS = 1024
_HELD = 1 << 17  # entries of all checkpoints, about 21 MB
_HIDDEN = ("__", "branch:", "start:")
_NO_MESSAGE = (str, bytes, int, float, type(None))
_SPEAKERS = frozenset({"user", "human", "assistant", "ai", "system", "developer", "tool", "function"})
_PREVIOUS = "__previous__"
"""The value that a function of the functional API saves for the next run of its thread."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A message or text of a thread.

    `id` is that of the message, '' without one. `role` of the text of a channel is `text`. `key` is equal for equal
    texts, `said` for equal messages of a prompt (`said_key`). `made_of`: the known versions behind the entry.
    """

    ref: str
    channel: str
    id: str
    role: str
    key: int
    said: int = 0
    content: object = field(compare=False, repr=False, default=None)
    made_of: tuple[Version, ...] = field(compare=False, default=())

    @property
    def text(self) -> str:
        """The content as text."""
        return as_text(self.content)[0]


def entries_of(thread: str, values: Mapping[str, Any], channels: Collection[str] | None = None) -> dict[str, Entry]:
    """The messages and texts in the channels of a checkpoint, by ref."""
    found: dict[str, Entry] = {}
    for channel, value in values.items():
        if channels is not None and channel not in channels:
            continue
        if channel.startswith(_HIDDEN) and channel != _PREVIOUS:
            continue
        if type(value).__name__ == "_DeltaSnapshot":  # a DeltaChannel, now and then
            value = value.value
        if isinstance(value, str) and " " in value:  # a summary; a name or an id is one word
            ref = make_ref(RefKind.STATE, f"{thread}/{channel}")
            found[ref] = Entry(ref, channel, "", "text", hash(value), content=value)
        elif isinstance(value, list):
            for entry in _messages(thread, channel, cast(Sequence[Any], value)):
                found[entry.ref] = entry
    return found


def _messages(thread: str, channel: str, messages: Sequence[Any]) -> list[Entry]:
    """The entries of messages. A message without an id is named by role, text and its number among equal messages."""
    entries: list[Entry] = []
    equal: Counter[str] = Counter()
    for given in messages:
        said = None if isinstance(given, _NO_MESSAGE) or not _has_speaker(given) else _said(given)
        if said is None:
            continue
        message = message_of(given)
        text = said if isinstance(said, str) else as_text(said)[0]
        name = message.id
        if not name:
            name = f"{channel}/{split_ref(variable_ref(RefKind.STATE, f'{message.role}: {text}'))[1]}"
            equal[name] += 1
            name += f".{equal[name]}" if equal[name] > 1 else ""
        ref = make_ref(RefKind.STATE, f"{thread}/{name}")
        key, place = hash(text), said_key(message)
        entries.append(Entry(ref, channel, message.id, message.role, key, place, said, message.made_of))
    return entries


def _has_speaker(given: object) -> bool:
    """Whether a value is a message: a message of LangChain with any role, or another value with a usual role."""
    role = role_of(given)
    return role in _SPEAKERS or (role != "" and any(base.__name__ == "BaseMessage" for base in type(given).__mro__))


def _said(given: object) -> object:
    """The content of a message, else its tool calls; None without both."""
    content: object = get(given, "content")
    calls: object = get(given, "tool_calls")
    if not (content is None or (isinstance(content, str | list) and not content)):
        return cast(object, content)
    if isinstance(calls, list | tuple) and calls:
        return cast(object, calls)
    return None if content is None else ""


def said_key(message: Message) -> int:
    """Equal for messages of a prompt with equal role, text and tool calls."""
    return hash((message.role, message.text))


class Held(NamedTuple):
    """An entry of a checkpoint; `origin` is that of its version, '' if this process has not written the entry."""

    channel: str
    key: int
    origin: str = ""
    said: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """The difference between a checkpoint and its parent; `held` has the unchanged entries, by ref."""

    added: list[Entry]
    updated: list[Entry]
    removed: dict[str, Held]
    held: dict[str, Held]

    def __bool__(self) -> bool:
        return bool(self.added or self.updated or self.removed)


class Threads:
    """The entries of each thread and checkpoint, by ref, without contents. Bounded: the oldest are dropped first."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        new_lock_after_fork(self)
        self._living: OrderedDict[tuple[str, str], dict[str, Held]] = OrderedDict()
        self._checkpoints: OrderedDict[tuple[str, str, str], dict[str, Held]] = OrderedDict()
        self._size = 0

    def change(
        self, scope: str, thread: str, parent: str, entries: Mapping[str, Entry], channels: Collection[str]
    ) -> Change:
        """Compare the entries of the given channels with those of the parent checkpoint.

        If the parent is unknown, no entry is removed, and the known entries of the thread are not new.
        """
        with self._lock:
            before = self._checkpoints.get((scope, thread, parent))
            living = self._living.get((scope, thread), {})
            known = {ref: held for ref, held in living.items() if ref in entries} if before is None else before
        gone = {ref: held for ref, held in known.items() if held.channel in channels and ref not in entries}
        return Change(
            [entry for ref, entry in entries.items() if ref not in known],
            [entry for ref, entry in entries.items() if ref in known and known[ref].key != entry.key],
            gone,
            {ref: held for ref, held in known.items() if held.channel not in channels or ref in entries},
        )

    def apply(self, scope: str, thread: str, checkpoint: str, change: Change, origin: str = "") -> None:
        """Apply the change of a checkpoint, written by the operation `origin`."""
        written = {e.ref: Held(e.channel, e.key, origin, e.said) for e in (*change.added, *change.updated)}
        with self._lock:
            living = self._living.setdefault((scope, thread), {})
            living.update(written)
            for ref in change.removed:
                living.pop(ref, None)
            self._living.move_to_end((scope, thread))
            while len(self._living) > _THREADS:
                self._living.popitem(last=False)
            self._keep((scope, thread, checkpoint), {**change.held, **written})

    def found(self, scope: str, thread: str, checkpoint: str, entries: Mapping[str, Entry]) -> Mapping[str, Held]:
        """The entries of a checkpoint that was read. A checkpoint of another process becomes known."""
        with self._lock:
            held = self._checkpoints.get((scope, thread, checkpoint))
        if held is None:
            self.apply(scope, thread, checkpoint, Change(list(entries.values()), [], {}, {}))
        return held or {}

    def held(self, scope: str, thread: str, checkpoint: str) -> Mapping[str, Held]:
        """The entries of a checkpoint; of its thread while the checkpoint is still being written."""
        with self._lock:
            held = self._checkpoints.get((scope, thread, checkpoint))
            return self._living.get((scope, thread), {}).copy() if held is None else held

    def forget(self, scope: str, thread: str) -> list[str]:
        """Drop a thread; returns the refs of its entries."""
        with self._lock:
            return list(self._living.pop((scope, thread), {}))

    def _keep(self, place: tuple[str, str, str], held: dict[str, Held]) -> None:
        again = self._checkpoints.pop(place, None)
        self._size += len(held) + 1 - (0 if again is None else len(again) + 1)
        self._checkpoints[place] = held
        while self._size > _HELD and len(self._checkpoints) > 1:
            self._size -= len(self._checkpoints.popitem(last=False)[1]) + 1


class Reply(NamedTuple):
    """The answer behind a message; `sure` False if several equal answers are possible."""

    answer: recall.Answer
    sure: bool


def replies_of(entries: Iterable[Entry], turn: recall.Turn | None) -> dict[str, Reply]:
    """The answers of a turn among new messages and texts, by ref: by known versions, else the newest equal answer."""
    found: dict[str, Reply] = {}
    for entry in entries:
        answers = answers_of(turn, entry.text) if entry.role in ("assistant", "text") else []
        known = {origin for _, origin in entry.made_of}
        own = next((answer for answer in answers if answer.origin in known), None)
        if own is not None:
            found[entry.ref] = Reply(own, sure=True)
        elif answers:
            found[entry.ref] = Reply(answers[0], sure=len(answers) == 1)
    return found
