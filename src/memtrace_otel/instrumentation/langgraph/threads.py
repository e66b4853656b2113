"""What the threads of a checkpointer hold: their messages and texts, as far as this process has seen them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from memtrace_otel.capture import as_text
from memtrace_otel.model import make_ref
from memtrace_otel.semconv import RefKind

_THREADS = 1024
_HIDDEN = ("__", "branch:", "start:")


@dataclass(frozen=True, slots=True)
class Entry:
    """A message or text of a thread. `id` is the message's own, '' for the text of a channel; `key` tells whether it
    has changed."""

    ref: str
    channel: str
    id: str
    role: str
    key: int
    content: object = field(compare=False, repr=False, default=None)

    @property
    def text(self) -> str:
        """What it says."""
        return as_text(self.content)[0]


def entries_of(thread: str, values: Mapping[str, Any], channels: Collection[str] | None = None) -> dict[str, Entry]:
    """The messages and texts in the channels of a checkpoint, by ref."""
    found: dict[str, Entry] = {}
    for channel, value in values.items():
        if channel.startswith(_HIDDEN) or (channels is not None and channel not in channels):
            continue
        if isinstance(value, str) and " " in value:  # a summary, not a name or an id
            ref = make_ref(RefKind.STATE, f"{thread}/{channel}")
            found[ref] = Entry(ref, channel, "", "text", hash(value), value)
        elif isinstance(value, list):
            for entry in _messages(thread, channel, cast(Sequence[Any], value)):
                found[entry.ref] = entry
    return found


def _messages(thread: str, channel: str, messages: Sequence[Any]) -> list[Entry]:
    entries: list[Entry] = []
    for message in messages:
        content, id = getattr(message, "content", None), getattr(message, "id", None)
        if content is None or not id:  # add_messages gives every message an id
            continue
        said = content or getattr(message, "tool_calls", None) or ""
        key = hash(said) if isinstance(said, str) else hash(as_text(said)[0])  # a str remembers its hash
        ref = make_ref(RefKind.STATE, f"{thread}/{id}")
        entries.append(Entry(ref, channel, str(id), str(getattr(message, "type", "")), key, said))
    return entries


@dataclass(frozen=True, slots=True)
class Change:
    """What a checkpoint does to a thread."""

    added: list[Entry]
    updated: list[Entry]
    removed: list[str]

    def __bool__(self) -> bool:
        return bool(self.added or self.updated or self.removed)


class Threads:
    """The newest known entries of each thread: ref -> (channel, key), no contents. The threads unused longest go."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str], dict[str, tuple[str, int]]] = OrderedDict()

    def change(self, scope: str, thread: str, entries: Mapping[str, Entry], channels: Collection[str]) -> Change:
        """Compare the entries of the given channels with what was known, which stays as it is."""
        with self._lock:
            known = dict(self._known.get((scope, thread), {}))
        return Change(
            [entry for ref, entry in entries.items() if ref not in known],
            [entry for ref, entry in entries.items() if ref in known and known[ref][1] != entry.key],
            [ref for ref, (channel, _) in known.items() if channel in channels and ref not in entries],
        )

    def apply(self, scope: str, thread: str, change: Change) -> None:
        """Make a change known."""
        with self._lock:
            known = self._known.setdefault((scope, thread), {})
            known.update({entry.ref: (entry.channel, entry.key) for entry in (*change.added, *change.updated)})
            for ref in change.removed:
                known.pop(ref, None)
            self._known.move_to_end((scope, thread))
            while len(self._known) > _THREADS:
                self._known.popitem(last=False)

    def knows(self, scope: str, thread: str) -> bool:
        """Whether anything is known of a thread."""
        return (scope, thread) in self._known

    def forget(self, scope: str, thread: str) -> list[str]:
        """Drop a thread; returns the refs that it held."""
        with self._lock:
            return list(self._known.pop((scope, thread), {}))
