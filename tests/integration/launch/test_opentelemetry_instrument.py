"""Zero code: `opentelemetry-instrument` in its own process, by environment and by OTEL_CONFIG_FILE, on a real Mem0."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.configuration import load_config_file

from memtrace_otel import settings
from memtrace_otel.model import OperationSpan
from memtrace_otel.sources import SqliteStore
from tests.integration.model_stub import DIMENSIONS, ModelStub

PROGRAM = """
import json, sys
from mem0 import Memory

memory = Memory.from_config(json.load(open("mem0.json")))
memory.add([{"role": "user", "content": "My train leaves at 9:40."}], user_id="ana")
owner = {"filters": {"user_id": "ana"}} if "--v2" in sys.argv else {"user_id": "ana"}
print(bool(memory.search("When does my train leave?", **owner)["results"]))
"""
YAML = """
file_format: "1.0"
resource:
  attributes:
    - {{name: service.name, value: from-file}}
tracer_provider:
  processors:
    - batch: {{exporter: {{memtrace: {{path: "{path}"}}}}}}
instrumentation/development:
  python:
    memtrace_mem0: {{{options}}}
"""
SAID = "My train leaves at 9:40."


@pytest.fixture
def model() -> Iterator[ModelStub]:
    with ModelStub() as stub:
        yield stub


@pytest.fixture
def environ(tmp_path: Path, model: ModelStub) -> dict[str, str]:
    """`app.py` and its configuration in `tmp_path`, and an environment that says nothing of OpenTelemetry."""
    llm = {"model": "stub", "api_key": "none", "openai_base_url": model.url}
    store = {"path": str(tmp_path / "qdrant"), "collection_name": "notes", "embedding_model_dims": DIMENSIONS}
    config = {
        "llm": {"provider": "openai", "config": llm},
        "embedder": {"provider": "openai", "config": llm | {"embedding_dims": DIMENSIONS}},
        "vector_store": {"provider": "qdrant", "config": store | {"on_disk": True}},
        "history_db_path": str(tmp_path / "history.db"),
    }
    (tmp_path / "mem0.json").write_text(json.dumps(config))
    (tmp_path / "app.py").write_text(PROGRAM)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "MEMTRACE_", "OPENAI_"))}
    return kept | {
        "MEM0_TELEMETRY": "False",
        "MEM0_DIR": str(tmp_path / "mem0"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }


def opentelemetry_instrument(folder: Path, environ: dict[str, str]) -> str:
    """Run the program; return what OpenTelemetry logged."""
    started = "from opentelemetry.instrumentation.auto_instrumentation import run; run()"
    arguments = ["--v2"] if _is_v2() else []
    command = [sys.executable, "-c", started, sys.executable, "app.py", *arguments]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "True"), done.stderr
    return done.stderr


def _is_v2() -> bool:
    from importlib.metadata import version

    return not version("mem0ai").startswith("1.")


def spans(database: Path) -> dict[str, OperationSpan]:
    with SqliteStore.open(database, create=False) as store:
        return {span.name: span for span in store.spans()}


def contents(found: dict[str, OperationSpan]) -> set[str]:
    return {variable.content for span in found.values() for variable in (*span.inputs, *span.outputs)} - {""}


def test_by_environment(environ: dict[str, str], tmp_path: Path) -> None:
    environ |= {
        "OTEL_TRACES_EXPORTER": "memtrace",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        "OTEL_SERVICE_NAME": "from-environment",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
        "MEMTRACE_DB": "by-environment.db",
        "MEMTRACE_PREVIEW_BYTES": "8",
    }
    said = opentelemetry_instrument(tmp_path, environ)
    found = spans(tmp_path / "by-environment.db")
    assert {"upsert_memory", "search_memory"} <= set(found)
    assert {span.service for span in found.values()} == {"from-environment"}
    assert SAID[:8] in contents(found)
    assert max(len(content.encode()) for content in contents(found)) <= 8
    assert "memtrace" not in said


def test_by_configuration_file(environ: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "otel.yaml"
    file.write_text(YAML.format(path=tmp_path / "by-file.db", options="capture_content: SPAN_ONLY, preview_bytes: 8"))
    environ |= {
        "OTEL_CONFIG_FILE": str(file),
        "OTEL_TRACES_EXPORTER": "console",  # ignored, as the file decides
        "MEMTRACE_DB": "by-environment.db",
        "MEMTRACE_PREVIEW_BYTES": "4",  # the file wins
    }
    said = opentelemetry_instrument(tmp_path, environ)
    assert "already instrumented" not in said
    found = spans(tmp_path / "by-file.db")
    assert {"upsert_memory", "search_memory"} <= set(found)
    assert {span.service for span in found.values()} == {"from-file"}
    assert SAID[:8] in contents(found)
    assert max(len(content.encode()) for content in contents(found)) <= 8
    assert not (tmp_path / "by-environment.db").exists()


def test_an_option_that_cannot_be_used_is_told_and_harms_nothing(environ: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "otel.yaml"
    options = "capture_content: SPAN_ONLY, preview_bytes: many"
    file.write_text(YAML.format(path=tmp_path / "by-file.db", options=options))
    said = opentelemetry_instrument(tmp_path, environ | {"OTEL_CONFIG_FILE": str(file)})
    assert "preview_bytes (MEMTRACE_PREVIEW_BYTES) takes a whole number of at least 1, not 'many'" in said
    assert SAID in contents(spans(tmp_path / "by-file.db"))


def test_run_does_the_same_in_one_command(environ: dict[str, str], tmp_path: Path) -> None:
    arguments = [sys.executable, "app.py", *(["--v2"] if _is_v2() else [])]
    command = [sys.executable, "-m", "memtrace_otel.cli", "run", "--content", "--", *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "True"), done.stderr
    assert "operations of mem0" in done.stderr
    found = spans(tmp_path / "memtrace.db")
    assert {"upsert_memory", "search_memory"} <= set(found)
    assert SAID in contents(found)


def test_the_blocks_of_the_guide_to_an_own_memory_can_be_typed(environ: dict[str, str], tmp_path: Path) -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guide" / "own-memory.md").read_text("utf-8")
    (tmp_path / "typed.py").write_text("".join(re.findall(r"```python\n(.*?)```", guide, re.DOTALL)))
    command = [sys.executable, "-m", "memtrace_otel.cli", "run", "--", sys.executable, "typed.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = spans(tmp_path / "memtrace.db")
    assert {"update_memory", "memtrace.extract"} <= set(found)
    assert found["memtrace.extract"].scope == found["update_memory"].scope != ""


def test_the_examples_of_the_guide_work(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guide" / "configuration.md").read_text("utf-8")
    [python], [yaml] = (re.findall(rf"```{kind}\n(.*?)```", guide, re.DOTALL) for kind in ("python", "yaml"))
    exec(python, {})
    file = tmp_path / "otel.yaml"
    file.write_text(yaml)
    assert load_config_file(file).instrumentation_development.python["memtrace_openai"]["preview_bytes"] == 500
    settings.override(dict.fromkeys(settings.NAMES))
