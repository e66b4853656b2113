"""Streamed answers: generators are passed on as generators, and their text is collected.

LlamaIndex calls the model with the first item, so each item is fetched inside the answering operation.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

from memtrace_otel.capture import Operation, guard
from memtrace_otel.capture.finalizers import report_later

_MAX_ITEMS = 100_000
_guard = guard("llamaindex.stream")
Done = Callable[[str, bool, BaseException | None], None]
"""Receives the text, whether the text is complete, and the error of the stream."""


class Collector:
    """The text of a stream; reports the text once."""

    def __init__(self, operation: Operation, text_of: Callable[[Any], str], done: Done) -> None:
        self.operation = operation
        self._text_of, self._done, self._ended = text_of, done, False
        self._texts: list[str] = []

    def see(self, item: Any) -> None:
        """Add one item."""
        if len(self._texts) < _MAX_ITEMS:
            self._texts.append(self._text_of(item))

    def end(self, error: BaseException | None = None, *, whole: bool) -> None:
        """Report the text."""
        if not self._ended:
            self._ended = True
            self._done("".join(self._texts), whole and len(self._texts) < _MAX_ITEMS, error)

    @contextmanager
    def under_way(self) -> Generator[None]:
        """The operation is current while the next item is fetched."""
        with _guard:
            self.operation.resume()
        try:
            yield
        finally:
            with _guard:
                self.operation.leave()


_operations: weakref.WeakKeyDictionary[Any, Operation] = weakref.WeakKeyDictionary()


def operation_of(stream: Any) -> Operation | None:
    """The operation of a generator that `observed` returned."""
    return _operations.get(stream) if inspect.isgenerator(stream) or inspect.isasyncgen(stream) else None


def observed(stream: Any, operation: Operation, text_of: Callable[[Any], str], done: Done) -> Any:
    """A generator with the items of the generator `stream` (async for async); None for another value."""
    collector = Collector(operation, text_of, done)
    any_stream = stream
    generator = inspect.isgenerator(stream)
    if not generator and not inspect.isasyncgen(stream):
        return None
    passing = _pass_on(any_stream, collector) if generator else _pass_on_async(any_stream, collector)
    _operations[passing] = operation
    weakref.finalize(passing, report_later, partial(collector.end, whole=False))  # dropped before its end
    return passing


def _pass_on(stream: Generator[Any], collector: Collector) -> Generator[Any]:
    try:
        while True:
            with collector.under_way():
                try:
                    item = next(stream)
                except StopIteration:
                    break
            with _guard:
                collector.see(item)
            yield item
    except GeneratorExit:
        stream.close()
        raise
    except BaseException as error:
        with _guard:
            collector.end(error, whole=False)
        raise
    with _guard:
        collector.end(whole=True)


async def _pass_on_async(stream: AsyncGenerator[Any], collector: Collector) -> AsyncGenerator[Any]:
    try:
        while True:
            with collector.under_way():
                try:
                    item = await anext(stream)
                except StopAsyncIteration:
                    break
            with _guard:
                collector.see(item)
            yield item
    except GeneratorExit:
        await stream.aclose()
        raise
    except BaseException as error:
        with _guard:
            collector.end(error, whole=False)
        raise
    with _guard:
        collector.end(whole=True)
