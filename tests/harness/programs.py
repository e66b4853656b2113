"""Programs with more abilities than `memtrace_otel.testing.Program`, and ways to run them."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar, cast

from memtrace_otel.testing.programs import QUERY, TEXTS, Factory, Program

T = TypeVar("T")

_HANGING_SECONDS = 300.0  # slow systems on a busy machine need minutes


class AsyncProgram(Program, Protocol):
    """A program whose system is asynchronous: calls can be cancelled."""

    async def hang(self) -> object:
        """Make a wrapped call that waits, for example for a model, until the call is cancelled."""
        ...


class StreamingProgram(Program, Protocol):
    """A program whose system streams answers."""

    async def stream(self, query: str) -> list[object]:
        """Ask and read the whole stream; return the pieces of text."""
        ...


class ExploringProgram(Program, Protocol):
    """A program that uses the whole system."""

    async def explore(self) -> object:
        """Make every wrapped call that `write` and `read` do not make; return what an application sees."""
        ...


class ReentrantProgram(Program, Protocol):
    """A program whose system calls back into the program: a model, an embedder, a tool."""

    async def reenter(self, text: str, query: str) -> object:
        """Write `text`, and search for `query` inside a callback of the write; return both results."""
        ...


AsyncFactory = Callable[[], AsyncProgram]
StreamFactory = Callable[[], StreamingProgram]
ReentrantFactory = Callable[[], ReentrantProgram]


async def explored(program: Factory) -> list[object]:
    """Results of a whole run, with `explore` where the program has it."""
    application = program()
    try:
        seen = [await application.write(text) for text in TEXTS]
        seen.append(await application.read(QUERY))
        if hasattr(application, "explore"):
            seen.append(await cast(ExploringProgram, application).explore())
        return seen
    finally:
        await application.close()


async def streamed(program: StreamFactory) -> list[object]:
    """The pieces of one streamed answer of a fresh program."""
    application = program()
    try:
        return await application.stream(QUERY)
    finally:
        await application.close()


async def reentered(program: ReentrantFactory) -> list[object]:
    """Results of a fresh program with one text and a search inside a write."""
    application = program()
    try:
        return [await application.write(TEXTS[0]), await application.reenter(TEXTS[1], QUERY)]
    finally:
        await application.close()


async def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Poll `condition`. Raises AssertionError after `seconds`."""
    for _ in range(int(seconds / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the condition did not become true")


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine without an event loop. Raises AssertionError when the coroutine waits."""
    try:
        work.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    work.close()
    raise AssertionError("the program waits: its system is not synchronous")


def finished(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a thread of its own. Raises AssertionError after five minutes."""
    returned: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            returned.append(asyncio.run(work))
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True)
    thread.start()
    thread.join(_HANGING_SECONDS)
    if raised:
        raise raised[0]
    if not returned:
        raise AssertionError("the program hangs")
    return returned[0]
