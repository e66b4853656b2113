"""What a forked child does first: new locks, and the functions that other modules registered."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import ref

F = TypeVar("F", bound=Callable[[], object])

_REENTRANT = type(threading.RLock())
_owners: dict[int, ref[Any]] = {}  # by identity: owners may be equal, or have no hash
_functions: list[Callable[[], object]] = []


def after_fork(function: F) -> F:
    """Call `function` in every forked child from now on, in the order of registration; also as a decorator."""
    _functions.append(function)
    return function


def new_lock_after_fork(owner: Any) -> None:
    """Give `owner` a new `_lock` of the same kind in every forked child; a thread of the parent may hold the old."""
    known = id(owner)
    _owners[known] = ref(owner, lambda _: _owners.pop(known, None))


def _in_child() -> None:
    for known in list(_owners.values()):
        if (owner := known()) is not None:
            owner._lock = threading.RLock() if isinstance(owner._lock, _REENTRANT) else threading.Lock()
    for function in _functions:
        function()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_in_child)
