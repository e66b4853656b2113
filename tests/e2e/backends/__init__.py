"""What every tracing backend here can be asked."""

from __future__ import annotations

from typing import Protocol

from tests.e2e.backends.service import Service
from tests.e2e.backends.stored import StoredSpan


class Backend(Protocol):
    """A running backend on loopback: `otlp_http` and `otlp_grpc` take spans, `url` answers queries."""

    otlp_http: str
    otlp_grpc: str
    url: str
    service: Service

    def spans(self, trace_id: str) -> list[StoredSpan]:
        """Return the spans of a trace as often as it shows them, [] when it is unknown."""
        ...

    def failing(self, service: str, failure_type: str) -> set[str]:
        """Return the traces in which a span of `service` says that this type of failure happened."""
        ...

    def warnings(self, trace_id: str) -> list[str]:
        """Return what the backend finds wrong with a trace."""
        ...
