"""Libraries that call a model through a client package: they know ids of messages, which the request lacks."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace

from memtrace_otel.instrumentation.chat_history.alignment import paired
from memtrace_otel.instrumentation.chat_history.messages import Message, Request, Version


@dataclass(slots=True)
class Caller:
    """A call of `model`, an object of such a library.

    `messages` are the prompt as the library knows it. `reply` lists the versions of the reply, set by the instrumentor
    of the client package.
    """

    model: object
    messages: Sequence[Message]
    reply: tuple[Version, ...] = ()

    def name(self, request: Request) -> Request:
        """The request with the library's ids where both have the same message."""
        sides = ([(m.role, m.text) for m in side] for side in (request.messages, self.messages))
        messages = list(request.messages)
        for place, at in paired(*sides).items():
            known = self.messages[at]
            messages[place] = replace(messages[place], id=known.id or messages[place].id, made_of=known.made_of)
        return replace(request, messages=tuple(messages))


CALLER: ContextVar[Caller | None] = ContextVar("memtrace_caller", default=None)
"""Set by the instrumentor of such a library while a model is called."""

RECORDED_PACKAGES: set[str] = set()
"""Client packages (`openai`) whose model calls their own instrumentor records now."""
