"""HTTP connections of the server: a bound on their number, and time limits for connections without a request.

Past the bound a new connection takes the place of the one that has been open longest without a complete request. So a
client that opens many connections, or sends half a request on each, does not keep others from being answered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import Any
from weakref import WeakKeyDictionary

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0
"""Longest time for the headers of a request to arrive, and for a connection without a request."""
_FLUSH_SECONDS = 60.0
"""Longest time for the client to read the end of an answer after its connection was closed."""
_HANDSHAKES = 256
"""TLS handshakes at a time."""
asyncio.constants.SSL_HANDSHAKE_TIMEOUT = HEAD_SECONDS  # type: ignore[attr-defined]  # uvicorn leaves 60 s


class Connections:
    """Makes uvicorn's protocol objects, one per connection: the `http` of a `uvicorn.Config`. Keeps `most` open."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: Collection[Any] = ()
        self._idle_since: WeakKeyDictionary[H11Protocol, float] = WeakKeyDictionary()

    def __call__(self, **parameters: Any) -> H11Protocol:
        """Make the object of a new connection. Raises ConnectionRefusedError, which closes it, amid a flood."""
        self._open = parameters["server_state"].connections
        if len(self._open) >= self._most:
            self._close_oldest()
        if len(self._idle_since) > _HANDSHAKES and sum(map(_is_handshake, self._idle_since)) >= _HANDSHAKES:
            raise ConnectionRefusedError("too many connections without a TLS handshake")
        made = H11Protocol(**parameters)
        self._idle_since[made] = time.monotonic()
        return made

    async def sweep(self, seconds: float = HEAD_SECONDS, flush_seconds: float = _FLUSH_SECONDS) -> None:
        """Close connections that have been without a request for so many seconds, until cancelled."""
        while True:
            await asyncio.sleep(min(1.0, seconds / 4))
            now = time.monotonic()
            for made in list(self._idle_since):
                if made not in self._open and not _is_handshake(made):
                    del self._idle_since[made]
            for made in list(self._open):
                if _is_working(made):
                    self._idle_since[made] = now
                elif now > self._idle_since[made] + flush_seconds:
                    made.transport.abort()
                elif now > self._idle_since[made] + seconds and not made.transport.is_closing():
                    made.transport.close()  # a second `close` of an encrypted connection would make `abort` do nothing

    def _close_oldest(self) -> None:
        """Close the oldest connection without a request, else the oldest one whose body has not arrived."""
        oldest = [made for made in self._idle_since if made in self._open and not made.transport.is_closing()]
        waiting = [made for made in oldest if not _is_working(made)] or [
            made for made in oldest if made.cycle.more_body
        ]
        if waiting:
            waiting[0].transport.abort()


def _is_handshake(made: H11Protocol) -> bool:
    """Tell whether a connection has no transport yet."""
    return made.transport is None  # pyright: ignore[reportUnnecessaryComparison]


def _is_working(made: H11Protocol) -> bool:
    """Tell whether a request with complete headers has no complete answer yet."""
    return made.cycle is not None and not made.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]
