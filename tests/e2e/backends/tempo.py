"""A real Grafana Tempo on loopback: traces by id and by TraceQL."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from tests.e2e.backends.service import ROOT, Service, answers, installed, ports_of, running, wait_for
from tests.e2e.backends.stored import StoredSpan, read_spans

SEARCHABLE = {"TEMPO_TRACE_IDLE": "1s", "TEMPO_FLUSH_CHECK": "1s"}
"""A search finds a trace two seconds after its last span; blocks are left as they are."""

QUICK = {
    **SEARCHABLE,
    "TEMPO_MAX_BLOCK_DURATION": "3s",
    "TEMPO_COMPLETE_BLOCK_TIMEOUT": "8s",
    "TEMPO_COMPACTION_CYCLE": "2s",
    "TEMPO_BLOCKLIST_POLL": "1s",
}
"""Traces become blocks on disk, and blocks are compacted, within seconds. The ingester keeps a block for longer than a
busy machine needs to read the list of blocks again: in between nobody would show it."""

_DAY = 86_400


class Tempo:
    """A running Tempo. `otlp_http` and `otlp_grpc` are its OTLP endpoints, `url` is its query API."""

    def __init__(self, ports: dict[str, int], service: Service) -> None:
        self.otlp_http = f"http://127.0.0.1:{ports['OTLP_HTTP']}"
        self.otlp_grpc = f"http://127.0.0.1:{ports['OTLP_GRPC']}"
        self.url = f"http://127.0.0.1:{ports['HTTP']}"
        self.service = service

    def spans(self, trace_id: str, tenant: str = "", *, on_disk: bool = True) -> list[StoredSpan]:
        """Return the spans of a trace, [] when it is unknown; with `on_disk=False` those that the ingester has."""
        mode = "" if on_disk else "?mode=ingesters"
        found = self._get(f"/api/v2/traces/{trace_id}{mode}", tenant) or {}
        return read_spans((found.get("trace") or {}).get("resourceSpans", []))

    def search(self, query: str, tenant: str = "", *, start: int = 0, end: int = 0) -> set[str]:
        """Return the ids of the traces that match a TraceQL query, between times in seconds (default: a day)."""
        now = int(time.time())
        asked = urlencode({"q": query, "start": start or now - _DAY, "end": end or now + 60, "limit": 1000})
        found = self._get(f"/api/search?{asked}", tenant) or {}
        return {trace["traceID"].zfill(32) for trace in found.get("traces", [])}

    def matched(self, query: str) -> list[dict[str, str]]:
        """Return the attributes that a TraceQL query selects, of every span that it matches."""
        now = int(time.time())
        asked = urlencode({"q": query, "start": now - _DAY, "end": now + 60, "limit": 1000, "spss": 100})
        found = self._get(f"/api/search?{asked}", "") or {}
        sets = [spans for trace in found.get("traces", []) for spans in trace["spanSets"]]
        return [
            {one["key"]: next(iter(one["value"].values())) for one in span.get("attributes", ())}
            for spans in sets
            for span in spans["spans"]
        ]

    def failing(self, service: str, failure_type: str) -> set[str]:
        """Return the traces in which a span of `service` says that this type of failure happened."""
        return self.search(
            f'{{ resource.service.name = "{service}" && span.memtrace.failure.type = "{failure_type}" }}'
        )

    def warnings(self, trace_id: str) -> list[str]:
        """Return nothing: Tempo warns of nothing."""
        return []

    def metric(self, name: str) -> float:
        """Return the sum of one of Tempo's own metrics over its labels."""
        with urlopen(f"{self.url}/metrics", timeout=30) as reply:
            lines = reply.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))

    def flush(self, *trace_ids: str) -> None:
        """Write traces out as blocks, and wait until they are read from there alone."""
        with urlopen(f"{self.url}/flush", timeout=30):
            pass
        wait_for(lambda: not any(self.spans(id, on_disk=False) for id in trace_ids), "Tempo lets go of its traces")

    def compact(self) -> None:
        """Wait until traces of several blocks were put together."""
        wait_for(lambda: self.metric("tempodb_compaction_objects_combined_total") > 0, "Tempo compacts its blocks")

    def _get(self, path: str, tenant: str) -> Any:
        headers = {"accept": "application/json"} | ({"X-Scope-OrgID": tenant} if tenant else {})
        try:
            with urlopen(Request(self.url + path, headers=headers), timeout=30) as reply:
                return json.load(reply)
        except HTTPError as error:
            if error.code == 404:
                return None
            raise AssertionError(f"{path}: HTTP {error.code} {error.read()[:500]!r}") from None


@contextmanager
def running_tempo(folder: Path, **settings: str) -> Iterator[Tempo]:
    """Run Tempo with the configuration of deploy/, its log and data in `folder`; `settings` is its environment."""
    ports, environ = ports_of("TEMPO", "HTTP", "GRPC", "OTLP_GRPC", "OTLP_HTTP")
    config = ROOT / "deploy" / "tempo" / "config.yaml"
    service = Service(
        "tempo",
        [installed("tempo"), f"-config.file={config}", "-config.expand-env=true"],
        folder,
        healthy=answers(f"http://127.0.0.1:{ports['HTTP']}/ready"),
        environ=environ | {"TEMPO_DATA": str(folder / "data")} | settings,
        patience=2,  # it has closed its files by then; its query frontend never ends once it was asked something
    )
    with running(service):
        yield Tempo(ports, service)
