"""A real Prometheus on loopback with a given configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from tests.e2e.backends.service import Service, answers, free_ports, installed, running


class Prometheus:
    """A running Prometheus; `url` is its page and API."""

    def __init__(self, url: str, service: Service) -> None:
        self.url = url
        self.service = service

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return (labels, value now) of every series of an expression."""
        found = self.get("/api/v1/query", query=expression)
        return [(series["metric"], float(series["value"][1])) for series in found["result"]]

    def alerts(self) -> list[dict[str, Any]]:
        """Return what is pending or firing, as the API gives it."""
        return self.get("/api/v1/alerts")["alerts"]

    def reload(self) -> None:
        """Read the configuration again."""
        with urlopen(Request(f"{self.url}/-/reload", method="POST"), timeout=30):
            pass

    def get(self, path: str, **query: str) -> Any:
        """Return `data` of a call of its API."""
        with urlopen(f"{self.url}{path}?{urlencode(query)}", timeout=30) as reply:
            return json.load(reply)["data"]


@contextmanager
def running_prometheus(folder: Path, config: Path, *flags: str) -> Iterator[Prometheus]:
    """Run Prometheus with this configuration file, its log and data in `folder`; exemplars are kept."""
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = [
        installed("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'prometheus-data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        f"--web.external-url={url}",
        "--web.enable-lifecycle",
        "--enable-feature=exemplar-storage",
        *flags,
    ]
    with running(Service("prometheus", command, folder, healthy=answers(f"{url}/-/ready"))) as service:
        yield Prometheus(url, service)
