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
from memtrace_otel.instrumentation.openai.streams import ObservedStream

_SUPPORTED = ">=1.26,<4"
_TARGETS = (
    ("openai.resources.chat.completions.completions", "Completions", ("create", "parse"), False),
    ("openai.resources.chat.completions.completions", "AsyncCompletions", ("create", "parse"), True),
    ("openai.resources.chat.completions", "Completions", ("create", "parse"), False),
    ("openai.resources.chat.completions", "AsyncCompletions", ("create", "parse"), True),
    ("openai.resources.responses", "Responses", ("create", "parse"), False),
    ("openai.resources.responses", "AsyncResponses", ("create", "parse"), True),
)
_logger = logging.getLogger(__name__)


class OpenAIInstrumentor(BaseInstrumentor):
    """Instruments chat completions and responses of the `openai` package, sync and async, streamed or not."""

    _wrapped: list[tuple[type, str]]

    def instrumentation_dependencies(self) -> Collection[str]:
        """The supported versions."""
        return (f"openai {_SUPPORTED}",)

    def _instrument(self, **kwargs: Any) -> None:
        try:
            found = version("openai")
        except PackageNotFoundError:
            raise ModuleNotFoundError("openai is not installed") from None
        if not SpecifierSet(_SUPPORTED).contains(found, prereleases=True):
            _logger.warning("openai %s is outside the supported range %s; not instrumented", found, _SUPPORTED)
            return
        provider = cast("trace.TracerProvider | None", kwargs.get("tracer_provider"))
        tracer = get_tracer(__name__, provider)
        self._wrapped = []
        for module_name, class_name, methods, is_async in _TARGETS:
            for method in methods:
                self._wrap(module_name, class_name, method, _async_wrapper(tracer) if is_async else _wrapper(tracer))

    def _uninstrument(self, **kwargs: Any) -> None:
        for owner, method in self._wrapped:
            unwrap(owner, method)
        self._wrapped = []

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
    return is_instrumentation_enabled() and current_operation() is None


def _begin(kwargs: dict[str, Any], tracer: trace.Tracer) -> ModelCall | None:
    with guard("openai.begin"):
        call = ModelCall(kwargs, tracer)
        call.operation.start()
        return call
    return None


def _end(call: ModelCall | None, result: object, error: BaseException | None, streamed: str = "") -> None:
    if call is None:
        return
    with guard("openai.end"):
        if error is None:
            call.finish(result, streamed)
        else:
            call.fail()
    call.operation.end(error)


def _streaming(call: ModelCall, stream: Any) -> Any:
    """The call returned, its text comes later: give the context back now, end the span with the stream."""
    call.operation.leave()
    return ObservedStream(stream, lambda last, text, error: _end(call, last, error, text))


def _wrapper(tracer: trace.Tracer) -> Callable[..., Any]:
    def create(wrapped: Callable[..., Any], instance: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = _begin(kwargs, tracer) if _observed() else None
        try:
            result = wrapped(*args, **kwargs)
        except BaseException as error:
            _end(call, None, error)
            raise
        if call is not None and kwargs.get("stream") is True:
            return _streaming(call, result)
        _end(call, result, None)
        return result

    return create


def _async_wrapper(tracer: trace.Tracer) -> Callable[..., Any]:
    async def create(
        wrapped: Callable[..., Any], instance: object, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        call = _begin(kwargs, tracer) if _observed() else None
        try:
            result = await wrapped(*args, **kwargs)
        except BaseException as error:
            _end(call, None, error)
            raise
        if call is not None and kwargs.get("stream") is True:
            return _streaming(call, result)
        _end(call, result, None)
        return result

    return create
