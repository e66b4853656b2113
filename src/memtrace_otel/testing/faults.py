"""Makes every hook of an instrumentor misbehave: proof that observing never harms."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest

from memtrace_otel.capture import Operation
from memtrace_otel.instrumentation import patches, steps
from memtrace_otel.instrumentation.steps import Call, Step, StepFunction

FAULTS = ("raise before", "raise after", "garbage before", "garbage after", "hang", "recording raises")

_HANG_SECONDS = 0.05


class HookError(Exception):
    """What a broken hook raises."""


def inject(fault: str, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Break all steps that are wrapped from now on; returns how often each hook met the fault."""
    met: Counter[str] = Counter()
    if fault == "recording raises":
        for name in ("_text", "_write", "_remember"):
            monkeypatch.setattr(Operation, name, _raising(f"Operation.{name}", met), raising=False)
        return met
    if fault == "hang":
        monkeypatch.setattr(steps, "SLOW_SECONDS", _HANG_SECONDS / 2)
    make = patches.observed

    def observed(step: StepFunction, owner: patches.Patches) -> Callable[..., Any]:
        return make(_broken(step, fault, met), owner)

    monkeypatch.setattr(patches, "observed", observed)
    return met


def _raising(name: str, met: Counter[str]) -> Callable[..., Any]:
    def broken(*args: Any, **kwargs: Any) -> Any:
        met[name] += 1
        raise HookError(name)

    return broken


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
