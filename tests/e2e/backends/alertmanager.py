"""A real Alertmanager on loopback with a given configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tests.e2e.backends.service import Service, answers, free_ports, installed, running


class Alertmanager:
    """A running Alertmanager; `url` is its page and API, `address` the host:port that Prometheus sends to."""

    def __init__(self, address: str, service: Service) -> None:
        self.address = address
        self.url = f"http://{address}"
        self.service = service

    def alerts(self) -> list[dict[str, Any]]:
        """Return the alerts it holds, as API v2 gives them."""
        with urlopen(f"{self.url}/api/v2/alerts", timeout=30) as reply:
            return json.load(reply)


@contextmanager
def running_alertmanager(folder: Path, config: Path) -> Iterator[Alertmanager]:
    """Run Alertmanager alone (no cluster) with this configuration file, its log and data in `folder`."""
    [port] = free_ports(1)
    address = f"127.0.0.1:{port}"
    command = [
        installed("alertmanager"),
        f"--config.file={config}",
        f"--storage.path={folder / 'alertmanager-data'}",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
    ]
    with running(Service("alertmanager", command, folder, healthy=answers(f"http://{address}/-/ready"))) as service:
        yield Alertmanager(address, service)
