"""Runs a step around a call of Mem0: the same generator serves plain and coroutine functions.

A step is a generator function that takes a `Call`, records what goes in, yields once, and records what came out:

    def search(call: Call) -> Step:
        operation = call.open("search_memory", OpKind.RETRIEVE, ...)
        ...
        result = yield
        ...

A step that returns before its yield records nothing. Whatever a step raises is ours and stays ours: the call of Mem0
goes on, returns what it returns and raises what it raises.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from opentelemetry.instrumentation.utils import is_instrumentation_enabled
from opentelemetry.util.types import AttributeValue

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, guard
from memtrace_otel.semconv import Incomplete

if TYPE_CHECKING:
    from memtrace_otel.instrumentation.mem0.patches import Patches

T = TypeVar("T")
Step = Generator[None, Any, None]
StepFunction = Callable[["Call"], Step]

SYSTEM = "mem0"


@dataclass(slots=True)
class Call:
    """One call of a wrapped function, with the operations and context values opened for it."""

    wrapped: Callable[..., Any]
    instance: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    patches: Patches
    operations: list[Operation] = field(default_factory=list[Operation])
    _carried: list[tuple[ContextVar[Any], Token[Any]]] = field(default_factory=list[tuple[ContextVar[Any], Token[Any]]])

    @property
    def name(self) -> str:
        """Fully qualified name of the function, for `code.function.name`."""
        return f"{self.wrapped.__module__}.{self.wrapped.__qualname__}"

    def arguments(self) -> Mapping[str, Any]:
        """Arguments by parameter name, defaults included; only the keyword ones when they do not fit the signature."""
        function = getattr(self.wrapped, "__func__", None)
        bound_to = () if function is None else (getattr(self.wrapped, "__self__", None),)
        try:
            bound = _signature(function or self.wrapped).bind(*bound_to, *self.args, **self.kwargs)
        except TypeError:
            return dict(self.kwargs)  # the call itself will raise the same, better
        bound.apply_defaults()
        return {**bound.arguments, **bound.arguments.get("kwargs", {})}

    def open(
        self,
        name: str | None,
        kind: str,
        *,
        scope: str,
        attributes: Mapping[str, AttributeValue] | None = None,
        current: bool = True,
    ) -> Operation:
        """Start an operation that ends with this call; `current` False leaves the context to its siblings."""
        made = Operation(
            name,
            kind=kind,
            system=SYSTEM,
            scope=scope,
            tracer=self.patches.tracer,
            attributes={semconv.CODE_FUNCTION_NAME: self.name, **(attributes or {})},
        )
        made.start()
        if not current:
            made.leave()
        self.operations.append(made)
        return made

    def carry(self, variable: ContextVar[T], value: T) -> None:
        """Set a context variable until the call ends."""
        self._carried.append((variable, variable.set(value)))

    def end(self, error: BaseException | None) -> None:
        """Give the context back and end what was opened, newest first."""
        for variable, token in reversed(self._carried):
            with guard("mem0.context"):
                variable.reset(token)
        for operation in reversed(self.operations):
            operation.end(error)

    def fail(self) -> None:
        """Say on the open operations that our own code failed while recording them."""
        for operation in self.operations:
            operation.mark(Incomplete.GUARD)


def observed(step: StepFunction, patches: Patches) -> Callable[..., Any]:
    """Return the wrapt wrapper that runs `step` around each call."""
    where = f"mem0.{step.__name__}"

    def wrapper(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not patches.active or not is_instrumentation_enabled():
            return wrapped(*args, **kwargs)
        call = Call(wrapped, instance, args, kwargs, patches)
        if inspect.iscoroutinefunction(wrapped):
            return _run_async(step, call, where)
        return _run(step, call, where)

    return wrapper


def _run(step: StepFunction, call: Call, where: str) -> Any:
    running = _begin(step, call, where)
    try:
        result = call.wrapped(*call.args, **call.kwargs)
    except BaseException as error:
        call.end(error)
        raise
    _finish(running, result, call, where)
    return result


async def _run_async(step: StepFunction, call: Call, where: str) -> Any:
    running = _begin(step, call, where)
    try:
        result = await call.wrapped(*call.args, **call.kwargs)
    except BaseException as error:
        call.end(error)
        raise
    _finish(running, result, call, where)
    return result


def _begin(step: StepFunction, call: Call, where: str) -> Step | None:
    with guard(where):
        running = step(call)
        try:
            next(running)
        except StopIteration:
            return None
        except BaseException:
            call.fail()
            raise
        return running
    return None


def _finish(running: Step | None, result: Any, call: Call, where: str) -> None:
    if running is not None:
        with guard(where):
            try:
                running.send(result)
            except StopIteration:
                pass
            except BaseException:
                call.fail()
                raise
    call.end(None)


@lru_cache(maxsize=512)
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)
