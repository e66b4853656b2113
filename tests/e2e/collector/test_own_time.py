"""What telemetry takes of an application's time while the Collector is dead: a real Mem0, beside one without telemetry."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from memtrace_otel.demo.model import ScriptedModel
from memtrace_otel.demo.model_server import serving
from memtrace_otel.demo.script import load_script
from memtrace_otel.launch import find_program
from tests.e2e.backends.service import free_ports

_ROUNDS = 8
_MODEL_SECONDS = 0.5
"""What a small model takes for a short reply."""
_BAR = 1.05


class Model(ScriptedModel):
    """Takes its time, as models do."""

    def reply(self, messages: list[dict[str, str]]) -> str:
        time.sleep(_MODEL_SECONDS)
        return super().reply(messages)


@contextmanager
def worker(folder: Path, observed: bool, environ: Mapping[str, str]) -> Generator[subprocess.Popen[str]]:
    folder.mkdir()
    program = [sys.executable, str(Path(__file__).with_name("worker.py")), str(folder)]
    command = find_program(program).observed_command if observed else program
    names = {"MEM0_TELEMETRY": "False", "MEM0_DIR": str(folder / "mem0"), "HF_HUB_OFFLINE": "1"}
    with (folder / "worker.log").open("wb") as errors:
        process = subprocess.Popen(
            command,
            env={**os.environ, **environ, **names},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def play(process: subprocess.Popen[str]) -> tuple[float, float]:
    """Wall and CPU seconds of one round."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    wall, cpu = json.loads(process.stdout.readline())
    return wall, cpu


def test_the_collector_is_dead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Printed, not judged: another process on the machine would decide."""
    (port,) = free_ports(1)  # nobody listens there
    dead = {
        "OTEL_SERVICE_NAME": "assistant",
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
        "MEMTRACE_SPOOL_DIR": str(tmp_path / "spool"),
    }
    with ExitStack() as stack:
        server = stack.enter_context(serving(Model(load_script(()), lambda entry: None)))
        model = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "none", "NO_PROXY": "127.0.0.1"}
        plain = stack.enter_context(worker(tmp_path / "plain", False, model))
        observed = stack.enter_context(worker(tmp_path / "observed", True, model | dead))
        rounds = [(play(plain), play(observed)) for _ in range(_ROUNDS)]
    assert list((tmp_path / "spool").rglob("*")), "nothing waits for the Collector: what was measured?"
    for name, at in (("wall", 0), ("CPU", 1)):
        ratio = statistics.median(theirs[at] / own[at] for own, theirs in rounds)
        own, theirs = (statistics.median(pair[which][at] for pair in rounds) for which in (0, 1))
        with capsys.disabled():
            print(
                f"\napplication's own time, Collector dead / no telemetry, {name}: {ratio:.3f} "
                f"({theirs * 1000:.0f} / {own * 1000:.0f} ms a round; bar: {_BAR}, "
                f"{'holds' if ratio <= _BAR else 'FALLS SHORT'})"
            )
