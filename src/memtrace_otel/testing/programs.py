"""Small applications of a memory system, and what is done with them under the contract of instrumentors."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar, cast

from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from memtrace_otel import semconv
from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import decode_request

T = TypeVar("T")

SECRET = "zanzibar"
"""A word of every text given to a program: with content capture off it is on no span."""
TEXTS = (f"My cat {SECRET} sleeps on the red sofa.", f"My dog {SECRET} likes the garden.")
QUERY = f"Where does the cat {SECRET} sleep?"
_HANGING_SECONDS = 300.0  # a slow system on a starved machine is not done in one minute


class Program(Protocol):
    """A deterministic application: two fresh programs return equal results (leave out ids, times and vectors)."""

    async def write(self, text: str) -> object:
        """Give the memory system a text to remember; return what an application would see."""
        ...

    async def read(self, query: str) -> object:
        """Search the memory; return what an application would see. After the two texts, at least one is found."""
        ...

    async def fail(self) -> object:
        """Make a wrapped call of the system raise an error of its own."""
        ...

    async def close(self) -> None:
        """Let go of what the program holds."""
        ...


class AsyncProgram(Program, Protocol):
    """A program whose system is asynchronous, so that its calls can be cancelled."""

    async def hang(self) -> object:
        """Make a wrapped call that waits (a model that does not answer) until it is cancelled."""
        ...


class StreamingProgram(Program, Protocol):
    """A program whose system answers piece by piece."""

    async def stream(self, query: str) -> list[object]:
        """Ask and read the whole stream; return its pieces of text."""
        ...


class ExploringProgram(Program, Protocol):
    """A program that can use the whole of its system."""

    async def explore(self) -> object:
        """Every call that is wrapped and that writing and reading do not lead to; return what an application sees."""
        ...


class ReentrantProgram(Program, Protocol):
    """A program whose system calls something of the program's: a model, an embedder, a tool, a callback."""

    async def reenter(self, text: str, query: str) -> object:
        """Write `text`, and in what the system calls on the way search for `query`; return what both gave."""
        ...


Factory = Callable[[], Program]
AsyncFactory = Callable[[], AsyncProgram]
StreamFactory = Callable[[], StreamingProgram]
ReentrantFactory = Callable[[], ReentrantProgram]


class Started(SpanProcessor):
    """Keeps what was started and what was ended."""

    def __init__(self) -> None:
        self.started: list[Span] = []
        self.ended: list[ReadableSpan] = []

    def on_start(self, span: Span, parent_context: object = None) -> None:
        self.started.append(span)

    def on_end(self, span: ReadableSpan) -> None:
        self.ended.append(span)

    @property
    def ours(self) -> list[ReadableSpan]:
        """The ended spans that carry memtrace attributes, by start."""
        spans = [span for span in self.ended if semconv.OP_KIND in (span.attributes or {})]
        return sorted(spans, key=lambda span: span.start_time or 0)


async def go_on() -> None:
    """Wait for nobody."""


async def play(program: Factory, pause: Callable[[], Awaitable[object]] = go_on) -> list[object]:
    """A whole run of a fresh program: two texts written, one question asked; what the application saw. It pauses
    before each, so that runs at the same time can take turns."""
    application = program()
    seen: list[object] = []
    try:
        for text in TEXTS:
            await pause()
            seen.append(await application.write(text))
        await pause()
        return [*seen, await application.read(QUERY)]
    finally:
        await application.close()


async def explored(program: Factory) -> list[object]:
    """The same, and all that the program can do besides."""
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
    """What a fresh program that knows one text saw of a search inside of a write."""
    application = program()
    try:
        return [await application.write(TEXTS[0]), await application.reenter(TEXTS[1], QUERY)]
    finally:
        await application.close()


async def failure(program: Factory) -> BaseException:
    """The error that a fresh program's failing call raises."""
    application = program()
    try:
        await application.fail()
    except Exception as error:
        return error
    finally:
        await application.close()
    raise AssertionError("the failing call of the program did not raise")


async def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Poll `condition`."""
    for _ in range(int(seconds / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("waited in vain")


def recorded(spans: Started) -> list[OperationSpan]:
    """The recorded spans as they look behind the wire."""
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    return decode_request(encode_spans(spans.ended).SerializeToString())


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing, without an event loop; AssertionError when it waits."""
    try:
        work.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    work.close()
    raise AssertionError("the program waits: its system is not synchronous")


def finished(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a thread of its own; AssertionError when it has not come to its end in five minutes."""
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
