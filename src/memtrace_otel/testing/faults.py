"""Makes every hook of an instrumentor misbehave: proof that observing never harms."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
from opentelemetry.sdk.trace import Span, Tracer

from memtrace_otel import semconv
from memtrace_otel.capture import operations, writing
from memtrace_otel.capture.origins import OriginTable
from memtrace_otel.instrumentation import patches, steps
from memtrace_otel.instrumentation.steps import Call, Step, StepFunction

STEP_FAULTS = ("raise before", "raise after", "garbage before", "garbage after", "hang")
"""What is done to the steps: they run in the program's own thread, so one that hangs holds it up until it rests."""
SEAM_FAULTS: Mapping[str, tuple[tuple[Any, str], ...]] = {
    "tracer raises": ((Tracer, "start_span"),),
    "span raises": tuple((Span, name) for name in ("set_attribute", "set_attributes", "add_link", "set_status", "end")),
    "contents raise": ((operations, "as_text"), (writing, "describe")),
    "origins raise": ((OriginTable, "find"), (OriginTable, "wrote")),
    "settings raise": ((operations, "config"),),
}
"""What the steps stand on, by the names that raise."""
FAULTS = (*STEP_FAULTS, *SEAM_FAULTS)

_HANG_SECONDS = 0.05


class HookError(Exception):
    """What a broken hook raises."""


def inject(fault: str, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Break all steps that are wrapped from now on; returns how often each hook met the fault."""
    met: Counter[str] = Counter()
    if fault in SEAM_FAULTS:
        for owner, name in SEAM_FAULTS[fault]:
            monkeypatch.setattr(owner, name, _raising(getattr(owner, name), name, met))
        return met
    if fault == "hang":
        monkeypatch.setattr(steps, "SLOW_SECONDS", _HANG_SECONDS / 2)
        monkeypatch.setattr(steps, "STRIKES", 1)
    make = patches.observed

    def observed(step: StepFunction, owner: patches.Patches) -> Callable[..., Any]:
        return make(_broken(step, fault, met), owner)

    monkeypatch.setattr(patches, "observed", observed)
    return met


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


def _broken(step: StepFunction, fault: str, met: Counter[str]) -> StepFunction:
    name = f"{step.__module__}.{step.__name__}"

    def broken(call: Call[Any]) -> Step:
        if fault == "garbage before":
            met[name] += 1
            return cast(Step, "no step at all")
        return misbehave(call)

    def misbehave(call: Call[Any]) -> Step:
        if fault == "raise before":
            met[name] += 1
            raise HookError(name)
        if fault == "hang":
            met[name] += 1
            time.sleep(_HANG_SECONDS)
        running = step(call)
        if fault == "hang":
            yield from running
            return
        next(running, None)
        yield
        met[name] += 1
        if fault == "raise after":
            raise HookError(name)
        while True:  # garbage after: a step that never comes to its end
            yield cast(None, object())

    broken.__name__ = getattr(step, "__name__", "step")
    return broken
