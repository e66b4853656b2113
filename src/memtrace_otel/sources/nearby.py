"""The backends on a receiver's host: one of them is likely the one that it fills."""

from __future__ import annotations

import logging

from memtrace_otel.hosts import host_of, listens
from memtrace_otel.model import OperationSpan
from memtrace_otel.sources.errors import StoreError
from memtrace_otel.sources.http import Address, BackendApi
from memtrace_otel.sources.opening import KINDS
from memtrace_otel.sources.remote import RemoteSource

_SECONDS = 5.0
"""Nobody has said that there is a backend."""
_logger = logging.getLogger(__name__)


class NearbySources:
    """Jaeger and Tempo on the host of an OTLP endpoint, at their usual ports, read as one.

    They are asked without what MEMTRACE_SOURCE_* hold: token and tenant are for the backend that a user names. One that
    fails is not asked again, with a warning. `shows` names the one that had a trace, empty until then and after that.
    """

    def __init__(self, endpoint: str) -> None:
        host = host_of(endpoint)
        self._sources: dict[str, RemoteSource] = {}
        self.shows = ""
        for kind, (source, port, _) in KINDS.items():
            if listens(host, port):
                api = BackendApi(Address(secure=False, host=host, port=port))
                api.hurry(_SECONDS)
                self._sources[f"{kind}+{api}"] = source(api)

    def whole(self, trace_id: str) -> list[OperationSpan]:
        """Return the spans of a trace as a backend has them now, [] where none has it."""
        for url, source in list(self._sources.items()):
            source.api.allow(1)
            try:
                spans = source.whole(trace_id)
            except StoreError as error:
                _logger.warning("%s is not looked into: %s", url, error)
                del self._sources[url]
                self.shows = ""
                continue
            if spans:
                self.shows = self.shows or url
                return spans
        return []

    def close(self) -> None:
        """Close what is open."""
        for source in self._sources.values():
            source.close()
