"""Spans that have been in the file for a while are packed when nothing else is to be done, and room is given back."""

from __future__ import annotations

import logging
import time

from memtrace_otel.serve.arrivals import WatchedStore
from memtrace_otel.sources import StoreError
from memtrace_otel.sources.connection import is_corrupt

_logger = logging.getLogger(__name__)
_RETRY_SECONDS = 60.0


class Packing:
    """Packs spans once they are `seconds` to twice as long in the file, 0: never. Where it is stands in the file."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due = time.monotonic() + seconds
        self._settled = self._newest = 0
        self._unsettled = False
        self._gives_back = True
        self.packed = 0
        """Spans packed so far."""

    def step(self, store: WatchedStore) -> bool:
        """Do a little of what there is to do; return whether there is more."""
        now = time.monotonic()
        if not self._seconds:
            return False
        try:
            if now >= self._due:
                self._settled, self._newest = self._newest, store.newest()
                self._due = now + self._seconds
            return self._step(store)
        except StoreError as error:  # decoding goes on
            if is_corrupt(error.__cause__):  # what is deleted and inserted there may do more harm
                _logger.warning("packing ends: %s", error)
                self._seconds = 0.0
                return False
            _logger.warning("packing waits: %s", error)  # the disk is full
        except Exception as error:  # its message may say what spans say
            _logger.warning("packing waits: %s", type(error).__name__)
        self._settled, self._due = 0, now + max(self._seconds, _RETRY_SECONDS)
        return False

    def _step(self, store: WatchedStore) -> bool:
        if packed := store.pack(self._settled):
            self.packed += packed
            self._unsettled = True
            return True
        if self._gives_back and self._give_back(store):
            self._unsettled = True
            return True
        if self._unsettled:
            store.settle()
            self._unsettled = False
        return False

    def _give_back(self, store: WatchedStore) -> bool:
        try:
            return store.give_back()
        except StoreError as error:  # a page that had to be moved; packing may do without it
            if not is_corrupt(error.__cause__):
                raise
            _logger.warning("free pages stay in the file: %s", error)
            self._gives_back = False
            return False
