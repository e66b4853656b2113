"""Names for objects that have none of their own, such as a store in memory."""

from __future__ import annotations

import secrets
import threading
from typing import Any
from weakref import finalize

from memtrace_otel.capture.fork import after_fork

_lock = threading.Lock()


@after_fork
def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # the parent may have held it


class ObjectNames:
    """A name for every object, as long as it lives. Objects are told apart by identity: equal ones are not the same."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def name(self, value: Any, new: str = "") -> str:
        """The name of this object, '' for one whose end nobody is told of; `new` is the name of one that has none yet
        (made up if empty)."""
        with _lock:
            known = self._names.get(id(value))
            if known is None:
                try:
                    finalize(value, self._names.pop, id(value), None).atexit = False
                except TypeError:
                    return ""
                known = self._names[id(value)] = new or secrets.token_hex(8)
            return known
