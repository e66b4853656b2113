"""The canary through a real path (gateway, `serve`, backend) of which one part after another is dead."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from tests.e2e.backends import Backend
from tests.e2e.backends.jaeger import Jaeger, running_jaeger
from tests.e2e.backends.service import free_ports, running, wait_for
from tests.e2e.backends.tempo import running_tempo
from tests.e2e.collector.processes import Collector, Serve

PATIENT, LONG_ENOUGH, IMPATIENT = 90, 20, 8
"""Seconds: until a verdict must have come, in which one comes, and until one that cannot come is given up."""


@dataclass(frozen=True)
class Way:
    """Application -> gateway -> backend and `serve`, whose verdicts go through the gateway, too."""

    gateway: Collector
    serve: Serve
    backend: Backend
    source: str

    def command(self, timeout: float, *options: str) -> list[str]:
        return [
            *(sys.executable, "-m", "memtrace_otel.cli", "canary", "--otlp-endpoint", f"http://{self.gateway.otlp}"),
            *("--source", self.source, "--timeout", str(timeout), *options),
        ]

    def fly(self, timeout: float, *options: str) -> tuple[int, str]:
        """Return the exit status and what is said."""
        done = subprocess.run(self.command(timeout, *options), env=quiet(), capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr


def quiet() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}


@contextmanager
def flyway(folder: Path, backend: Backend, source: str, *overlays: Path, sends: bool = True) -> Iterator[Way]:
    """The way to this backend, through a gateway with these overlays; `serve` only makes verdicts unless it `sends`."""
    (port,) = free_ports(1)
    otlp = f"127.0.0.1:{port}"
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{otlp}"} if sends else {}
    serve = Serve(folder, MEMTRACE_QUIET_SECONDS=1, **endpoint)
    names = {"BACKEND_OTLP": backend.otlp_grpc.removeprefix("http://"), "MEMTRACE_SERVE": serve.otlp}
    gateway = Collector(folder, "gateway", "redaction", *overlays, name="gateway", COLLECTOR_OTLP_GRPC=otlp, **names)
    with running(serve), running(gateway):
        yield Way(gateway, serve, backend, source)


@pytest.fixture(scope="module", params=["jaeger", "tempo"])
def way(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Way]:
    """Backends of its own: they are killed."""
    kind: Literal["jaeger", "tempo"] = request.param
    folder = tmp_path_factory.mktemp(kind)
    with (
        running_jaeger(folder) if kind == "jaeger" else running_tempo(folder) as backend,
        flyway(folder, backend, f"{kind}+{backend.url}") as way,
    ):
        yield way


def test_what_works_is_status_0_and_what_is_dead_is_named(way: Way) -> None:
    status, told = way.fly(PATIENT)
    assert (status, "update by span" in told) == (0, True), told
    wait_for(lambda: bool(way.backend.failing("memtrace-attribution", "update")), "the failing trace in a search")
    shown = way.backend.failing("memtrace-attribution", "update")
    assert [warning for trace_id in shown for warning in way.backend.warnings(trace_id)] == []

    way.serve.stop()
    status, told = way.fly(IMPATIENT)
    assert (status, "lost at stage verdict" in told) == (1, True), told

    way.serve.start()
    way.backend.service.kill()
    status, told = way.fly(IMPATIENT)
    assert (status, "lost at stage store" in told, "cannot be read" in told) == (1, True, True), told

    way.backend.service.start()
    way.gateway.kill()
    status, told = way.fly(IMPATIENT)
    assert (status, "lost at stage send" in told) == (1, True), told

    way.gateway.start()
    status, told = way.fly(PATIENT)
    assert status == 0, told


def test_a_verdict_that_serve_does_not_send_is_lost_at_verdict(jaeger: Jaeger, tmp_path: Path) -> None:
    with flyway(tmp_path, jaeger, f"jaeger+{jaeger.url}", sends=False) as way:
        assert_lost(way, "verdict", "OTEL_EXPORTER_OTLP_ENDPOINT there")
        assert way.serve.failures() == 1


@pytest.mark.parametrize(
    ("stage", "pipeline", "condition", "told"),
    [
        (
            "marker",
            "traces: {processors: [memory_limiter, redaction, transform/contents, fit, filter/lost]}",
            'scope.name == "memtrace_otel.attribution" and resource.attributes["service.name"] == "memtrace-canary"',
            "the verdict is there, its marker in the failing trace",
        ),
        (
            "match",
            "traces/memory: {processors: [transform/mark, filter/memory, transform/unmark, filter/lost]}",
            'span.attributes["memtrace.op.kind"] == "update"',
            "not update by span",
        ),
    ],
    ids=["marker", "match"],
)
def test_what_a_collector_drops_is_lost_at_its_stage(
    stage: str, pipeline: str, condition: str, told: str, jaeger: Jaeger, tmp_path: Path
) -> None:
    """`marker`: the span that a verdict adds to the failing trace; `match`: the decisive operation, before `serve`."""
    lost = tmp_path / "lost.yaml"
    lost.write_text(
        f"processors: {{filter/lost: {{trace_conditions: ['{condition}']}}}}\nservice: {{pipelines: {{{pipeline}}}}}\n"
    )
    with flyway(tmp_path, jaeger, f"jaeger+{jaeger.url}", lost) as way:
        assert_lost(way, stage, told)


def assert_lost(way: Way, stage: str, told: str) -> None:
    """Fly once, long enough for a verdict to come: status and message name the stage."""
    status, said = way.fly(LONG_ENOUGH)
    assert (status, f"lost at stage {stage} " in said, told in said) == (1, True, True), said


def test_it_flies_again_and_again_and_ends_as_its_last_flight(way: Way, tmp_path: Path) -> None:
    log = tmp_path / "log"

    def said(text: str, times: int = 1) -> bool:
        return log.read_text().count(text) >= times

    with log.open("w") as output:
        command = way.command(3 * IMPATIENT, "--interval", "0.5")
        process = subprocess.Popen(command, env=quiet(), stdout=output, stderr=output)
    try:
        wait_for(lambda: said("read back after", 2), "two flights")
        way.serve.stop()
        wait_for(lambda: said("lost at stage verdict"), "a lost flight")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 1
        way.serve.start()
    finally:
        process.kill()
        process.wait()


def test_a_source_or_receiver_that_is_none_is_bad_input(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "memtrace_otel.cli", "canary", "--source"]
    done = subprocess.run([*command, "jaeger+http://127.0.0.1:9"], env=quiet(), capture_output=True, text=True)
    assert (done.returncode, "--otlp-endpoint" in done.stderr) == (2, True)
    endpoint = ["--otlp-endpoint", "http://127.0.0.1:9"]
    done = subprocess.run([*command, "zipkin", *endpoint], env=quiet(), capture_output=True, text=True)
    assert (done.returncode, "'zipkin': the address must begin with" in done.stderr) == (2, True)
