"""Spans that have been in the file for a while are packed when nothing else is to be done, and room is given back."""

from __future__ import annotations

import logging
import time

from memtrace_otel.serve.arrivals import WatchedStore
from memtrace_otel.store import StoreError

_logger = logging.getLogger(__name__)
_RETRY_SECONDS = 60.0


class Packing:
    """Packs spans once they are `seconds` to twice as long in the file, 0: never. Where it is stands in the file."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due = time.monotonic() + seconds
        self._settled = self._newest = 0
        self._unsettled = False
        self.packed = 0
        """Spans packed so far."""

    def step(self, store: WatchedStore) -> bool:
        """Do a little of what there is to do; return whether there is more."""
        now = time.monotonic()
        if not self._seconds:
            return False
        if now >= self._due:
            self._settled, self._newest = self._newest, store.newest()
            self._due = now + self._seconds
        try:
            return self._step(store)
        except StoreError as error:  # the disk is full, a page is damaged: decoding goes on
            _logger.warning("packing waits: %s", error)
            self._settled, self._due = 0, now + max(self._seconds, _RETRY_SECONDS)
            return False

    def _step(self, store: WatchedStore) -> bool:
        if packed := store.pack(self._settled):
            self.packed += packed
            self._unsettled = True
            return True
        if store.give_back():
            self._unsettled = True
            return True
        if self._unsettled:
            store.settle()
            self._unsettled = False
        return False
