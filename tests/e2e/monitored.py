"""What an operator has: `serve`, Prometheus and Alertmanager, with the very files of deploy/ in shorter intervals, and
an application with planted failures of one type."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from memtrace_otel.annotate.send import send
from memtrace_otel.annotate.target import read_target
from memtrace_otel.canary import write_history
from memtrace_otel.otlp import encode_request
from tests.e2e.backends.alertmanager import Alertmanager, running_alertmanager
from tests.e2e.backends.jaeger import Jaeger
from tests.e2e.backends.prometheus import Prometheus, running_prometheus
from tests.e2e.backends.service import ROOT, Service, answers, free_ports, running, wait_for
from tests.e2e.backends.tempo import Tempo

DEPLOY = ROOT / "deploy"
SERVICE = "travel assistant"
FAILURES = 5
"""As many as the alert asks for at least."""
INTERVAL = "500ms"
_CLI = (sys.executable, "-m", "memtrace_otel.cli")


@dataclass
class Messages:
    """A loopback server that operators' messages are posted to; bodies by path."""

    received: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    address: str = ""


@dataclass(frozen=True)
class Monitored:
    """The running parts, and the ids of the failing traces."""

    url: str
    """Of `memtrace-otel serve`."""
    prometheus: Prometheus
    alertmanager: Alertmanager
    messages: Messages
    failing: frozenset[str]
    canary: frozenset[str]
    """Ids of the traces of a canary, whose verdict is made and marked as any other, but belongs in no list."""


@contextmanager
def monitored(folder: Path, jaeger: Jaeger, tempo: Tempo) -> Iterator[Monitored]:
    """Run everything, plant the failures and wait until their verdicts are in Prometheus, Jaeger and Tempo."""
    database = folder / "spans.db"
    to_jaeger, to_tempo = (otlp_environment(backend.otlp_http) for backend in (jaeger, tempo))
    http, grpc = free_ports(2)
    url = f"http://127.0.0.1:{http}"
    command = [*_CLI, "serve", "--db", database, "--http-port", str(http), "--grpc-port", str(grpc)]
    quiet = {"MEMTRACE_QUIET_SECONDS": "0.5"}
    serve = Service("serve", command, folder, healthy=answers(f"{url}/health"), environ=to_jaeger | quiet)
    with (
        running(serve),
        _receiving() as messages,
        running_alertmanager(folder, _alertmanager_config(folder, messages)) as alertmanager,
        running_prometheus(
            folder,
            prometheus_config(folder, {"memtrace": f"127.0.0.1:{http}"}, alertmanager.address, {"jaeger": jaeger.url}),
        ) as prometheus,
    ):
        endpoints = url, jaeger.otlp_http, tempo.otlp_http
        application(SERVICE, 0, 3, *endpoints)
        verdicts = f"sum(memtrace_attribution_failures_total{{service_name='{SERVICE}'}})"
        wait_for(lambda: prometheus.query(verdicts) == [({}, 0)], "a scrape without failures")
        canary = write_history(time.time_ns())
        for endpoint in endpoints:
            target = read_target("traces", environ=otlp_environment(endpoint))
            assert target
            send(target, encode_request(canary.spans))
        failing = application(SERVICE, FAILURES, 0, *endpoints)
        wait_for(lambda: prometheus.query(verdicts) == [({}, FAILURES)], "verdicts in Prometheus")
        subprocess.run([*_CLI, "attribute", "--all", "--db", database], check=True, env=os.environ | to_tempo)
        marked = f'{{ resource.service.name = "{SERVICE}" && span.memtrace.failure.type = "update" }}'
        wait_for(lambda: tempo.search(marked) == failing, "markers in Tempo")
        marked = '{ name = "memtrace.attribution update" && span.memtrace.failure.operation = "update_memory" }'
        wait_for(lambda: canary.fault.trace_id in tempo.search(marked), "the causing marker of the canary")
        yield Monitored(url, prometheus, alertmanager, messages, failing, frozenset(canary.traces()))


def otlp_environment(endpoint: str) -> dict[str, str]:
    """Return what sends a program's telemetry to an OTLP/HTTP endpoint."""
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}


def application(service: str, failures: int, good: int, *endpoints: str) -> frozenset[str]:
    """Run the application; return the ids of its failing traces."""
    command = [sys.executable, "-m", "tests.e2e.application", service, str(failures), str(good), *endpoints]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    return frozenset(done.stdout.split())


def prometheus_config(
    folder: Path, targets: Mapping[str, str], alertmanager: str = "", links: Mapping[str, str] | None = None
) -> Path:
    """The file of deploy/ with other addresses and intervals; the rules are those files themselves.

    `targets` are the addresses to scrape by job, other jobs are left out.
    """
    source = DEPLOY / "prometheus" / "prometheus.yml"
    config = yaml.safe_load(source.read_text())
    config["global"] |= {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL, "evaluation_interval": INTERVAL}
    config["global"]["external_labels"] |= links or {}
    config["rule_files"] = [str(source.parent / name) for name in config["rule_files"]]
    config["alerting"]["alertmanagers"] = [{"static_configs": [{"targets": [alertmanager]}]}]
    config["scrape_configs"] = [job for job in config["scrape_configs"] if job["job_name"] in targets]
    assert len(config["scrape_configs"]) == len(targets)
    for job in config["scrape_configs"]:
        job |= {"scrape_interval": INTERVAL, "static_configs": [{"targets": [targets[job["job_name"]]]}]}
    return _written(folder / "prometheus.yml", config)


def _alertmanager_config(folder: Path, messages: Messages) -> Path:
    source = DEPLOY / "alertmanager" / "alertmanager.yml"
    config = yaml.safe_load(source.read_text().replace("localhost:5001", messages.address))
    config["templates"] = [str(source.parent / name) for name in config["templates"]]
    config["route"] |= {"group_wait": "0s", "group_interval": "1s"}
    return _written(folder / "alertmanager.yml", config)


def _written(path: Path, config: Mapping[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(config))
    return path


@contextmanager
def _receiving() -> Iterator[Messages]:
    messages = Messages()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            messages.received.setdefault(self.path, []).append(body)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    messages.address = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield messages
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
