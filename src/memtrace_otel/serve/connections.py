"""HTTP connections: who opens many, or opens one and says nothing, takes no place of others for long."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 512
HEAD_SECONDS = 10.0
"""Longest time from a connection, or the first byte of a further request, to the end of its headers."""
CLOSING_SECONDS = 1.0
"""Longest wait, when the server ends, for the other side of an encrypted connection to say that it closes, too."""


class Connection(H11Protocol):
    """Closes itself when it is one too many, or when no request comes; uvicorn waits for a first one without end."""

    _head_timer: asyncio.TimerHandle | None = None
    _is_ending = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.close()
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_working:
            self._forget_head()
        elif self._head_timer is None:
            self._expect_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._forget_head()  # uvicorn closes an idle connection that had a request
        if self._is_ending:
            self._closes_soon()

    def shutdown(self) -> None:
        super().shutdown()
        self._is_ending = True
        if not self._is_working:
            self._closes_soon()

    @property
    def _is_working(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]

    def _expect_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._close_unless_working)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _close_unless_working(self) -> None:
        if not self._is_working:
            self.transport.close()

    def _closes_soon(self) -> None:
        if self.transport.get_extra_info("sslcontext"):  # what is not encrypted closes by itself
            self.loop.call_later(CLOSING_SECONDS, self.transport.abort)
