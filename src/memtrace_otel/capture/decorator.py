"""`operation(...)`: a context manager and a decorator that record an operation of the program itself."""

from __future__ import annotations

import inspect
import sys
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    ValuesView,
)
from dataclasses import dataclass
from functools import wraps
from types import FunctionType, TracebackType
from typing import Any, TypeVar, cast

from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, Tracer
from opentelemetry.util.types import AttributeValue

from memtrace_otel import semconv
from memtrace_otel.capture.content import variable_ref
from memtrace_otel.capture.guard import guard, guarded, note_drop, note_misuse
from memtrace_otel.capture.layout import number
from memtrace_otel.capture.operations import Operation, current_operation
from memtrace_otel.capture.tracing import active_tracer
from memtrace_otel.capture.values import field, record_id, text_in, words
from memtrace_otel.semconv import Action, Incomplete, OpKind, RefKind, Role

F = TypeVar("F", bound=Callable[..., Any])

_ROLES = frozenset(Role)
_READING = frozenset({OpKind.RETRIEVE, OpKind.RERANK})
_RECORDS = frozenset({RefKind.MEMORY, RefKind.STATE, RefKind.CHUNK, RefKind.DOCUMENT})
_TEXTS = frozenset({RefKind.ANSWER, RefKind.COMPLETION, RefKind.CONTEXT})  # a generator yields pieces of one
_UNORDERED = (set, frozenset)
_MANY = (list, tuple, *_UNORDERED, KeysView, ValuesView)
_MAX_YIELDED = 10_000  # outputs of one generator
_MAX_STREAMED = 1 << 22  # characters of one streamed text


@dataclass(frozen=True, slots=True)
class Recipe:
    """Which arguments and results of a call are recorded: see `operation`."""

    inputs: Mapping[str, str]
    output: str
    action: str
    each: str


class operation(Operation):  # used as a decorator and as a context manager
    """An operation for `with operation("search_memory", kind="retrieve", system="my_rag") as op: ...`, or a decorator.

    A decorated function, coroutine function, generator function or async generator function records every call as one
    operation. Without a `scope` the operation has the scope of the operation around it, if both have one system.

    `inputs` maps parameter names to ref kinds: each item of a list, tuple or set is one input, as it was before the
    call. `output` is the ref kind of the returned value: each item of a collection, or each item that a generator
    yields, is one output; a streamed answer, completion or context is one output with the whole text. An input that
    comes back with equal kind and text is no output. `each` names the parameter whose n-th item alone the n-th
    returned item was made of; by default every input fed every output.
    """

    __slots__ = ("_recipe",)

    def __init__(
        self,
        name: str | None = None,
        *,
        kind: str,
        system: str,
        scope: str = "",
        purpose: str = "",
        tracer: Tracer | None = None,
        span_kind: SpanKind = SpanKind.INTERNAL,
        attributes: Mapping[str, AttributeValue] | None = None,
        parent: Context | None = None,
        inputs: Mapping[str, str] | None = None,
        output: str = "",
        action: str = Action.DERIVE,
        each: str = "",
    ) -> None:
        super().__init__(
            name,
            kind=kind,
            system=system,
            scope=scope,
            purpose=purpose,
            tracer=tracer,
            span_kind=span_kind,
            attributes=attributes,
            parent=parent,
        )
        self._recipe = Recipe(inputs or {}, output, action, each) if inputs or output or each else None

    def __enter__(self) -> Operation:
        if self._recipe is not None:
            why = "`inputs` and `output` are for decorated functions; in a `with` use read and wrote"
            note_misuse("inputs", why)
        return super().__enter__()

    def __call__(self, function: F) -> F:
        """Wrap a function."""
        for wrapper in (classmethod, staticmethod):  # a decorator below this one
            if type(function) is wrapper:
                method: Any = getattr(function, "__func__", None)
                return cast(F, wrapper(self(method)))
        attributes = {semconv.CODE_FUNCTION_NAME: name_of(function), **(self._attributes or {})}
        recipe = self._recipe or Recipe({}, "", Action.DERIVE, "")

        def fresh() -> Operation:
            around = None if self.scope else current_operation()
            return _Decorated(
                self.name,
                kind=self.kind,
                system=self.system,
                scope=around.scope if around is not None and around.system == self.system else self.scope,
                purpose=self.purpose,
                tracer=self._tracer,
                span_kind=self._span_kind,
                attributes=attributes,
                parent=self._parent,
                has_output=bool(recipe.output),
            )

        return decorate(function, recipe, self._tracer, fresh)


class _Decorated(Operation):
    """One call of a decorated function: only their texts name its variables."""

    __slots__ = ("_has_output",)
    by_text = True

    def __init__(self, name: str | None, *, has_output: bool, **options: Any) -> None:
        super().__init__(name, **options)
        self._has_output = has_output
        self._is_own = True

    def _shows_found(self) -> bool:
        return self._has_output and super()._shows_found()


def decorate(function: F, recipe: Recipe, tracer: Tracer | None, fresh: Callable[[], Operation]) -> F:
    """Return `function` wrapped so that each call runs inside an operation made by `fresh`, started on `tracer`."""
    signature = _signature(function) if recipe.inputs else inspect.Signature()
    _check(recipe, signature, function)

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
        call = _Call(fresh(), recipe)
        call.operation.start()
        call.given(signature, args, kwargs)
        return call

    if inspect.isasyncgenfunction(function):
        streamed = cast(Callable[..., AsyncGenerator[Any, Any]], function)

        async def recorded(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            with begin(args, kwargs) as call:
                inner = streamed(*args, **kwargs)
                step = _first_step(inner)
                while True:
                    try:
                        item = await step
                    except StopAsyncIteration:
                        return
                    finally:
                        del step  # as below: what was thrown names this frame
                    call.yielded(item)
                    try:
                        sent = yield item
                    except GeneratorExit:
                        call.operation.resume()
                        await inner.aclose()
                        raise
                    except BaseException as thrown:
                        call.left_by(thrown)
                        step = inner.athrow(thrown)
                    else:
                        step = inner.asend(sent)
                    call.operation.resume()

        def run_async_generator(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            return (streamed if active_tracer(tracer) is None else recorded)(*args, **kwargs)

        return cast(F, wraps(function)(_as_async_generator_function(run_async_generator)))

    if inspect.isgeneratorfunction(function):
        yielding = cast(Callable[..., Generator[Any, Any, Any]], function)

        @wraps(function)
        def run_generator(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            if active_tracer(tracer) is None:
                return (yield from yielding(*args, **kwargs))
            sent: Any = None
            thrown: BaseException | None = None
            with begin(args, kwargs) as call:
                inner = yielding(*args, **kwargs)
                while True:
                    try:
                        item = inner.send(sent) if thrown is None else inner.throw(thrown)
                    except StopIteration as stop:
                        return stop.value
                    finally:
                        sent = thrown = None  # an error that names its own frame would keep the arguments alive
                    call.yielded(item)
                    try:
                        sent = yield item
                    except GeneratorExit:
                        call.operation.resume()
                        inner.close()
                        raise
                    except BaseException as error:
                        thrown = error
                    call.operation.resume()

        return cast(F, run_generator)

    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def run_coroutine(*args: Any, **kwargs: Any) -> Any:
            if active_tracer(tracer) is None:
                return await function(*args, **kwargs)
            with begin(args, kwargs) as call:
                result = await function(*args, **kwargs)
                call.returned(result)
                return result

        return cast(F, run_coroutine)

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if active_tracer(tracer) is None:
            return function(*args, **kwargs)
        with begin(args, kwargs) as call:
            result = function(*args, **kwargs)
            call.returned(result)
            return result

    return cast(F, run)


class _Call:
    """One recorded call. As a context manager it ends the operation with what left its body."""

    __slots__ = ("_each", "_given", "_left", "_recipe", "_streamed", "_streamed_size", "_yielded", "operation")

    def __init__(self, operation: Operation, recipe: Recipe) -> None:
        self.operation, self._recipe = operation, recipe
        self._given: set[tuple[str, str]] = set()  # refs of the inputs, and what they say
        self._each: list[int] = []  # the inputs that fed one output each
        self._streamed: list[str] | None = None  # the pieces of a text so far
        self._streamed_size = 0
        self._yielded = 0
        self._left = False

    def __enter__(self) -> _Call:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        left = isinstance(error, GeneratorExit) or (self._left and not isinstance(error, Exception))
        stopped = None if left else error  # whoever reads a stream may stop early
        if left and self._streamed is not None:
            self.operation.mark(Incomplete.TRUNCATED)
        if self._streamed is not None:
            self._wrote("".join(self._streamed))
        if self._finds and stopped is None:
            self.operation.context()
        self.operation.end(stopped)

    def left_by(self, error: BaseException) -> None:
        """Note what is thrown in between two items: an event loop that ends cancels who closes a stream for it."""
        self._left = not isinstance(error, Exception)

    @guarded("operation.arguments", None)
    def given(self, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record the arguments, before the body can change them."""
        if not self._recipe.inputs or not self.operation.origin:
            return
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        bound = given.arguments
        for parameter, kind in self._recipe.inputs.items():
            for value in _items(bound.get(parameter)):
                ref, said = named = self._variable(kind, value)
                index = self.operation.read(ref, role=_role_of(kind), content=said)
                self._given.add(named)
                if parameter == self._recipe.each and not isinstance(bound[parameter], _UNORDERED):
                    self._each.append(index)

    @guarded("operation.result", None)
    def returned(self, result: object) -> None:
        """Record what the function returned."""
        output = self._recipe.output
        if not output or not self.operation.origin:
            return
        if isinstance(result, Awaitable | Iterator | AsyncIterator):  # somebody else's to consume
            why = "a function that is no coroutine or generator function returned one: no output known"
            note_misuse("output", why)
            self.operation.mark(Incomplete.UNSERIALISABLE)
            return
        values = _items(result)
        if self._finds:
            values = [value for value in values if not _is_empty_dict(value)]
        paired = len(self._each) == len(values) and not isinstance(result, _UNORDERED)
        for index, value in enumerate(values):
            self._made(value, self._each[index : index + 1] if paired else None)

    @guarded("operation.yielded", None)
    def yielded(self, item: object) -> None:
        """Record what a generator yielded, and give the context back to whoever reads it."""
        self._left = False
        self.operation.leave()
        if not self._recipe.output or not self.operation.origin:
            return
        self._yielded += 1
        if self._recipe.output in _TEXTS:
            if self._streamed is None:
                self._streamed = []
            if self._streamed_size < _MAX_STREAMED:
                said = text_in(item)
                self._streamed.append(words(item)[0] if said is None else said)
                self._streamed_size += len(self._streamed[-1])
            else:
                self.operation.mark(Incomplete.TRUNCATED)
        elif self._yielded <= _MAX_YIELDED:
            self._made(item, self._each[self._yielded - 1 : self._yielded] or None)
        else:
            self.operation.mark(Incomplete.BUDGET)
            note_drop("variables")

    @property
    def _finds(self) -> bool:
        """Whether it is a search: stored records are its hits, and the context that they make is its output."""
        return self.operation.kind in _READING and self._recipe.output in _RECORDS

    def _made(self, value: object, sources: list[int] | None) -> None:
        if self._finds:
            record, score = _scored(value)
            ref, said = self._variable(self._recipe.output, record)
            self.operation.read(ref, role=Role.HIT, content=said, score=score)
        else:
            self._wrote(value, sources)

    @guarded("operation.result", None)
    def _wrote(self, value: object, sources: list[int] | None = None) -> None:
        """Record an output, unless an input came back as it was."""
        kind, action = self._recipe.output, self._recipe.action
        ref, said = named = self._variable(kind, value)
        if named not in self._given:
            self.operation.wrote(ref, action=action, role=_role_of(kind), content=said, sources=sources)

    def _variable(self, kind: str, value: object) -> tuple[str, str]:
        """The ref of a value, and what it says."""
        if type(value) is str:
            return variable_ref(kind, value), value
        said, faithful = words(value)
        if not faithful:
            self.operation.mark(Incomplete.UNSERIALISABLE)
            return variable_ref(kind, value), ""
        return variable_ref(kind, said, record_id(kind, value)), said


def _as_async_generator_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a plain function that returns an async generator as one of which `inspect` says that it is one: an async
    generator around another takes half a microsecond. (`types.coroutine` does the same for generators.)"""
    function = cast(FunctionType, function)
    code = function.__code__.replace(co_flags=function.__code__.co_flags | inspect.CO_ASYNC_GENERATOR)
    return FunctionType(code, function.__globals__, closure=function.__closure__)


def _first_step(stream: AsyncGenerator[Any, Any]) -> Awaitable[Any]:
    """Begin a stream. The event loop is to close the one around it, which closes this one, not both at once."""
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        return stream.__anext__()
    finally:
        sys.set_asyncgen_hooks(*hooks)


def name_of(function: object) -> str:
    """Qualified name of a function; of another callable that of its type, since its repr may hold its arguments."""
    with guard("operation.name"):
        named = function if hasattr(function, "__qualname__") else type(function)
        return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', '')}"
    return ""


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    with guard("operation.signature"):  # some built-in functions have none
        return inspect.signature(function)
    return inspect.Signature()


def _check(recipe: Recipe, signature: inspect.Signature, function: object) -> None:
    """Tell of parameters that the function does not have: they would be missing from every span."""
    named = {*recipe.inputs, *filter(None, [recipe.each])}
    if unknown := sorted(named - signature.parameters.keys()):
        known = ", ".join(signature.parameters) or "none"
        note_misuse(
            "inputs", f"{name_of(function)} has no parameter {', '.join(unknown)}: not recorded; it has {known}"
        )


def _items(value: object) -> list[object]:
    if value is None:
        return []
    if hasattr(type(value), "_fields") or not isinstance(value, _MANY):  # a named tuple is one record
        return [value]
    return list(cast(Iterable[object], value))


def _is_empty_dict(value: object) -> bool:
    return type(value) is dict and not len(cast("dict[object, object]", value))


def _scored(hit: object) -> tuple[object, float | None]:
    """A hit and its score: a field of it, or the number of a pair (record, number)."""
    kind = type(hit)
    pair = cast("tuple[object, ...]", hit) if kind is tuple else ()
    if len(pair) == 2 and (score := number(pair[1])) is not None:
        return pair[0], score
    return hit, None if kind is str else number(field(hit, "score"))


def _role_of(kind: str) -> str:
    """The role that a variable of this kind plays unless told otherwise."""
    if kind == RefKind.MEMORY:
        return Role.HIT
    return kind if kind in _ROLES else Role.OTHER
