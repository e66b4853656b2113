"""`operation(...)`: an operation that is recorded, or one that costs next to nothing while nothing would record it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from opentelemetry.context import Context, get_current
from opentelemetry.trace import INVALID_SPAN, SpanKind, Tracer
from opentelemetry.util.types import AttributeValue

from memtrace_otel.capture import tracing
from memtrace_otel.capture.operations import Operation
from memtrace_otel.capture.tracing import SUPPRESSED, active_tracer
from memtrace_otel.semconv import Action

F = TypeVar("F", bound=Callable[..., Any])


class _Unrecorded(Operation):
    """An operation that was begun while nothing would record it: it keeps what it was given, and does nothing."""

    __slots__ = ("given",)
    given: tuple[object, ...]
    """The arguments of `operation`, in its order."""
    _active = _recording = False
    _origin = ""
    span = INVALID_SPAN

    def __enter__(self) -> Operation:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        pass

    def start(self) -> None:
        """Nothing to do."""

    def __call__(self, function: F) -> F:
        return self._as_given()(function)  # its calls may be recorded

    def __getattr__(self, name: str) -> Any:
        return getattr(self._as_given(), name)  # what `Operation.__init__` sets

    def _as_given(self) -> Operation:
        words: dict[str, Any] = dict(zip(_WORDS, self.given, strict=True))
        return Operation(**words)


_new = object.__new__


def _operation(
    name: str | None = None,
    kind: str | None = None,
    system: str | None = None,
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
) -> Operation:
    """An operation, for `with operation("search_memory", kind="retrieve", system="my_rag") as op: ...`, or as a
    decorator. Takes what `Operation` takes."""
    # Keywords only, as type checkers see it, would cost a tenth of what "off" may: half a microsecond.
    if kind is None or system is None:
        raise TypeError("operation() needs a kind and a system")
    # What `active_tracer` says, without the call where that is known sooner.
    if tracer is None:
        unrecorded = (until := tracing.idle_until) and perf_counter() < until
    else:
        unrecorded = get_current().get(SUPPRESSED)
    if unrecorded or active_tracer(tracer) is None:
        off = _new(_Unrecorded)
        # fmt: off
        off.given = (name, kind, system, scope, purpose, tracer, span_kind, attributes, parent, inputs, output, action,
                      each)
        # fmt: on
        return off
    return Operation(
        name,
        kind=kind,
        system=system,
        scope=scope,
        purpose=purpose,
        tracer=tracer,
        span_kind=span_kind,
        attributes=attributes,
        parent=parent,
        inputs=inputs,
        output=output,
        action=action,
        each=each,
    )


_operation.__qualname__ = _operation.__name__ = "operation"
_WORDS = tuple(signature(_operation).parameters)

if TYPE_CHECKING:
    operation = Operation
else:
    operation = _operation
