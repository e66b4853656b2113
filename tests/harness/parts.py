"""The functions that an instrumentor is made of, each to be broken in its turn while the program runs."""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, cast

import pytest

from tests.harness.faults import HookError

Part = tuple[str, Any, str]
"""What it is called, and where it lies: an owner (module or class) and a name there."""


def parts_of(package: str) -> Iterator[Part]:
    """The plain functions and methods of a package's modules, those in loops over the program's items left out: these
    (generators, coroutines, `__next__`) must run for the program to go on."""
    for name, module in list(sys.modules.items()):
        if name == package or name.startswith(f"{package}."):
            for owner in (module, *(cls for cls in vars(module).values() if _is_of(cls, name, inspect.isclass))):
                for called, function in list(vars(owner).items()):
                    if _is_of(function, name, _is_plain) and not called.startswith("__"):
                        yield f"{name.removeprefix('memtrace_otel.')}:{function.__qualname__}", owner, called


def count_calls(parts: list[Part], monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count from now on how often each part is called."""
    calls: Counter[str] = Counter()

    def counted(place: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            calls[place] += 1
            return function(*args, **kwargs)

        return call

    for place, owner, name in parts:
        function = cast("Callable[..., Any]", vars(owner)[name])
        _replace(owner, name, counted(place, function), monkeypatch)
    return calls


def break_part(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a part raise from now on."""
    place, owner, name = part

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise HookError(place)

    _replace(owner, name, broken, monkeypatch)


def break_each_once(parts: list[Part], monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Let each part raise from now on when it is called first; returns the names of those that have, as they do."""
    raised: set[str] = set()

    def broken(place: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if place in raised:
                return function(*args, **kwargs)
            raised.add(place)
            raise HookError(place)

        return call

    for place, owner, name in parts:
        _replace(owner, name, broken(place, cast("Callable[..., Any]", vars(owner)[name])), monkeypatch)
    return raised


def _replace(owner: Any, name: str, new: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a function in the place of one, wherever a module of ours has taken it over by name."""
    old = cast(object, vars(owner)[name])
    monkeypatch.setattr(owner, name, new)
    if not inspect.ismodule(owner):
        return
    for module in [module for at, module in list(sys.modules.items()) if at.startswith("memtrace_otel.")]:
        for called, value in list(vars(module).items()):
            if value is old:
                monkeypatch.setattr(module, called, new)


def _is_of(value: Any, module: str, kind: Callable[[Any], bool]) -> bool:
    return kind(value) and getattr(value, "__module__", "") == module


def _is_plain(value: Any) -> bool:
    if not inspect.isfunction(value) or hasattr(value, "__wrapped__"):
        return False
    return not (
        inspect.isgeneratorfunction(value) or inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(value)
    )
