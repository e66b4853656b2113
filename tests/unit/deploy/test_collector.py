"""What the configurations of `collector/` share stands in several of them: it has to be the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from memtrace_otel import semconv

FOLDER = Path(__file__).parents[3] / "collector"


def read(name: str) -> dict[str, Any]:
    return cast(dict[str, Any], yaml.safe_load((FOLDER / f"{name}.yaml").read_text("utf-8")))


NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem != "builder")
EXPORTERS = [
    pytest.param(settings, id=f"{name}/{exporter}")
    for name in NAMES
    for exporter, settings in read(name).get("exporters", {}).items()
    if exporter != "prometheus"
]


def test_agent_and_gateway_redact_alike() -> None:
    agent, gateway = read("agent")["processors"], read("gateway")["processors"]
    assert {name: gateway[name] for name in agent} == agent


def test_strings_and_arrays_are_redacted_alike() -> None:
    processors = read("gateway")["processors"]
    for group in processors["transform/contents"]["trace_statements"]:
        found = [re.search(r'"value", "(.*)", "\*{4}"', statement) for statement in group["statements"]]
        assert [one[1].replace("\\\\", "\\") for one in found if one] == processors["redaction"]["blocked_values"]


@pytest.mark.parametrize("settings", EXPORTERS)
def test_every_exporter_keeps_its_queue_on_disk_and_never_gives_up(settings: dict[str, Any]) -> None:
    assert settings["sending_queue"]["storage"].startswith("file_storage/")
    assert settings["retry_on_failure"]["max_elapsed_time"] == 0


@pytest.mark.parametrize("name", ["agent", "gateway", "kafka-consumer"])
def test_the_memory_limiter_comes_first(name: str) -> None:
    for pipeline in read(name)["service"]["pipelines"].values():
        if pipeline["receivers"] != ["isolate"]:  # what comes by it has passed one
            assert pipeline["processors"][0] == "memory_limiter"


@pytest.mark.parametrize("name", NAMES)
def test_listeners_are_on_loopback_unless_the_environment_says_otherwise(name: str) -> None:
    text = (FOLDER / f"{name}.yaml").read_text("utf-8")
    assert "0.0.0.0" not in text
    assert all(host.startswith("127.0.0.1") for host in re.findall(r"(?:endpoint|host): \$\{env:\w+:-(.*?)\}", text))


def test_names_are_those_of_the_wire() -> None:
    text = (FOLDER / "gateway.yaml").read_text("utf-8") + (FOLDER / "shards.yaml").read_text("utf-8")
    written = set(re.findall(r'"(memtrace[._][\w.-]+)"', text)) - {"memtrace-attribution"}
    known = {value for name, value in vars(semconv).items() if name.isupper() and isinstance(value, str)}
    assert written <= known
    (pattern,) = re.findall(r'gen_ai.operation.name"\], "\^(.*)\$\$"\)', text)
    assert {name for name in semconv.KIND_OF_OPERATION if re.fullmatch(pattern, name)} == {*semconv.KIND_OF_OPERATION}


def test_the_image_is_built_by_the_builder_of_the_same_version() -> None:
    version = read("builder")["dist"]["version"]
    assert f"cmd/builder@v{version} " in (FOLDER / "Dockerfile").read_text("utf-8")
    assert "path: ./isolate" in (FOLDER / "builder.yaml").read_text("utf-8")
