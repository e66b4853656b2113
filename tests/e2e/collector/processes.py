"""The processes around the configurations of `collector/`: Collectors and `memtrace-otel serve`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from urllib.request import urlopen

from memtrace_otel.sources import SqliteStore
from tests.e2e.backends.service import ROOT, Service, answers, free_ports, installed

CONFIGURATIONS = ROOT / "collector"


class Collector(Service):
    """A Collector with the files of `collector/` that are named (or other ones), and the environment that `settings`
    make."""

    def __init__(self, folder: Path, *configurations: str | Path, name: str = "collector", **settings: object) -> None:
        grpc, http, health, metrics, prometheus = free_ports(5)
        self.otlp = str(settings.get("COLLECTOR_OTLP_GRPC", f"127.0.0.1:{grpc}"))
        self.prometheus = f"http://127.0.0.1:{prometheus}/metrics"
        self._metrics = f"http://127.0.0.1:{metrics}/metrics"
        environ: dict[str, object] = {
            "COLLECTOR_OTLP_GRPC": self.otlp,
            "COLLECTOR_OTLP_HTTP": f"127.0.0.1:{http}",
            "COLLECTOR_HEALTH": f"127.0.0.1:{health}",
            "COLLECTOR_METRICS_PORT": metrics,
            "COLLECTOR_PROMETHEUS": f"127.0.0.1:{prometheus}",
            "COLLECTOR_QUEUE_DIR": folder / f"{name}-queues",
            **settings,
        }
        super().__init__(
            name,
            [installed("collector"), *flags(configurations)],
            folder,
            healthy=answers(f"http://127.0.0.1:{health}/"),
            environ={key: str(value) for key, value in environ.items()},
        )

    def metric(self, name: str, **labels: str) -> float:
        """Sum of one of the Collector's own metrics over all its series with these labels, 0 when there is none."""
        return metric(self._metrics, name, **labels)


class Serve(Service):
    """`memtrace-otel serve` on a database in `folder`."""

    def __init__(self, folder: Path, name: str = "serve", **settings: object) -> None:
        grpc, http = free_ports(2)
        self.otlp = f"127.0.0.1:{grpc}"
        self.database = folder / f"{name}.db"
        self._http = f"http://127.0.0.1:{http}"
        command = [sys.executable, "-m", "memtrace_otel.cli", "serve", "--db", self.database]
        command += ["--grpc-port", str(grpc), "--http-port", str(http)]
        super().__init__(
            name,
            command,
            folder,
            healthy=answers(f"{self._http}/health"),
            environ={key: str(value) for key, value in settings.items()},
        )

    def acknowledged(self) -> float:
        """How many spans it has taken since it was started."""
        return metric(f"{self._http}/metrics", "memtrace_serve_acknowledged_spans_total")

    def waiting(self) -> float:
        """Bytes that it has acknowledged and not decoded yet."""
        return metric(f"{self._http}/metrics", "memtrace_serve_inbox_bytes")

    def failures(self) -> float:
        """How many failures it has attributed."""
        return metric(f"{self._http}/metrics", "memtrace_attribution_failures_total")

    def span_ids(self) -> set[str]:
        """The ids of the spans it holds, but those of verdicts."""
        with SqliteStore.open(self.database) as store:
            return {span.span_id for span in store.spans() if span.instrumentation_scope != "memtrace_otel.attribution"}


def flags(configurations: Iterable[str | Path]) -> list[str]:
    """The options that name configurations, of `collector/` by their names, in their order."""
    files = (CONFIGURATIONS / f"{one}.yaml" if isinstance(one, str) else one for one in configurations)
    return [f"--config={file}" for file in files]


def metric(url: str, name: str, **labels: str) -> float:
    """Sum of the series of a metric that have these labels, on a page in the format of Prometheus."""
    with urlopen(url, timeout=10) as reply:
        page = reply.read().decode()
    series = re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", page, re.MULTILINE)
    wanted = {f'{key}="{value}"' for key, value in labels.items()}
    return sum(float(value) for found, value in series if all(pair in found for pair in wanted))
