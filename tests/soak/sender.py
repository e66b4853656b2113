"""Sends OTLP requests over gRPC at a steady rate, from threads of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Self, cast

import grpc

_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_PAUSE = 0.2
_CONCURRENT = 4


class Sender:
    """Sends `bodies` of so many spans each to `endpoint` (host:port), `rate` spans per second.

    `sent` counts the spans of acknowledged requests; one that is refused is sent again until it is taken. Several are
    under way at a time, as of several applications.
    """

    def __init__(self, endpoint: str, bodies: Iterator[bytes], spans: int, rate: int) -> None:
        self._channel = grpc.insecure_channel(endpoint)
        self._export = cast(Callable[..., bytes], self._channel.unary_unary(_EXPORT))
        self._bodies, self._spans, self._rate = bodies, spans, rate
        self._ended, self._lock = threading.Event(), threading.Lock()
        self._threads = [threading.Thread(target=self._send) for _ in range(_CONCURRENT)]
        self._begun = 0
        self._started = time.monotonic()
        self._took = 0.0
        self.sent = 0

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._channel.close()

    @property
    def seconds(self) -> float:
        """How long it has been sending."""
        return self._took or time.monotonic() - self._started

    def stop(self) -> None:
        """End after the requests that are under way."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        self._took = self._took or time.monotonic() - self._started

    def _send(self) -> None:
        while True:
            with self._lock:
                body, due = next(self._bodies), self._started + self._begun / self._rate
                self._begun += self._spans
            if self._ended.wait(max(0.0, due - time.monotonic())):
                return
            while not self._is_taken(body):
                time.sleep(_PAUSE)
            with self._lock:
                self.sent += self._spans

    def _is_taken(self, body: bytes) -> bool:
        try:
            self._export(body, timeout=10)
        except grpc.RpcError:
            return False
        return True
