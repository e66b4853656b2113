"""The compose files against the schema of the compose specification, and what their Collectors start with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from tests.e2e.backends.collector import complaints
from tests.e2e.backends.service import ROOT, installed

FILES = sorted((ROOT / "deploy" / "compose").glob("*.yaml"))


@pytest.fixture(scope="module")
def schema() -> Any:
    return Draft7Validator(json.loads(installed("compose-spec").read_text("utf-8")))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_is_valid(path: Path, schema: Any) -> None:
    assert [error.message for error in schema.iter_errors(yaml.safe_load(path.read_text("utf-8")))] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_configurations_of_a_collector_are_valid_together(path: Path) -> None:
    services = yaml.safe_load(path.read_text("utf-8"))["services"]
    commands = [
        one["command"] for one in services.values() if any("/etc/collector/" in a for a in one.get("command", ()))
    ]
    assert commands
    for command in commands:
        assert complaints(*(option.replace("/etc/collector", str(ROOT / "collector")) for option in command)) == ""


def test_a_misspelt_key_is_found(schema: Any) -> None:
    assert list(schema.iter_errors({"services": {"pod": {"image": "pause", "prots": []}}}))
