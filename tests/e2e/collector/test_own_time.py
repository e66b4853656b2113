"""What telemetry takes of an application's time while the Collector is dead: a real Mem0, beside one without."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from memtrace_otel.demo.model import ScriptedModel
from memtrace_otel.demo.model_server import serving
from memtrace_otel.demo.script import load_script
from memtrace_otel.launch import find_program
from tests.e2e.backends.service import free_ports, running
from tests.e2e.collector.processes import Collector

_ROUNDS = 5
_MODEL_SECONDS = 0.5
"""What a small model takes for a short reply."""
_BAR = 1.05


class Model(ScriptedModel):
    """Takes its time, as models do."""

    def reply(self, messages: Sequence[Mapping[str, str]]) -> str:
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


@pytest.mark.timed
def test_the_collector_is_dead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Printed, not judged: another process on the machine would decide."""
    port, gateway_port = free_ports(2)  # nobody listens there
    agent = Collector(tmp_path, "agent", "redaction", GATEWAY_OTLP=f"127.0.0.1:{gateway_port}")
    observed = {
        "OTEL_SERVICE_NAME": "assistant",
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
    }
    endpoints = {"alive": f"http://{agent.otlp}", "dead": f"http://127.0.0.1:{port}"}
    with ExitStack() as stack:
        stack.enter_context(running(agent))
        server = stack.enter_context(serving(Model(load_script(()), lambda entry: None)))
        model = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "none", "NO_PROXY": "127.0.0.1"}
        workers = {"none": stack.enter_context(worker(tmp_path / "none", False, model))}
        for name, endpoint in endpoints.items():
            spool = str(tmp_path / f"spool-{name}")
            environ = {**model, **observed, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "MEMTRACE_SPOOL_DIR": spool}
            workers[name] = stack.enter_context(worker(tmp_path / name, True, environ))
        rounds = [{name: play(process) for name, process in workers.items()} for _ in range(_ROUNDS)]
    assert [path for path in (tmp_path / "spool-dead").rglob("*") if path.is_file()], "nothing waits for the Collector"
    lines = [
        told("Collector dead / no telemetry, wall", rounds, "dead", "none", 0, _BAR),
        told("Collector dead / no telemetry, CPU of the process", rounds, "dead", "none", 1),
        told("Collector dead / alive, wall", rounds, "dead", "alive", 0),
        told("Collector dead / alive, CPU of the process", rounds, "dead", "alive", 1),
    ]
    with capsys.disabled():
        print("\n" + "\n".join(lines))


def told(what: str, rounds: list[dict[str, tuple[float, float]]], one: str, other: str, at: int, bar: float = 0) -> str:
    """A line with the median of the ratios of the rounds."""
    ratio = statistics.median(times[one][at] / times[other][at] for times in rounds)
    first, second = (statistics.median(times[name][at] for times in rounds) * 1000 for name in (one, other))
    judged = f"; bar: {bar}, {'holds' if ratio <= bar else 'FALLS SHORT'}" if bar else ""
    return f"application's own time, {what}: {ratio:.3f} ({first:.0f} / {second:.0f} ms a round{judged})"
