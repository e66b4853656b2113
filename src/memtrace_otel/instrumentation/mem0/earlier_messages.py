"""Messages of earlier calls, which 2.x shows to an extraction: it keeps the newest by text and time, without a name."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from memtrace_otel.capture import variable_ref
from memtrace_otel.capture.fork import new_lock_after_fork
from memtrace_otel.instrumentation.mem0.calls import Call
from memtrace_otel.instrumentation.mem0.session import provider_session
from memtrace_otel.instrumentation.mem0.variables import Turn, turns
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.semconv import RefKind

_CONVERSATIONS = 1000
_CALLS = 16  # Mem0 keeps ten messages
_MESSAGES = 10  # of a call it keeps the first ones: they have one time, and SQLite takes equal rows as they come
_lock = threading.RLock()
new_lock_after_fork(sys.modules[__name__])

Conversation = tuple[str, str]
"""Owner and session of messages that Mem0 keeps together."""


@dataclass(slots=True)
class Saved:
    """The messages that one call saved, as (digest of the text, ref), and when: `ended` is None until it did."""

    messages: list[tuple[str, str]]
    began: datetime
    ended: datetime | None = None


class EarlierMessages:
    """What this process saved, of the newest calls of the newest conversations."""

    def __init__(self) -> None:
        self._saved: OrderedDict[Conversation, list[Saved]] = OrderedDict()

    def save(self, conversation: Conversation, messages: Sequence[Turn]) -> Saved:
        """Note messages that are about to be saved."""
        kept = [(_digest(turn.content), turn.ref) for turn in messages[:_MESSAGES]]
        saved = Saved(kept, datetime.now(UTC))
        with _lock:
            calls = self._saved.setdefault(conversation, [])
            calls.append(saved)
            del calls[:-_CALLS]
            self._saved.move_to_end(conversation)
            while len(self._saved) > _CONVERSATIONS:
                self._saved.popitem(last=False)
        return saved

    def find(self, conversation: Conversation, rows: Sequence[Mapping[str, Any]]) -> list[Turn]:
        """The messages that these rows are. One that another process saved is named by its text and time."""
        with _lock:
            calls = list(self._saved.get(conversation, ()))
        left = [(saved, list(saved.messages)) for saved in calls]
        by_time: dict[str, list[Mapping[str, Any]]] = {}
        for row in rows:
            by_time.setdefault(str(row.get("created_at")), []).append(row)
        found: list[Turn] = []
        for time, together in by_time.items():
            for turn in turns(together, time):
                ref = _take(left, _digest(turn.content), turn.time)
                found.append(Turn(ref or turn.ref, turn.content, turn.time))
        return found


def save(call: Call) -> Step:
    """`save_messages` (2.x): at the end of an `add`, for the next ones."""
    session = provider_session(call, "db")
    if session is None:
        return
    conversation = session.scope, str(call.arguments().get("session_scope"))
    saved = call.patches.messages.save(conversation, session.turns)
    yield
    saved.ended = datetime.now(UTC)


def read(call: Call) -> Step:
    """`get_last_messages` (2.x): what earlier calls saved, for an extraction."""
    session = provider_session(call, "db")
    if session is None:
        return
    conversation = session.scope, str(call.arguments().get("session_scope"))
    rows = yield
    session.history = call.patches.messages.find(conversation, cast("list[Mapping[str, Any]]", rows or []))


def _take(left: list[tuple[Saved, list[tuple[str, str]]]], digest: str, time: str) -> str:
    """Ref of a message with this text that was saved at this time, '' when none was saved here; each is taken once."""
    at = datetime.fromisoformat(time) if time else None
    for saved, messages in left:
        if at is None or saved.ended is None or not saved.began <= at <= saved.ended:
            continue
        for message in messages:
            if message[0] == digest:
                messages.remove(message)
                return message[1]
    return ""


def _digest(content: object) -> str:
    return variable_ref(RefKind.MESSAGE, content)
