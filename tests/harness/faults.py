"""Makes every hook of an instrumentor misbehave: proof that observing never harms.

A redaction callback or an exporter may wait for ever: the faults of `ENDLESS_FAULTS` do so, and hold nothing up.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
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
"""What is done to the steps."""
SEAM_FAULTS: Mapping[str, tuple[tuple[Any, str], ...]] = {
    "tracer raises": ((Tracer, "start_span"),),
    "span raises": tuple((Span, name) for name in ("set_attribute", "set_attributes", "add_link", "set_status", "end")),
    "contents raise": ((operations, "words"), (writing, "plain"), (writing, "describe")),
    "origins raise": ((OriginTable, "find"), (OriginTable, "newest"), (OriginTable, "publish")),
    "settings raise": ((operations, "config"),),
}
"""What the steps stand on, by the names that raise."""
ENDLESS_FAULTS = ("redaction hangs", "exporter hangs")
"""What never answers until the test is over."""
FAULTS = (*STEP_FAULTS, *SEAM_FAULTS, *ENDLESS_FAULTS)


class HookError(Exception):
    """What a broken hook raises."""


class Hits:
    """How often each hook met the fault, and the steps that stand ready to be met."""

    def __init__(self) -> None:
        self.met: Counter[str] = Counter()
        self.placed: set[str] = set()

    def wait(self, seconds: float = 3.0) -> None:
        """Until the fault was met: some hooks do their work in a thread. AssertionError when it never is."""
        end = time.monotonic() + seconds
        while not self.met:
            if time.monotonic() > end:
                raise AssertionError("the fault was never met")
            time.sleep(0.01)


def inject(fault: str, monkeypatch: pytest.MonkeyPatch, provider: TracerProvider, undo: ExitStack) -> Hits:
    """Break what the steps stand on, and all steps that are wrapped from now on; `undo` is closed after the test."""
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
        hits.placed.add(name_of(step))
        return make(_broken(step, fault, hits.met), owner)

    monkeypatch.setattr(base, "observed", observed)
    return hits


def name_of(step: StepFunction) -> str:
    """Module and name of a step."""
    return f"{step.__module__}.{getattr(step, '__name__', 'step')}"


def _raising(original: Callable[..., Any], name: str, met: Counter[str]) -> Callable[..., Any]:
    """Raises, but not for spans and tracers of the observed program itself."""

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
    undo.callback(over.set)  # first, so that nobody waits any more


class _Silent(SpanExporter):
    """A collector that takes what it is sent and does not answer."""

    def __init__(self, hang: Callable[[], Any]) -> None:
        self._hang = hang

    def export(self, spans: Any) -> SpanExportResult:
        self._hang()
        return SpanExportResult.SUCCESS


def _broken(step: StepFunction, fault: str, met: Counter[str]) -> StepFunction:
    name = name_of(step)

    def broken(call: Call[Any]) -> Step:
        if fault != "garbage before":
            return misbehave(call)
        met[name] += 1
        next(step(call), None)  # what it has opened stays open
        return cast(Step, "no step at all")

    def misbehave(call: Call[Any]) -> Step:
        running = step(call)
        if fault.endswith("before"):
            met[name] += 1
            next(running, None)  # half of its work is done
            raise HookError(name)
        try:
            next(running)
        except StopIteration:
            return  # it records nothing of this call
        returned = yield
        if fault.endswith("after"):
            met[name] += 1
        if fault == "raise after":
            raise HookError(name)
        while fault == "garbage after":  # a step that never comes to its end
            yield cast(None, object())
        with suppress(StopIteration):
            running.send(returned)

    broken.__name__, broken.__module__ = getattr(step, "__name__", "step"), step.__module__
    return broken
