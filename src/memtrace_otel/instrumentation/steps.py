"""Runs a step around a call of an observed library: one generator serves plain and coroutine functions.

A step is a generator function that takes a `Call`, records what goes in, yields once, and records what came out:

    def search(call: Call) -> Step:
        operation = call.open("search_memory", OpKind.RETRIEVE, ...)
        ...
        result = yield
        ...

A step that returns before its yield records nothing. Whatever a step raises is ours and stays ours: the observed call
goes on, returns what it returns and raises what it raises.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from opentelemetry.context import Context
from opentelemetry.trace import SpanKind
from opentelemetry.util.types import AttributeValue

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, guard
from memtrace_otel.capture.guard import note_drop
from memtrace_otel.capture.tracing import active_tracer
from memtrace_otel.instrumentation import slowness
from memtrace_otel.instrumentation.slowness import Slowness
from memtrace_otel.semconv import Incomplete

if TYPE_CHECKING:
    from memtrace_otel.instrumentation.patches import Patches

T = TypeVar("T")
PatchesT = TypeVar("PatchesT", bound="Patches")
Step = Generator[None, Any, None]
StepFunction = Callable[[Any], Step]

_inside: ContextVar[frozenset[tuple[str, int]]] = ContextVar("memtrace_inside", default=frozenset())


@dataclass(slots=True)
class Call(Generic[PatchesT]):
    """One call of a wrapped function, with the operations and context values opened for it."""

    wrapped: Callable[..., Any]
    instance: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    patches: PatchesT
    operations: list[Operation] = field(default_factory=list[Operation])
    _carried: list[tuple[ContextVar[Any], Token[Any]]] = field(default_factory=list[tuple[ContextVar[Any], Token[Any]]])
    _handed: tuple[object, ...] = ()
    _on_error: Callable[[], None] | None = None
    began: float = 0.0
    """When the observed function was called."""
    spent_before: float = 0.0
    """Seconds that all steps had taken of the thread until then."""

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
        purpose: str = "",
        attributes: Mapping[str, AttributeValue] | None = None,
        current: bool = True,
        span_kind: SpanKind = SpanKind.INTERNAL,
        parent: Context | None = None,
        on_error: Callable[[], None] | None = None,
    ) -> Operation:
        """Start an operation that ends with this call; `current` False leaves the context to its siblings."""
        made = Operation(
            name,
            kind=kind,
            system=self.patches.system,
            scope=scope,
            purpose=purpose,
            tracer=self.patches.tracer,
            span_kind=span_kind,
            attributes={semconv.CODE_FUNCTION_NAME: self.name, **(attributes or {})},
            parent=parent,
        )
        self.begin(made, on_error)
        if not current:
            made.leave()
        return made

    def begin(self, operation: Operation, on_error: Callable[[], None] | None = None) -> None:
        """Start an operation that ends with this call; `on_error` records what can be told of a call that raised."""
        operation.start()
        self.operations.append(operation)
        self._on_error = on_error or self._on_error

    def detach(self, operation: Operation) -> None:
        """Let an operation outlive the call: its owner ends it (a stream whose text comes later)."""
        operation.leave()
        self.operations.remove(operation)

    def hand_out(self, result: object) -> None:
        """Give the program `result`, a transparent proxy of what the call returned."""
        self._handed = (result,)

    def result(self, returned: Any) -> Any:
        """What the program gets."""
        return self._handed[0] if self._handed else returned

    def carry(self, variable: ContextVar[T], value: T) -> None:
        """Set a context variable until the call ends."""
        self._carried.append((variable, variable.set(value)))

    def enter(self, group: str, of: object = None) -> bool:
        """Mark this call's object, or the one that it works `of`, as inside `group` until the call ends; False when an
        outer call has done so.

        For methods that call one another (an `add_documents` that calls `add_texts`): the outermost one is recorded.
        """
        place, inside = (group, id(self.instance if of is None else of)), _inside.get()
        if place in inside:
            return False
        self.carry(_inside, inside | {place})
        return True

    def end(self, error: BaseException | None) -> None:
        """Give the context back and end what was opened, newest first."""
        for variable, token in reversed(self._carried):
            with guard("step.context"), suppress(ValueError):  # in another context there is nothing to give
                variable.reset(token)
        if error is not None and self._on_error is not None:
            with guard("step.error"):
                self._on_error()
        for operation in reversed(self.operations):
            operation.end(error)

    def fail(self) -> None:
        """Say on the open operations that our own code failed while recording them."""
        for operation in self.operations:
            operation.mark(Incomplete.GUARD)


def observed(step: StepFunction, patches: Patches) -> Callable[..., Any]:
    """Return the wrapt wrapper that runs `step` around each call."""
    hook = _Hook(step, patches.system, patches.slowness)

    def wrapper(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not patches.active or active_tracer(patches.tracer) is None or hook.rests():
            return wrapped(*args, **kwargs)
        call = Call(wrapped, instance, args, kwargs, patches)
        if _is_async(getattr(wrapped, "__func__", wrapped)):
            return _run_async(hook, call)
        return _run(hook, call)

    return wrapper


def _run(hook: _Hook, call: Call[Any]) -> Any:
    try:
        running = hook.begin(call)
        result = call.wrapped(*call.args, **call.kwargs)
    except BaseException as error:
        hook.end(call, error)
        raise
    hook.finish(running, result, call)
    return call.result(result)


async def _run_async(hook: _Hook, call: Call[Any]) -> Any:
    try:
        running = hook.begin(call)
        result = await call.wrapped(*call.args, **call.kwargs)
    except BaseException as error:
        hook.end(call, error)
        raise
    hook.finish(running, result, call)
    return call.result(result)


class _Hook:
    """A step with its name in the drop counts, and its account, wherever it is wrapped."""

    __slots__ = ("_guard", "_slowness", "_step")

    def __init__(self, step: StepFunction, system: str, accounts: dict[tuple[str, str], Slowness]) -> None:
        self._step, self._guard = step, guard(f"{system}.{getattr(step, '__name__', 'step')}", system)
        self._slowness = accounts.setdefault((getattr(step, "__module__", ""), self._guard.where), Slowness())

    def rests(self) -> bool:
        """Whether the step has cost too much lately; every call left out is counted."""
        if not self._slowness.rests():
            return False
        self._slowness.left_out += 1
        note_drop(f"slow:{self._guard.where}", system=self._guard.system)
        return True

    def begin(self, call: Call[Any]) -> Step | None:
        """Run the step up to its yield; None when it records nothing."""
        running: Step | None = None
        call.began = started = slowness.starts()
        with self._guard:
            try:
                running = self._step(call)
                next(running)
            except StopIteration:
                running = None
            except BaseException:
                running = None
                call.fail()
                raise
        call.began = self._slowness.spend(started)  # calls below may be of the same step: they are to know
        call.spent_before = slowness.spent_here()
        return running

    def finish(self, running: Step | None, result: Any, call: Call[Any]) -> None:
        """Run the rest of the step and end what it opened."""
        started = slowness.starts()
        try:
            if running is not None:
                with self._guard:
                    try:
                        running.send(result)
                    except StopIteration:
                        pass
                    except BaseException:
                        call.fail()
                        raise
        finally:
            self.end(call, None, started)

    def end(self, call: Call[Any], error: BaseException | None, started: float | None = None) -> None:
        """End what the step opened, and settle what it has cost since `started`."""
        started = started or slowness.starts()
        own = started - call.began - (slowness.spent_here() - call.spent_before)
        if self._slowness.left_out and call.operations:
            call.operations[0].set(semconv.LOST, self._slowness.left_out)
            self._slowness.left_out = 0
        call.end(error)
        self._slowness.spend(started, max(0.0, own) * slowness.SHARE_OF_CALL)


@lru_cache(maxsize=512)
def _is_async(function: Callable[..., Any]) -> bool:
    """Whether calls give coroutines, if need be through a plain function around the coroutine function."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(inspect.unwrap(function))


@lru_cache(maxsize=512)
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)
