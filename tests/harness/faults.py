"""Faults for instrumentors: steps and functions that raise, return garbage or never return."""

from __future__ import annotations

import inspect
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import wraps
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from opentelemetry.sdk.trace import Span, Tracer, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from memtrace_otel import semconv, settings
from memtrace_otel.capture import operations, use_config, use_redaction, writing
from memtrace_otel.capture.delivery import LosslessSpanProcessor
from memtrace_otel.capture.origins import OriginTable
from memtrace_otel.instrumentation import base
from memtrace_otel.instrumentation.steps import Call, Step, StepFunction

STEP_FAULTS = ("raise before", "raise after", "garbage before", "garbage after")
"""Faults of the steps, before or after the observed call."""
SEAM_FAULTS: Mapping[str, tuple[tuple[Any, str], ...]] = {
    "tracer raises": ((Tracer, "start_span"),),
    "span raises": tuple((Span, name) for name in ("set_attribute", "set_attributes", "add_link", "set_status", "end")),
    "contents raise": ((operations, "words"), (writing, "plain"), (writing, "describe")),
    "origins raise": ((OriginTable, "find"), (OriginTable, "newest"), (OriginTable, "publish")),
    "settings raise": ((operations, "config"),),
}
"""Functions that the steps call, which raise."""
ENDLESS_FAULTS = ("redaction hangs", "exporter hangs")
"""Callbacks that do not return before the end of the test."""
FAULTS = (*STEP_FAULTS, *SEAM_FAULTS, *ENDLESS_FAULTS)


Function = tuple[str, Any, str]
"""A function of an instrumentor: its full name, its owner (module or class) and its name there."""


class HookError(Exception):
    """The error of a broken function."""


class Hits:
    """The number of times that the fault happened, by function."""

    def __init__(self) -> None:
        self.met: Counter[str] = Counter()

    def wait(self, seconds: float = 3.0) -> None:
        """Wait for the first fault, which may happen in a thread. Raises AssertionError when no fault happened."""
        end = time.monotonic() + seconds
        while not self.met:
            if time.monotonic() > end:
                raise AssertionError("the fault did not happen")
            time.sleep(0.01)


def inject(fault: str, monkeypatch: pytest.MonkeyPatch, provider: TracerProvider, undo: ExitStack) -> Hits:
    """Inject a fault into the steps that are wrapped afterwards, or into the functions that steps call.

    The caller closes `undo` after the test.
    """
    hits = Hits()
    if fault in SEAM_FAULTS:
        for owner, name in SEAM_FAULTS[fault]:
            monkeypatch.setattr(owner, name, _raising(getattr(owner, name), name, hits.met))
        return hits
    if fault in ENDLESS_FAULTS:
        _hang_for_ever(fault, monkeypatch, provider, undo, hits.met)
        return hits
    make = base.observed

    def observed(step: StepFunction, owner: base.Patches) -> Callable[..., Any]:
        return make(_broken(step, fault, hits.met), owner)

    monkeypatch.setattr(base, "observed", observed)
    return hits


def _raising(original: Callable[..., Any], name: str, met: Counter[str]) -> Callable[..., Any]:
    """A function that raises, except for the spans and tracers of the observed program."""

    def broken(*args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], Span | Tracer) and not _is_ours(args[0]):
            return original(*args, **kwargs)
        met[name] += 1
        raise HookError(name)

    return broken


def _is_ours(telemetry: Span | Tracer) -> bool:
    scope = getattr(telemetry, "instrumentation_scope", None) or getattr(telemetry, "_instrumentation_scope", None)
    return getattr(scope, "schema_url", "") == semconv.SCHEMA_URL


def _hang_for_ever(
    fault: str, monkeypatch: pytest.MonkeyPatch, provider: TracerProvider, undo: ExitStack, met: Counter[str]
) -> None:
    over = threading.Event()

    def hang(*args: Any, **kwargs: Any) -> Any:
        met[fault] += 1
        over.wait()

    monkeypatch.setenv(settings.CAPTURE_CONTENT.env, "SPAN_ONLY")
    if fault == "redaction hangs":
        use_redaction(hang)
        undo.callback(use_redaction, None)
    else:
        spool = undo.enter_context(TemporaryDirectory(ignore_cleanup_errors=True))
        processor = LosslessSpanProcessor(_Silent(hang), queue_size=4, delay_seconds=0.01, spool_dir=spool)
        provider.add_span_processor(processor)
        undo.callback(processor.shutdown, 0.0)
    use_config(None)
    undo.callback(use_config, None)
    undo.callback(over.set)  # runs first: ends the waits


class _Silent(SpanExporter):
    """An exporter that does not return."""

    def __init__(self, hang: Callable[[], Any]) -> None:
        self._hang = hang

    def export(self, spans: Any) -> SpanExportResult:
        self._hang()
        return SpanExportResult.SUCCESS


def _broken(step: StepFunction, fault: str, met: Counter[str]) -> StepFunction:
    name = f"{step.__module__}.{getattr(step, '__name__', 'step')}"

    def broken(call: Call[Any]) -> Step:
        if fault != "garbage before":
            return misbehave(call)
        met[name] += 1
        next(step(call), None)  # its operation stays open
        return cast(Step, "no step at all")

    def misbehave(call: Call[Any]) -> Step:
        running = step(call)
        if fault.endswith("before"):
            met[name] += 1
            next(running, None)
            raise HookError(name)
        try:
            next(running)
        except StopIteration:
            return  # the step records nothing
        returned = yield
        if fault.endswith("after"):
            met[name] += 1
        if fault == "raise after":
            raise HookError(name)
        while fault == "garbage after":  # a step that never ends
            yield cast(None, object())
        with suppress(StopIteration):
            running.send(returned)

    broken.__name__, broken.__module__ = getattr(step, "__name__", "step"), step.__module__
    return broken


def functions_of(package: str) -> Iterator[Function]:
    """The plain functions and methods of the modules of a package.

    Generators, coroutines and dunder methods are left out: they pass on items of the observed program.
    """
    for name, module in list(sys.modules.items()):
        if name == package or name.startswith(f"{package}."):
            classes = [value for value in vars(module).values() if inspect.isclass(value) and value.__module__ == name]
            for owner in (module, *classes):
                for called, function in list(vars(owner).items()):
                    if _is_plain(function) and function.__module__ == name and not called.startswith("__"):
                        yield f"{name.removeprefix('memtrace_otel.')}:{function.__qualname__}", owner, called


def break_each_once(functions: list[Function], monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Let each function raise at its first call; returns the names of the functions that raised, as they raise."""
    raised: set[str] = set()

    def broken(place: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if place in raised:
                return function(*args, **kwargs)
            raised.add(place)
            raise HookError(place)

        return call

    for place, owner, name in functions:
        _replace(owner, name, broken(place, cast("Callable[..., Any]", vars(owner)[name])), monkeypatch)
    return raised


def _replace(owner: Any, name: str, new: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace a function in its owner and in every module of ours that imported the function by name."""
    old = cast(object, vars(owner)[name])
    monkeypatch.setattr(owner, name, new)
    if not inspect.ismodule(owner):
        return
    for module in [module for at, module in list(sys.modules.items()) if at.startswith("memtrace_otel.")]:
        for called, value in list(vars(module).items()):
            if value is old:
                monkeypatch.setattr(module, called, new)


def _is_plain(value: Any) -> bool:
    if not inspect.isfunction(value) or hasattr(value, "__wrapped__"):
        return False
    return not (
        inspect.isgeneratorfunction(value) or inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(value)
    )
