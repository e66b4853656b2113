"""A real Jaeger v2 on loopback, and what it says of a trace."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

from tests.e2e.backends.service import ROOT, Service, answers, installed, ports_of, running
from tests.e2e.backends.stored import StoredSpan, read_spans


@dataclass(frozen=True, slots=True)
class JaegerSpan:
    """A span as the query API (the one Jaeger's page uses) gives it. Times are microseconds."""

    span_id: str
    parent_id: str
    name: str
    service: str
    start: int
    duration: int
    tags: dict[str, Any]
    references: tuple[tuple[str, str], ...]
    """(trace id, span id) of what it links to."""
    warnings: tuple[str, ...]


class Jaeger:
    """A running Jaeger. `otlp_http` and `otlp_grpc` are its OTLP endpoints, `url` is its page and query API."""

    def __init__(self, ports: dict[str, int], service: Service) -> None:
        self.otlp_http = f"http://127.0.0.1:{ports['OTLP_HTTP']}"
        self.otlp_grpc = f"http://127.0.0.1:{ports['OTLP_GRPC']}"
        self.url = f"http://127.0.0.1:{ports['QUERY']}"
        self.service = service

    def trace(self, trace_id: str) -> list[JaegerSpan]:
        """Return the spans of a trace, [] when it is unknown. The same id stands as often as Jaeger shows it."""
        found = self._get(f"/api/traces/{trace_id}")
        return [span for trace in found for span in _spans(trace)]

    def spans(self, trace_id: str) -> list[StoredSpan]:
        """Return the spans of a trace as API v3 gives them."""
        result = self._get(f"/api/v3/traces/{trace_id}", key="result") or {}
        return read_spans(result.get("resourceSpans", []))

    def warnings(self, trace_id: str) -> list[str]:
        """Return what Jaeger finds wrong with a trace."""
        return [f"{span.name}: {warning}" for span in self.trace(trace_id) for warning in span.warnings]

    def failing(self, service: str, failure_type: str) -> set[str]:
        """Return the traces in which a span of `service` says that this type of failure happened."""
        return self.search(service, {"memtrace.failure.type": failure_type})

    def search(self, service: str, tags: dict[str, str] | None = None) -> set[str]:
        """Return the ids of the traces in which one span of `service` has all `tags`."""
        now = int(time.time() * 1_000_000)
        query = {"service": service, "start": now - 10**13, "end": now + 10**9, "limit": 5000}
        if tags:
            query["tags"] = json.dumps(tags)
        return {trace["traceID"].zfill(32) for trace in self._get(f"/api/traces?{urlencode(query)}")}

    def services(self) -> set[str]:
        """Return the names of the services Jaeger knows."""
        return set(self._get("/api/services") or [])

    def _get(self, path: str, key: str = "data") -> Any:
        try:
            with urlopen(f"{self.url}{path}", timeout=30) as reply:
                return json.load(reply)[key]
        except HTTPError as error:
            if error.code == 404:
                return []
            raise AssertionError(f"{path}: HTTP {error.code} {error.read()[:500]!r}") from None


@contextmanager
def running_jaeger(folder: Path, storage: Literal["memory", "badger"] = "memory") -> Iterator[Jaeger]:
    """Run Jaeger with the configuration of deploy/, its log and data in `folder`."""
    ports, environ = ports_of("JAEGER", "HEALTH", "QUERY", "QUERY_GRPC", "OTLP_GRPC", "OTLP_HTTP")
    files = ["config.yaml"] + (["badger.yaml"] if storage == "badger" else [])
    service = Service(
        f"jaeger-{storage}",
        [installed("jaeger"), *(f"--config={ROOT / 'deploy' / 'jaeger' / file}" for file in files)],
        folder,
        healthy=answers(f"http://127.0.0.1:{ports['HEALTH']}/status"),
        environ=environ | {"JAEGER_DATA": str(folder), "JAEGER_UI_CONFIG": str(ROOT / "deploy" / "jaeger" / "ui.js")},
    )
    with running(service):
        yield Jaeger(ports, service)


def _spans(trace: dict[str, Any]) -> Iterator[JaegerSpan]:
    for span in trace["spans"]:
        parents = [reference["spanID"] for reference in span["references"] if reference["refType"] == "CHILD_OF"]
        yield JaegerSpan(
            span_id=span["spanID"],
            parent_id=parents[0] if parents else "",
            name=span["operationName"],
            service=trace["processes"][span["processID"]]["serviceName"],
            start=span["startTime"],
            duration=span["duration"],
            references=tuple(
                (reference["traceID"], reference["spanID"])
                for reference in span["references"]
                if reference["refType"] == "FOLLOWS_FROM"
            ),
            tags={tag["key"]: tag["value"] for tag in span["tags"]},
            warnings=tuple(span["warnings"] or ()),
        )
