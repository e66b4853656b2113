"""Steps: generator functions that record one call of an observed library, and the wrapper that runs them.

A step takes a `Call`, records the inputs, yields once, and records the result:

    def search(call: Call) -> Step:
        operation = call.open("search_memory", OpKind.RETRIEVE, ...)
        ...
        result = yield
        ...

A step that returns before its yield records nothing. No exception of a step reaches the program: the observed call
runs, returns its result or raises its own exception.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from contextvars import ContextVar, Token
from copy import copy, deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from pkgutil import resolve_name
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Generic, Protocol, SupportsIndex, TypeVar, cast

import wrapt
from opentelemetry.context import Context, get_current
from opentelemetry.trace import SpanKind, Tracer
from opentelemetry.util.types import AttributeValue

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, as_text, guard, variable_ref
from memtrace_otel.capture.tracing import SUPPRESSED, active_tracer
from memtrace_otel.model import split_ref
from memtrace_otel.semconv import Incomplete, RefKind

_MOST_FILTERS, _LONGEST_FILTER = 32, 200

T = TypeVar("T")
Step = Generator[None, Any, None]
StepFunction = Callable[[Any], Step]

RECORDED: ContextVar[bool] = ContextVar("memtrace_store_is_recorded", default=False)
"""Whether an instrumented memory system records the operations of its store: an instrumented store then records none.
The steps of the memory system set the variable."""


class Owner(Protocol):
    """The attributes of patches that a step reads."""

    tracer: Tracer
    system: str
    active: bool
    used: bool

    def note_suppressed(self, call: Call[Any]) -> None:
        """Count a call that is not recorded, because the program suppresses instrumentation."""


PatchesT = TypeVar("PatchesT", bound=Owner)

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

    @property
    def name(self) -> str:
        """Fully qualified name of the function, for `code.function.name`."""
        return f"{self.wrapped.__module__}.{self.wrapped.__qualname__}"

    def arguments(self) -> Mapping[str, Any]:
        """Arguments by parameter name, with defaults; only keyword arguments if they do not fit the signature."""
        function = getattr(self.wrapped, "__func__", None)
        bound_to = () if function is None else (getattr(self.wrapped, "__self__", None),)
        function = function or self.wrapped
        # A proxy of wrapt equals the function that the proxy wraps, but a partial one has another signature.
        signature = _signature if type(function) is FunctionType else inspect.signature
        try:
            bound = signature(function).bind(*bound_to, *self.args, **self.kwargs)
        except TypeError:
            return dict(self.kwargs)  # the call itself raises the same error
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
        """Start an operation that ends with this call; `on_error` records the inputs of a call that raised."""
        operation.start()
        self.operations.append(operation)
        self._on_error = on_error or self._on_error

    def detach(self, operation: Operation) -> None:
        """Let an operation outlive the call: the caller of `detach` ends the operation (a stream)."""
        operation.leave()
        self.operations.remove(operation)

    def hand_out(self, result: object) -> None:
        """Return `result`, a transparent proxy of the returned value, to the program."""
        self._handed = (result,)

    def result(self, returned: Any) -> Any:
        """The value for the program."""
        return self._handed[0] if self._handed else returned

    def carry(self, variable: ContextVar[T], value: T) -> None:
        """Set a context variable until the call ends."""
        self._carried.append((variable, variable.set(value)))

    def enter(self, group: str, of: object = None) -> bool:
        """Mark the object of this call, or `of`, as inside `group` until the call ends; False inside such a call.

        For methods that call each other (`add_documents` calls `add_texts`): the outermost call is recorded.
        """
        place, inside = (group, id(self.instance if of is None else of)), _inside.get()
        if place in inside:
            return False
        self.carry(_inside, inside | {place})
        return True

    def end(self, error: BaseException | None) -> None:
        """Reset the context variables and end the operations, newest first."""
        for variable, token in reversed(self._carried):
            with guard("step.context"), suppress(ValueError):  # another context has no value to reset
                variable.reset(token)
        if error is not None and self._on_error is not None:
            with guard("step.error"):
                self._on_error()
        for operation in reversed(self.operations):
            operation.end(error)

    def fail(self) -> None:
        """Mark the open operations: the step failed while recording them."""
        for operation in self.operations:
            operation.mark(Incomplete.GUARD)


def observed(step: StepFunction, owner: Owner) -> Callable[..., Any]:
    """Return the wrapt wrapper that runs `step` around each call."""
    name = getattr(step, "__name__", "step")
    shield = guard(f"{owner.system}.{name}")

    def wrapper(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not owner.active or active_tracer(owner.tracer) is None:
            if owner.active and get_current().get(SUPPRESSED):
                with shield:
                    owner.note_suppressed(Call(wrapped, instance, args, kwargs, owner))
            return wrapped(*args, **kwargs)
        owner.used = True
        call = Call(wrapped, instance, args, kwargs, owner)
        if _is_async(getattr(wrapped, "__func__", wrapped)):
            return _run_async(step, shield, call)
        return _run(step, shield, call)

    return wrapper


def _run(step: StepFunction, shield: guard, call: Call[Any]) -> Any:
    try:
        running = _begin(step, shield, call)
        result = call.wrapped(*call.args, **call.kwargs)
    except BaseException as error:
        call.end(error)
        raise
    _finish(running, shield, call, result)
    return call.result(result)


async def _run_async(step: StepFunction, shield: guard, call: Call[Any]) -> Any:
    try:
        running = _begin(step, shield, call)
        result = await call.wrapped(*call.args, **call.kwargs)
    except BaseException as error:
        call.end(error)
        raise
    _finish(running, shield, call, result)
    return call.result(result)


def _begin(step: StepFunction, shield: guard, call: Call[Any]) -> Step | None:
    """Run the step up to its yield; None if the step records nothing or fails."""
    running: Step | None = None
    with shield:
        try:
            running = step(call)
            next(running)
        except StopIteration:
            running = None
        except BaseException:
            running = None
            call.fail()
            raise
    return running


def _finish(running: Step | None, shield: guard, call: Call[Any], result: object) -> None:
    """Run the rest of the step and end the operations that it opened."""
    try:
        if running is not None:
            with shield:
                try:
                    running.send(result)
                except StopIteration:
                    pass
                except BaseException:
                    call.fail()
                    raise
    finally:
        call.end(None)


@lru_cache(maxsize=512)
def _is_async(function: Callable[..., Any]) -> bool:
    """Whether calls return coroutines, also through a plain function around a coroutine function."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(inspect.unwrap(function))


@lru_cache(maxsize=512)
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


_BoundFunction: Any = wrapt.BoundFunctionWrapper
_Function: Any = wrapt.FunctionWrapper


class _BoundWrapped(_BoundFunction):
    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return _reduced(self.__wrapped__, protocol)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if not isinstance(self.__wrapped__, MethodType):
            return self
        instance = deepcopy(self.__self__, memo)
        return self if instance is self.__self__ else self._self_parent.__get__(instance, type(instance))


class Wrapped(_Function):
    """`Wrapped(function, wrapper)`: a `wrapt.FunctionWrapper` that a program can pickle and copy like `function`.

    A pickle names the function, so a process without this package can read the pickle.
    """

    __bound_function_wrapper__ = _BoundWrapped

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return _reduced(self.__wrapped__, protocol)

    def __copy__(self) -> Any:
        return self._around(copy(self.__wrapped__))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._around(deepcopy(self.__wrapped__, memo))

    def _around(self, copied: Any) -> Any:
        return self if copied is self.__wrapped__ else type(self)(copied, self._self_wrapper)


def _reduced(original: Any, protocol: SupportsIndex) -> Any:
    if isinstance(original, FunctionType | BuiltinFunctionType):
        return resolve_name, (f"{original.__module__}:{original.__qualname__}",)
    return original.__reduce_ex__(protocol)


def record_filters(operation: Operation, filters: object) -> None:
    """Set `memtrace.retrieval.filters`: `field=value` for each condition.

    A value is a digest unless contents are captured. An owner id or a nested condition is always a digest.
    """
    given = cast("Mapping[str, object]", filters if isinstance(filters, Mapping) else {})
    shown: list[str] = []
    for name, value in list(given.items())[:_MOST_FILTERS]:
        text, is_nested = as_text(value)[0], isinstance(value, Mapping | list)
        if is_nested or name in semconv.OWNER_FIELDS or not operation.captures_content:
            text = split_ref(variable_ref(RefKind.QUERY, text))[1]
        shown.append(f"{name}={text}"[:_LONGEST_FILTER])
    if shown:
        operation.set(semconv.RETRIEVAL_FILTERS, shown)
