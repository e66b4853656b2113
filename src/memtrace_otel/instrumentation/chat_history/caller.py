"""Libraries that make their model calls with the `openai` package: they know messages by ids, which no request has."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memtrace_otel.instrumentation.chat_history.messages import Message, Request, Version

if TYPE_CHECKING:
    from memtrace_otel.instrumentation.chat_history.model_call import ModelCall


@dataclass(slots=True)
class Above:
    """A call of such a library's `model`: its prompt as the library knows it, and the model call made for it, the
    newest."""

    model: object
    messages: Sequence[Message]
    call: ModelCall | None = None

    @property
    def said(self) -> tuple[Version, ...]:
        """The versions that the reply is made of, as far as it is recorded."""
        return self.call.said if self.call else ()

    def name(self, request: Request) -> Request:
        """The request with the messages of the library where it says the same."""
        pairs = paired(
            *([(message.role, message.text) for message in side] for side in (request.messages, self.messages))
        )
        named = (
            replace(
                message, id=self.messages[pairs[place]].id or message.id, made_of=self.messages[pairs[place]].made_of
            )
            if place in pairs
            else message
            for place, message in enumerate(request.messages)
        )
        return replace(request, messages=tuple(named))


ABOVE: ContextVar[Above | None] = ContextVar("memtrace_call_above", default=None)
"""Set by instrumentors of such libraries while a model is called."""

RECORDED_PACKAGES: set[str] = set()
"""Client packages (`openai`) whose model calls their own instrumentor records now."""


def paired(keys: Sequence[object], rows: Sequence[object]) -> dict[int, int]:
    """Places with equal keys, in the order of both: newest first, for a trimmed prompt; oldest first where that finds
    more, since a late message that repeats an early one would leave out all between."""
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
