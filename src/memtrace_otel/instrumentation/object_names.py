"""Names for objects that have none of their own, such as a store in memory."""

from __future__ import annotations

import secrets
from typing import Any
from weakref import finalize


class ObjectNames:
    """A name for every object, as long as it lives. Objects are told apart by identity: equal ones are not the same.

    Without a lock: a finalizer of the program may ask for a name while its thread is in here.
    """

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def name(self, value: Any, new: str = "") -> str:
        """The name of this object, '' for one whose end nobody is told of; `new` is the name of one that has none yet
        (made up if empty)."""
        known = self._names.get(id(value))
        if known is not None:
            return known
        try:
            finalize(value, self._names.pop, id(value), None).atexit = False  # twice, if two threads ask, is no harm
        except TypeError:
            return ""
        return self._names.setdefault(id(value), new or secrets.token_hex(8))
