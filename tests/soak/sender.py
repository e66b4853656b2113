"""Sends OTLP requests over gRPC at a steady rate, from a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Self

import grpc

_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_PAUSE = 0.2


class Sender:
    """Sends `bodies` of so many spans each to `endpoint` (host:port), `rate` spans per second.

    `sent` counts the spans of acknowledged requests; one that is refused is sent again until it is taken.
    """

    def __init__(self, endpoint: str, bodies: Iterator[bytes], spans: int, rate: int) -> None:
        self._channel = grpc.insecure_channel(endpoint)
        self._export = self._channel.unary_unary(_EXPORT)
        self._bodies, self._spans, self._rate = bodies, spans, rate
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self._started = time.monotonic()
        self._took = 0.0
        self.sent = 0

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._channel.close()

    @property
    def seconds(self) -> float:
        """How long it has been sending."""
        return self._took or time.monotonic() - self._started

    def stop(self) -> None:
        """End after the request that is under way."""
        self._ended.set()
        self._thread.join()
        self._took = self._took or time.monotonic() - self._started

    def _send(self) -> None:
        for body in self._bodies:
            if self._ended.wait(max(0.0, self._started + self.sent / self._rate - time.monotonic())):
                return
            while not self._is_taken(body):
                time.sleep(_PAUSE)
            self.sent += self._spans

    def _is_taken(self, body: bytes) -> bool:
        try:
            self._export(body, timeout=10)
        except grpc.RpcError:
            return False
        return True
