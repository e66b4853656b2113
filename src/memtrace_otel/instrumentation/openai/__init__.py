"""OpenAI instrumentor: model calls that answer become `respond` spans, calls that judge an answer `judge` spans.

A call made inside another memtrace operation (Mem0's own extraction, for example) is a step of that operation and gets
no span here.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Collection
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

import wrapt
from opentelemetry import trace
from opentelemetry.instrumentation.instrumentor import (
    BaseInstrumentor,  # pyright: ignore[reportMissingTypeStubs]
)
from opentelemetry.instrumentation.utils import is_instrumentation_enabled, unwrap
from packaging.specifiers import SpecifierSet

from memtrace_otel.capture import current_operation, get_tracer, guard
from memtrace_otel.instrumentation.openai.recording import ModelCall
from memtrace_otel.instrumentation.openai.streams import ObservedStream, settle_abandoned
from memtrace_otel.semconv import Incomplete, OpKind

_SUPPORTED = ">=1.26,<4"
_TARGETS = (
    ("openai.resources.chat.completions.completions", "Completions", ("create", "parse"), False),
    ("openai.resources.chat.completions.completions", "AsyncCompletions", ("create", "parse"), True),
    ("openai.resources.chat.completions", "Completions", ("create", "parse"), False),
    ("openai.resources.chat.completions", "AsyncCompletions", ("create", "parse"), True),
    ("openai.resources.responses", "Responses", ("create", "parse"), False),
    ("openai.resources.responses", "AsyncResponses", ("create", "parse"), True),
)
_NOT_OURS = frozenset({OpKind.OTHER, OpKind.ASSEMBLE})
"""Operations around a model call that leave it an answer; in every other one it is a step of theirs."""

_logger = logging.getLogger(__name__)


class OpenAIInstrumentor(BaseInstrumentor):
    """Instruments chat completions and responses of the `openai` package, sync and async, streamed or not."""

    _wrapped: list[tuple[type, str]]
    _active: bool

    def instrumentation_dependencies(self) -> Collection[str]:
        """The supported versions."""
        return (f"openai {_SUPPORTED}",)

    def _instrument(self, **kwargs: Any) -> None:
        self._wrapped, self._active = [], True
        try:
            found = version("openai")
        except PackageNotFoundError:
            raise ModuleNotFoundError("openai is not installed") from None
        if not SpecifierSet(_SUPPORTED).contains(found, prereleases=True):
            _logger.warning("openai %s is outside the supported range %s; not instrumented", found, _SUPPORTED)
            return
        provider = cast("trace.TracerProvider | None", kwargs.get("tracer_provider"))
        tracer = get_tracer(__name__, provider)
        # Not imported here: a program that never calls a model must not pay for the package.
        wrapt.register_post_import_hook(lambda _: self._wrap_all(tracer), "openai.resources")

    def _uninstrument(self, **kwargs: Any) -> None:
        self._active = False
        settle_abandoned()
        for owner, method in self._wrapped:
            unwrap(owner, method)
        self._wrapped = []

    def _wrap_all(self, tracer: trace.Tracer) -> None:
        if not self._active:
            return
        for module_name, class_name, methods, is_async in _TARGETS:
            for method in methods:
                with guard("openai.instrument"):  # runs inside the program's own import
                    self._wrap(
                        module_name, class_name, method, _async_wrapper(tracer) if is_async else _wrapper(tracer)
                    )

    def _wrap(self, module_name: str, class_name: str, method: str, wrapper: Callable[..., Any]) -> None:
        try:
            owner = getattr(importlib.import_module(module_name), class_name, None)
        except ImportError:
            return  # this release lays its modules out otherwise; another row finds the class
        if owner is None or method not in vars(owner) or (owner, method) in self._wrapped:
            return
        wrapt.wrap_function_wrapper(owner, method, wrapper)
        self._wrapped.append((owner, method))


def _observed() -> bool:
    around = current_operation()
    return is_instrumentation_enabled() and (around is None or around.kind in _NOT_OURS)


def _begin(kwargs: dict[str, Any], tracer: trace.Tracer) -> ModelCall | None:
    settle_abandoned()
    with guard("openai.begin"):
        call = ModelCall(kwargs, tracer)
        call.operation.start()
        return call
    return None


def _end(call: ModelCall | None, error: BaseException | None, record: Callable[[ModelCall], None]) -> None:
    """Record what came out and end the span; when recording fails, the span says so."""
    if call is None:
        return
    call.operation.mark(Incomplete.GUARD)
    with guard("openai.end"):
        record(call)
        call.operation.unmark(Incomplete.GUARD)
    call.operation.end(error)


def _returned(call: ModelCall | None, result: Any, kwargs: dict[str, Any]) -> Any:
    """What the program gets: the result itself, or its stream, observed."""
    if call is None:
        return result
    if kwargs.get("stream") is True and hasattr(result, "__next__" if hasattr(result, "__iter__") else "__anext__"):
        call.operation.leave()  # the call has returned, its text comes later

        def done(last: object, text: str, whole: bool, error: BaseException | None) -> None:
            _end(call, error, lambda ended: ended.finish_stream(text, last, whole))

        return ObservedStream(result, done)
    _end(call, None, lambda ended: ended.finish(result))
    return result


def _wrapper(tracer: trace.Tracer) -> Callable[..., Any]:
    def create(wrapped: Callable[..., Any], instance: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = _begin(kwargs, tracer) if _observed() else None
        try:
            result = wrapped(*args, **kwargs)
        except BaseException as error:
            _end(call, error, ModelCall.fail)
            raise
        return _returned(call, result, kwargs)

    return create


def _async_wrapper(tracer: trace.Tracer) -> Callable[..., Any]:
    async def create(
        wrapped: Callable[..., Any], instance: object, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        call = _begin(kwargs, tracer) if _observed() else None
        try:
            result = await wrapped(*args, **kwargs)
        except BaseException as error:
            _end(call, error, ModelCall.fail)
            raise
        return _returned(call, result, kwargs)

    return create
