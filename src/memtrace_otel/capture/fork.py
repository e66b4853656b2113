"""What a forked child does first: locks that the parent's threads held are nobody's there."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any


def after_fork(function: Callable[[], None]) -> Callable[[], None]:
    """Call `function` in every forked child from now on, in the order of these calls; also as a decorator."""
    if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
        os.register_at_fork(after_in_child=function)
    return function


def new_lock_after_fork(owner: Any) -> None:
    """Give `owner` a new `_lock` in every forked child, as long as it lives."""
    known = weakref.ref(owner)

    def renew() -> None:
        if (living := known()) is not None:
            living._lock = threading.Lock()

    after_fork(renew)
