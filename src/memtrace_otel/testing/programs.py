"""Small applications of a memory system, run by the contract of instrumentors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from memtrace_otel import semconv
from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import decode_request

SECRET = "zanzibar"
"""A word of every text given to a program; no span shows the word while contents are off."""
TEXTS = (f"My cat {SECRET} sleeps on the red sofa.", f"My dog {SECRET} likes the garden.")
QUERY = f"Where does the cat {SECRET} sleep?"


class Program(Protocol):
    """A deterministic application: two fresh programs return equal results (leave out ids, times and vectors)."""

    async def write(self, text: str) -> object:
        """Give the memory system a text to remember; return what an application would see."""
        ...

    async def read(self, query: str) -> object:
        """Search the memory; return what an application would see. After both writes the search has a hit."""
        ...

    async def fail(self) -> object:
        """Make a wrapped call of the system raise an error of the system."""
        ...

    async def close(self) -> None:
        """Release the resources of the program."""
        ...


Factory = Callable[[], Program]


class Started(SpanProcessor):
    """Keeps the started and the ended spans."""

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


async def play(program: Factory, pause: Callable[[], Awaitable[object]] | None = None) -> list[object]:
    """Run a fresh program: write two texts, ask one question; returns the results. `pause` is awaited before each."""
    application = program()
    seen: list[object] = []
    try:
        for text in TEXTS:
            if pause is not None:
                await pause()
            seen.append(await application.write(text))
        if pause is not None:
            await pause()
        return [*seen, await application.read(QUERY)]
    finally:
        await application.close()


async def failure(program: Factory) -> BaseException:
    """The error of the failing call of a fresh program."""
    application = program()
    try:
        await application.fail()
    except Exception as error:
        return error
    finally:
        await application.close()
    raise AssertionError("the failing call of the program did not raise")


def recorded(spans: Started) -> list[OperationSpan]:
    """The recorded spans as operations, encoded and decoded."""
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    return decode_request(encode_spans(spans.ended).SerializeToString())
