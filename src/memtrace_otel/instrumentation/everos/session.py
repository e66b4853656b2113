"""What one call or background run of EverOS has seen so far; carried in the context."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from memtrace_otel.capture import Operation
from memtrace_otel.instrumentation.everos.calls import Call
from memtrace_otel.instrumentation.everos.variables import Space
from memtrace_otel.semconv import Role


@dataclass(frozen=True, slots=True)
class Known:
    """A variable that EverOS passes on as bare text."""

    ref: str
    content: object
    origin: str

    def read_by(self, operation: Operation, role: str = Role.OTHER) -> int:
        """Record it as an input of `operation`."""
        return operation.read(self.ref, role=role, content=self.content, origin=self.origin)


@dataclass(slots=True)
class Session:
    """State of one write, strategy run or search.

    `scope`: of the owner. `known`: the variables behind texts that are passed on. `event`: what started a strategy.
    """

    space: Space
    scope: str
    event: Any = None
    known: dict[str, Known] = field(default_factory=dict[str, Known])

    def learn(self, text: str, ref: str, operation: Operation) -> None:
        """Remember which variable a text is; the newest version wins."""
        self.known[text] = Known(ref, text, operation.origin)


SESSION: ContextVar[Session | None] = ContextVar("memtrace_everos_session", default=None)


@dataclass(slots=True)
class Asking:
    """The model calls of one step: the prompt they fill in, how many there were, and whether one is enough.

    Where one is enough (`once`), another one means that EverOS could not use the reply before. `given`, `made`: tokens
    of all prompts and replies, None while no reply has told.
    """

    prompt: str
    once: bool = True
    calls: int = 0
    given: int | None = None
    made: int | None = None


ASKING: ContextVar[Asking | None] = ContextVar("memtrace_everos_asking", default=None)


def ask(call: Call, prompt: str, *, once: bool = True) -> None:
    """Say which prompt the model calls inside `call` are made with."""
    call.carry(ASKING, Asking(prompt, once))


@dataclass(slots=True)
class Search(Session):
    """State of one search.

    `vectors`: the texts behind query vectors, by identity of the vector, which is kept so that the identity stays its
    own. `seen`: text and best score of every record looked at. `shown`: what the next decision of a round is shown.
    """

    round: int = 1
    vectors: dict[int, tuple[object, str]] = field(default_factory=dict[int, tuple[object, str]])
    seen: dict[str, tuple[str, float]] = field(default_factory=dict[str, tuple[str, float]])
    shown: list[Any] = field(default_factory=list[Any])

    def looked_at(self, ref: str, text: str, score: float) -> None:
        """Note a candidate."""
        _, best = self.seen.get(ref, (text, score))
        self.seen[ref] = (text, max(best, score))


def search_of() -> Search | None:
    """The search under way in this context."""
    session = SESSION.get()
    return session if isinstance(session, Search) else None
