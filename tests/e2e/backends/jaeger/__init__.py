"""A real Jaeger v2 on loopback, and what it says of a trace."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

HERE = Path(__file__).parent
_PORTS = ("HEALTH", "QUERY", "QUERY_GRPC", "OTLP_GRPC", "OTLP_HTTP")
_START_SECONDS = 60
_SETTLE_SECONDS = 20


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
    warnings: tuple[str, ...]


class Jaeger:
    """A running Jaeger. `otlp_http` and `otlp_grpc` are its OTLP endpoints."""

    def __init__(self, ports: dict[str, int]) -> None:
        self.otlp_http = f"http://127.0.0.1:{ports['OTLP_HTTP']}"
        self.otlp_grpc = f"http://127.0.0.1:{ports['OTLP_GRPC']}"
        self._query = f"http://127.0.0.1:{ports['QUERY']}"

    def trace(self, trace_id: str) -> list[JaegerSpan]:
        """Return the spans of a trace, [] when it is unknown. The same id stands as often as Jaeger shows it."""
        found = self._get(f"/api/traces/{trace_id}")
        return [span for trace in found for span in _spans(trace)]

    def otlp_spans(self, trace_id: str) -> list[dict[str, Any]]:
        """Return the spans of a trace as API v3 gives them (OTLP JSON)."""
        result = self._get(f"/api/v3/traces/{trace_id}", key="result") or {}
        return [
            span
            for resource in result.get("resourceSpans", [])
            for scope in resource.get("scopeSpans", [])
            for span in scope.get("spans", [])
        ]

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

    def wait_for(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until Jaeger shows what was sent; AssertionError after some seconds."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        while not holds():
            assert time.monotonic() < deadline, f"Jaeger does not show {what}"
            time.sleep(0.1)

    def _get(self, path: str, key: str = "data") -> Any:
        try:
            with urlopen(f"{self._query}{path}", timeout=30) as reply:
                return json.load(reply)[key]
        except HTTPError as error:
            if error.code == 404:
                return []
            raise AssertionError(f"{path}: HTTP {error.code} {error.read()[:500]!r}") from None


@contextmanager
def running_jaeger(folder: Path) -> Iterator[Jaeger]:
    """Build Jaeger if needed, run it with its log in `folder`, stop it at the end. Whatever fails is a failed test."""
    built = subprocess.run([HERE / "build.sh"], capture_output=True, text=True)
    assert built.returncode == 0, f"Jaeger cannot be built:\n{built.stderr[-3000:]}"
    ports = dict(zip(_PORTS, _free_ports(len(_PORTS)), strict=True))
    environ = {**os.environ, **{f"JAEGER_{name}_PORT": str(port) for name, port in ports.items()}}
    log = folder / "jaeger.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [built.stdout.strip(), "--config", HERE.parents[3] / "deploy" / "jaeger" / "config.yaml"],
            env=environ,
            stdout=output,
            stderr=output,
        )
    try:
        _wait_until_healthy(process, ports["HEALTH"], log)
        yield Jaeger(ports)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_healthy(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            with urlopen(f"http://127.0.0.1:{port}/status", timeout=1) as reply:
                if reply.status == 200:
                    return
        except OSError:
            pass
        assert process.poll() is None, f"Jaeger ended with status {process.returncode}:\n{log.read_text()[-3000:]}"
        assert time.monotonic() < deadline, f"Jaeger is not healthy:\n{log.read_text()[-3000:]}"
        time.sleep(0.1)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for free in sockets:
            free.bind(("127.0.0.1", 0))
        return [free.getsockname()[1] for free in sockets]
    finally:
        for free in sockets:
            free.close()


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
            tags={tag["key"]: tag["value"] for tag in span["tags"]},
            warnings=tuple(span["warnings"] or ()),
        )
