"""Streamed answers: generators passed on as generators, while their text is collected.

LlamaIndex calls the model when the first item is asked for, so each item is fetched inside the answering operation.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import AsyncGenerator, Callable, Generator
from functools import partial
from typing import Any

from memtrace_otel.capture import Operation, guard
from memtrace_otel.instrumentation.abandoned import abandon

_MAX_ITEMS = 100_000
Done = Callable[[str, bool, BaseException | None], None]
"""Takes the text so far, whether that is all of it, and what the stream raised."""


class Collector:
    """The text of a stream so far; reports it once."""

    def __init__(self, operation: Operation, text_of: Callable[[Any], str], done: Done) -> None:
        self.operation = operation
        self._text_of, self._done, self._ended = text_of, done, False
        self._texts: list[str] = []

    def see(self, item: Any) -> None:
        """Take in one item."""
        with guard("llamaindex.stream"):
            if len(self._texts) < _MAX_ITEMS:
                self._texts.append(self._text_of(item))

    def end(self, error: BaseException | None = None, *, whole: bool) -> None:
        """Report what was seen."""
        if not self._ended:
            self._ended = True
            with guard("llamaindex.stream"):
                self._done("".join(self._texts), whole and len(self._texts) < _MAX_ITEMS, error)


_operations: weakref.WeakKeyDictionary[Any, Operation] = weakref.WeakKeyDictionary()


def operation_of(stream: Any) -> Operation | None:
    """The operation whose text a generator of ours collects."""
    return _operations.get(stream) if inspect.isgenerator(stream) or inspect.isasyncgen(stream) else None


def observed(stream: Any, operation: Operation, text_of: Callable[[Any], str], done: Done) -> Any:
    """Return a generator (an async one for an async one) that gives the items of `stream`; None for anything else."""
    collector = Collector(operation, text_of, done)
    any_stream = stream
    generator = inspect.isgenerator(stream)
    if not generator and not inspect.isasyncgen(stream):
        return None
    passing = _pass_on(any_stream, collector) if generator else _pass_on_async(any_stream, collector)
    _operations[passing] = operation
    weakref.finalize(passing, abandon, partial(collector.end, whole=False))  # left half-way, or never asked for an item
    return passing


def _pass_on(stream: Generator[Any], collector: Collector) -> Generator[Any]:
    try:
        while True:
            collector.operation.resume()
            try:
                item = next(stream)
            except StopIteration:
                break
            finally:
                collector.operation.leave()
            collector.see(item)
            yield item
    except GeneratorExit:
        stream.close()
        raise
    except BaseException as error:
        collector.end(error, whole=False)
        raise
    collector.end(whole=True)


async def _pass_on_async(stream: AsyncGenerator[Any], collector: Collector) -> AsyncGenerator[Any]:
    try:
        while True:
            collector.operation.resume()
            try:
                item = await anext(stream)
            except StopAsyncIteration:
                break
            finally:
                collector.operation.leave()
            collector.see(item)
            yield item
    except GeneratorExit:
        await stream.aclose()
        raise
    except BaseException as error:
        collector.end(error, whole=False)
        raise
    collector.end(whole=True)
