"""Metrics go where the environment says."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import pytest

PROGRAM = """
import logging, sys
logging.basicConfig()
from memtrace_otel.annotate import AttributionMetrics
from memtrace_otel.pipeline.export_metrics import export_metrics
print("set up:", export_metrics(*sys.argv[1:]))
AttributionMetrics().failed(1)
"""


def run(*instance: str, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    command = [sys.executable, "-c", PROGRAM, *instance]
    return subprocess.run(command, capture_output=True, text=True, env={**clean, **environ}, check=True)


def test_the_named_exporter_gets_what_was_recorded_before_the_end() -> None:
    done = run(OTEL_METRICS_EXPORTER="console")
    assert "set up: True" in done.stdout
    assert '"memtrace.attribution.runs"' in done.stdout
    assert '"memtrace-attribution"' in done.stdout


def test_the_service_is_named_by_the_environment() -> None:
    assert '"service.name": "verdicts"' in run(OTEL_METRICS_EXPORTER="console", OTEL_SERVICE_NAME="verdicts").stdout


def test_an_instance_that_outlives_the_process_is_named_unless_the_environment_does() -> None:
    assert '"service.instance.id": "host"' in run("host", OTEL_METRICS_EXPORTER="console").stdout
    named = {"OTEL_RESOURCE_ATTRIBUTES": "service.instance.id=job"}
    assert '"service.instance.id": "job"' in run("host", OTEL_METRICS_EXPORTER="console", **named).stdout


@pytest.mark.parametrize(
    "environ", [{}, {"OTEL_METRICS_EXPORTER": "none"}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}]
)
def test_nothing_is_set_up_unless_asked(environ: dict[str, str]) -> None:
    done = run(**environ)
    assert (done.stdout, done.stderr) == ("set up: False\n", "")


def test_an_exporter_that_is_not_there_is_named() -> None:
    done = run(OTEL_METRICS_EXPORTER="carbon,console")
    assert "OTEL_METRICS_EXPORTER names 'carbon': no such exporter is installed" in done.stderr
    assert "memtrace.attribution.runs" in done.stdout


def test_a_receiver_that_says_nothing_does_not_hold_up_the_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        environ = {"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
        environ |= {"OTEL_EXPORTER_OTLP_TIMEOUT": "60"}
        environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        done = run(**environ)
    assert "set up: True" in done.stdout
    assert time.monotonic() - began < 20
