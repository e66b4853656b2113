"""Generators of LangChain, handed to the program unchanged while an observer sees their items."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import AbstractContextManager, aclosing, closing, nullcontext
from types import AsyncGeneratorType, GeneratorType
from typing import Any, cast

from memtrace_otel.capture import guard

_END = object()


class Observer:
    """Sees the items of one generator. `where` names the observer in the drop counts, as `system.name`."""

    where: str
    whole = False
    """Whether the generator has ended by itself."""

    def start(self) -> None:
        """The program asks for the first item."""

    def waiting(self) -> AbstractContextManager[None]:
        """The context of each wait for the next item."""
        return nullcontext()

    def see(self, item: object) -> None:
        """The generator has made an item."""

    def end(self) -> None:
        """The generator has ended, or the program has left the generator."""

    def __enter__(self) -> None:
        with guard(self.where):
            self.start()

    def __exit__(self, *exc: object) -> None:
        with guard(self.where):
            self.end()


def observed(items: object, observer: Observer) -> object | None:
    """A generator of the same items; None for what is no generator."""
    if isinstance(items, GeneratorType):
        return _observed(cast(Generator[Any, Any, Any], items), observer)
    if isinstance(items, AsyncGeneratorType):
        return _observed_async(cast(AsyncGenerator[Any, Any], items), observer)
    return None


def _observed(items: Generator[Any, Any, Any], observer: Observer) -> Generator[Any, Any, Any]:
    with closing(items), observer:
        while True:
            with observer.waiting():
                try:
                    item = next(items)
                except StopIteration as end:
                    observer.whole = True
                    return end.value
            with guard(observer.where):
                observer.see(item)
            yield item


async def _observed_async(items: AsyncGenerator[Any, Any], observer: Observer) -> AsyncGenerator[Any, Any]:
    async with aclosing(items):
        with observer:
            while True:
                with observer.waiting():
                    item = await anext(items, _END)
                observer.whole = item is _END
                if observer.whole:
                    return
                with guard(observer.where):
                    observer.see(item)
                yield item
