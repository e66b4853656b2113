"""Generators of the library, handed to the program unchanged while their items are observed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import AbstractContextManager
from types import AsyncGeneratorType, GeneratorType
from typing import Any, Protocol, cast

from memtrace_otel.capture import guard


class Observer(Protocol):
    """Sees the items of a generator. `system.name` names it in the drop counts."""

    where: str

    def start(self) -> None:
        """The program asks for the first item."""
        ...

    def waiting(self) -> AbstractContextManager[None]:
        """Around each wait for the next item."""
        ...

    def see(self, item: object) -> None:
        """The generator has made an item."""
        ...

    def end(self, *, whole: bool) -> None:
        """The generator has ended, or the program has left it half-way."""
        ...


def observed(items: object, observer: Observer) -> object | None:
    """A generator of the same items; None for what is no generator."""
    if isinstance(items, GeneratorType):
        return _observed(cast(Generator[Any, Any, Any], items), observer)
    if isinstance(items, AsyncGeneratorType):
        return _observed_async(cast(AsyncGenerator[Any, Any], items), observer)
    return None


def _observed(items: Generator[Any, Any, Any], observer: Observer) -> Generator[Any, Any, Any]:
    with guard(observer.where):
        observer.start()
    whole = False
    try:
        while True:
            with observer.waiting():
                try:
                    item = next(items)
                except StopIteration as end:
                    whole = True
                    return end.value
            with guard(observer.where):
                observer.see(item)
            yield item
    finally:
        with guard(observer.where):
            observer.end(whole=whole)
        items.close()


async def _observed_async(items: AsyncGenerator[Any, Any], observer: Observer) -> AsyncGenerator[Any, Any]:
    with guard(observer.where):
        observer.start()
    whole = False
    try:
        while True:
            with observer.waiting():
                try:
                    item = await anext(items)
                except StopAsyncIteration:
                    whole = True
                    return
            with guard(observer.where):
                observer.see(item)
            yield item
    finally:
        with guard(observer.where):
            observer.end(whole=whole)
        await items.aclose()
