"""`operation(...)`: an operation that is recorded, or one that costs next to nothing while nothing would record it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from memtrace_otel.capture import tracing
from memtrace_otel.capture.operations import Operation
from memtrace_otel.capture.tracing import active_tracer

F = TypeVar("F", bound=Callable[..., Any])


class _Unrecorded(Operation):
    """An operation that was begun while nothing would record it: it costs as little as can be and does nothing. All
    that are begun alike are one object, so nothing can be set on it."""

    __slots__ = ("_given",)
    _given: _Given
    _active = _recording = False
    _origin = ""

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

    def __setattr__(self, name: str, value: object) -> None:
        pass

    def _as_given(self) -> Operation:
        name, kind, system, scope = self._given
        return Operation(name, kind=kind, system=system, scope=scope)


_Given = tuple[str | None, str, str, str]
_known: dict[_Given, _Unrecorded] = {}
_MOST = 256  # scopes are many


def _unrecorded(given: _Given) -> _Unrecorded:
    """The operation of such a name, kind, system and scope that nothing records."""
    new = _Unrecorded.__new__(_Unrecorded)
    object.__setattr__(new, "_given", given)
    with suppress(TypeError):  # what the program gave cannot be hashed
        if len(_known) >= _MOST:
            _known.clear()
        _known[given] = new
    return new


if TYPE_CHECKING:
    operation = Operation
else:

    def operation(
        name: str | None = None, *, kind: str, system: str, scope: str = "", tracer: Any = None, **more: Any
    ) -> Operation:
        """An operation, for `with operation("search_memory", kind="retrieve", system="my_rag") as op: ...`, or as a
        decorator. Takes what `Operation` takes."""
        if tracer is None and not more and (perf_counter() < tracing.idle_until or active_tracer() is None):
            try:
                return _known[name, kind, system, scope]
            except (KeyError, TypeError):
                return _unrecorded((name, kind, system, scope))
        return Operation(name, kind=kind, system=system, scope=scope, tracer=tracer, **more)
