"""Zero code: what every program of a memory system finds recorded under `opentelemetry-instrument`.

    class TestOpenAI(LoadingContract):
        entry_point = "memtrace_openai"
        operations = frozenset({("openai", "chat stub")})
        source = "import openai ..."

The program runs in a process of its own and prints "done" at its end; it says nothing of us.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from memtrace_otel.model import OperationSpan
from memtrace_otel.sources import SqliteStore

ROOT = Path(__file__).parents[2]
YAML = """
file_format: "1.0"
resource:
  attributes:
    - {{name: service.name, value: by-file}}
tracer_provider:
  processors:
    - batch: {{exporter: {{memtrace: {{path: "{database}"}}}}}}
instrumentation/development:
  python:
    {entry_point}: {{{options}}}
"""
BY_ENVIRONMENT = {
    "OTEL_TRACES_EXPORTER": "memtrace",
    "OTEL_METRICS_EXPORTER": "none",
    "OTEL_LOGS_EXPORTER": "none",
    "OTEL_SERVICE_NAME": "by-environment",
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
}


class LoadingContract:
    """The subclass has the program, and a fixture `url`."""

    entry_point: ClassVar[str]
    operations: ClassVar[frozenset[tuple[str, str]]]
    """System and name of the spans that a run leaves at least; no span of these systems is left when it is off."""
    source: ClassVar[str]

    @pytest.fixture
    def program(self, url: str, tmp_path: Path) -> Program:
        """The program in a folder of its own, with an environment that says nothing of OpenTelemetry."""
        (tmp_path / "app.py").write_text(self.source)
        ours = ("OTEL_", "MEMTRACE_", "OPENAI_", "LANGCHAIN_", "LANGSMITH_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        paths = [str(ROOT), *filter(None, [kept.get("PYTHONPATH")])]
        return Program(tmp_path, kept | self.environment(url, tmp_path) | {"PYTHONPATH": os.pathsep.join(paths)})

    def environment(self, url: str, folder: Path) -> dict[str, str]:
        """What the program itself reads."""
        return {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}

    def test_it_is_loaded_by_environment(self, program: Program) -> None:
        self.check(program.run(BY_ENVIRONMENT), "by-environment")

    def test_it_is_loaded_by_file(self, program: Program) -> None:
        self.check(program.run(program.file(self.entry_point, "capture_content: SPAN_ONLY")), "by-file")

    def test_it_is_switched_off_by_environment(self, program: Program) -> None:
        off = {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": self.entry_point}
        assert self.ours(program.run(BY_ENVIRONMENT | off)) == []

    def test_it_is_switched_off_by_file(self, program: Program) -> None:
        assert self.ours(program.run(program.file(self.entry_point, "enabled: false"))) == []

    def check(self, found: list[OperationSpan], service: str) -> None:
        """The operations are there, of this service, with contents."""
        ours = self.ours(found)
        names = {(span.system, span.name) for span in ours}
        assert names & self.operations == self.operations, names
        assert {span.service for span in found} == {service}
        assert any(variable.content for span in ours for variable in (*span.inputs, *span.outputs))

    def ours(self, found: list[OperationSpan]) -> list[OperationSpan]:
        """The spans of the systems that the instrumentor speaks for."""
        systems = {system for system, _ in self.operations}
        return [span for span in found if span.system in systems]


class Program:
    """`app.py` in its folder."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder, self.environment = folder, dict(environment)
        self.database = folder / "memtrace.db"

    def file(self, entry_point: str, options: str) -> dict[str, str]:
        """The environment that names a configuration file with these options of an instrumentor."""
        file = self.folder / "otel.yaml"
        file.write_text(YAML.format(database=self.database, entry_point=entry_point, options=options))
        return {"OTEL_CONFIG_FILE": str(file)}

    def run(self, environment: Mapping[str, str]) -> list[OperationSpan]:
        """What was recorded of one run."""
        started = "from opentelemetry.instrumentation.auto_instrumentation import run; run()"
        done = subprocess.run(
            [sys.executable, "-c", started, sys.executable, "app.py"],
            cwd=self.folder,
            env=self.environment | {"MEMTRACE_DB": str(self.database)} | dict(environment),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode, done.stdout.split()[-1:]) == (0, ["done"]), done.stderr[-3000:]
        if not self.database.exists():
            return []
        with SqliteStore.open(self.database, create=False) as store:
            return list(store.spans())
