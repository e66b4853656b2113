"""The memory that requests may take, all together."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from memtrace_otel.otlp.receiver.intake import BusyError, Cause

_RETRY_SECONDS = 1


class Room:
    """Counts the bytes of bodies that are held, packed and unpacked. For one thread, that of the event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0

    @contextmanager
    def hold(self) -> Generator[Held]:
        """Hold the bytes of one request for as long as it is worked on."""
        held = Held(self)
        try:
            yield held
        finally:
            held.release()

    def take(self, size: int) -> None:
        """Count bytes. Raises BusyError when they are too many; a request that is alone is never refused."""
        if self._held and self._held + size > self._most:
            raise BusyError("too many bytes of other requests are being worked on", _RETRY_SECONDS, Cause.MEMORY)
        self._held += size

    def give(self, size: int) -> None:
        """Count bytes no longer."""
        self._held -= size


class Held:
    """What one request holds."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._size = 0

    def grow(self, size: int) -> None:
        """Hold so many bytes more. Raises BusyError."""
        self._room.take(size)
        self._size += size

    def release(self) -> None:
        """Hold nothing any longer."""
        self._room.give(self._size)
        self._size = 0
