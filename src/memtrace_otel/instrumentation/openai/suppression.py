"""Model calls during which another instrumentation suppresses all others, as Logfire does around its own span.

Its span is enriched nevertheless: a suppression keeps out a second span, and there is none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from opentelemetry.context import attach, detach, get_current, set_value

from memtrace_otel.capture.adoption import model_call_of_another
from memtrace_otel.capture.tracing import SUPPRESSED
from memtrace_otel.instrumentation.steps import Wrapped

Wrapper = Callable[[Any, Any, Any, Any], Any]
"""A wrapper of `wrapt`: takes the function, its object, the arguments and the keyword arguments."""


def lifting(record: Wrapper) -> Wrapper:
    """Return `record`, run without the suppression around it; the function that `record` calls runs suppressed."""

    def wrapper(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        keys = [key for key, value in get_current().items() if value and key.startswith(SUPPRESSED)]
        if not keys or model_call_of_another() is None:
            return record(wrapped, instance, args, kwargs)
        if inspect.iscoroutinefunction(inspect.unwrap(wrapped)):
            return lifted_async(keys, wrapped, instance, args, kwargs)
        with _suppressed(keys, False):
            return record(Wrapped(wrapped, suppressed(keys)), instance, args, kwargs)

    async def lifted_async(keys: list[str], wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        with _suppressed(keys, False):
            return await record(Wrapped(wrapped, suppressed_async(keys)), instance, args, kwargs)

    def suppressed(keys: list[str]) -> Wrapper:
        def call(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
            with _suppressed(keys, True):
                return wrapped(*args, **kwargs)

        return call

    def suppressed_async(keys: list[str]) -> Wrapper:
        async def call(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
            with _suppressed(keys, True):
                return await wrapped(*args, **kwargs)

        return call

    return wrapper


@contextmanager
def _suppressed(keys: list[str], value: bool) -> Generator[None]:
    context = get_current()
    for key in keys:
        context = set_value(key, value, context)
    token = attach(context)
    try:
        yield
    finally:
        detach(token)
