"""Threads that keep the context, for libraries that start their own and lose it."""

from __future__ import annotations

import concurrent.futures
import contextvars
import threading
from collections.abc import Callable
from typing import Any


class ContextThreads(concurrent.futures.ThreadPoolExecutor):
    """A thread pool whose jobs run in the context of their submitter."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        """Schedule `fn` in a copy of the current context."""
        return super().submit(contextvars.copy_context().run, fn, *args, **kwargs)


class ContextThread(threading.Thread):
    """A thread that runs in a copy of the context it was made in."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._made_in = contextvars.copy_context()

    def run(self) -> None:
        """Run the target."""
        self._made_in.run(super().run)


class Namespace:
    """A module with some of its names replaced, for one importer only: nobody else's thread pools change."""

    def __init__(self, module: Any, **replaced: Any) -> None:
        self._module = module
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def with_context_threads(futures: Any) -> Namespace:
    """The module `concurrent` as a library may use it, with pools that keep the context."""
    return Namespace(futures, futures=Namespace(futures.futures, ThreadPoolExecutor=ContextThreads))


def with_context_executor(asyncio: Any) -> Namespace:
    """The module `asyncio` as a library may use it: what a running loop has run in a thread keeps the context."""

    def get_running_loop() -> Namespace:
        loop = asyncio.get_running_loop()

        def run_in_executor(executor: Any, function: Callable[..., Any], *args: Any) -> Any:
            return loop.run_in_executor(executor, contextvars.copy_context().run, function, *args)

        return Namespace(loop, run_in_executor=run_in_executor)

    return Namespace(asyncio, get_running_loop=get_running_loop)
