"""What a forked child does first: locks that the parent's threads held are nobody's there."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any
from weakref import ref

_REENTRANT = type(threading.RLock())
_owners: dict[int, ref[Any]] = {}  # by identity: owners may be equal, or have no hash


def after_fork(function: Callable[[], None]) -> Callable[[], None]:
    """Call `function` in every forked child from now on, in the order of these calls; also as a decorator."""
    if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
        os.register_at_fork(after_in_child=function)
    return function


def new_lock_after_fork(owner: Any) -> None:
    """Give `owner` a new `_lock`, of the kind that it has, in every forked child, as long as it lives."""
    known = id(owner)
    _owners[known] = ref(owner, lambda _: _owners.pop(known, None))


@after_fork
def _new_locks() -> None:
    for known in list(_owners.values()):
        if (owner := known()) is not None:
            owner._lock = threading.RLock() if isinstance(owner._lock, _REENTRANT) else threading.Lock()
