"""Checks of a program's set-up, judged from observed facts."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from memtrace_otel.doctor import State, judge
from memtrace_otel.doctor.checks import GEVENT
from memtrace_otel.doctor.program import Exporter, Instrumentor, Package, SettingValue
from memtrace_otel.settings import CAPTURE_CONTENT
from memtrace_otel.version import __version__
from tests.unit.doctor.conftest import MakeProgram, one

MEM0 = "instrumentor memtrace_mem0"
OTHER = "opentelemetry-instrumentation-mem0"


def test_a_right_program_has_no_problem_and_no_warning(program: MakeProgram) -> None:
    assert {finding.state for finding in judge(program())} == {State.OK}


@pytest.mark.parametrize(
    ("changes", "check", "state", "found", "remedy"),
    [
        ({"version": (3, 10, 2)}, "python", State.PROBLEM, "3.10.2", "python3.11"),
        ({"packages": {}}, "packages", State.PROBLEM, "not installed", "pip install"),
        (
            {"packages": {"memtrace-otel": Package(__version__, ["opentelemetry-sdk>=1.43"])}},
            "packages",
            State.PROBLEM,
            "opentelemetry-sdk>=1.43",
            "pip install",
        ),
        (
            {
                "packages": {
                    "memtrace-otel": Package("0.0.9", []),
                    "opentelemetry-sdk": Package("1.45.1", []),
                    "mem0ai": Package("2.2.1", []),
                }
            },
            "packages",
            State.WARNING,
            "0.0.9",
            f"=={__version__}",
        ),
        ({"environ": {"OTEL_SDK_DISABLED": " True "}}, "sdk", State.PROBLEM, "switches", "unset OTEL_SDK_DISABLED"),
        ({"environ": {"OTEL_CONFIG_FILE": "/nowhere.yaml"}}, "config file", State.PROBLEM, "not installed", "[config]"),
        ({"instrumentors": []}, "instrumentors", State.PROBLEM, "none is registered", "--force-reinstall"),
        (
            {"instrumentors": [Instrumentor("memtrace_mem0", "memtrace-otel", ["mem0ai>=3"])]},
            MEM0,
            State.PROBLEM,
            "2.2.1 is outside",
            "'mem0ai>=3'",
        ),
        (
            {"instrumentors": [Instrumentor("memtrace_mem0", "memtrace-otel", [], error="ImportError: no")]},
            MEM0,
            State.PROBLEM,
            "ImportError: no",
            "-U memtrace-otel",
        ),
        (
            {
                "instrumentors": [Instrumentor("memtrace_mem0", "memtrace-otel", ["mem0ai>=1.0"])],
                "environ": {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "memtrace_mem0,redis"},
            },
            MEM0,
            State.PROBLEM,
            "DISABLED_INSTRUMENTATIONS names",
            "INSTRUMENTATIONS=redis",
        ),
        ({"sdk": False, "provider": "shop.Provider"}, "provider", State.PROBLEM, "shop.Provider", "memtrace-otel run"),
        (
            {
                "log": ["Failed to auto initialize OpenTelemetry: unknown 'nosuch'"],
                "environ": {"OTEL_TRACES_EXPORTER": "nosuch"},
            },
            "provider",
            State.PROBLEM,
            "unknown 'nosuch'",
            "unset OTEL_TRACES_EXPORTER",
        ),
        ({"exporters": []}, "exporter", State.PROBLEM, "drops every span", "OTEL_TRACES_EXPORTER=memtrace"),
        (
            {"exporters": [Exporter("ConsoleSpanExporter")], "environ": {"OTEL_TRACES_EXPORTER": "console"}},
            "exporter",
            State.WARNING,
            "ConsoleSpanExporter",
            "=console,memtrace",
        ),
        ({"kept": 0.1, "sampler": "TraceIdRatioBased{0.1}"}, "sampler", State.PROBLEM, "10%", "OTEL_TRACES_SAMPLER"),
        (
            {"attributes": 10, "environ": {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "10"}},
            "limits",
            State.PROBLEM,
            "ATTRIBUTE_COUNT_LIMIT is 10",
            "unset OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
        ),
        ({"environ": {"MEMTRACE_DBB": "x.db"}}, "settings", State.WARNING, "MEMTRACE_DBB", "export MEMTRACE_DB="),
        (
            {"settings": {"preview_bytes": SettingValue("1900", "default", "takes a whole number, not 'many'")}},
            "settings",
            State.WARNING,
            "not 'many'; 1900 is used",
            "unset MEMTRACE_PREVIEW_BYTES",
        ),
        (
            {"settings": {CAPTURE_CONTENT.name: SettingValue("NO_CONTENT", "default")}},
            "content",
            State.WARNING,
            "no contents",
            "=SPAN_ONLY",
        ),
    ],
)
def test_each_fault_is_named_with_its_remedy(
    program: MakeProgram, changes: dict[str, Any], check: str, state: State, found: str, remedy: str
) -> None:
    finding = one(judge(program(**changes)), check)
    assert finding.state == state
    assert found in finding.found
    assert remedy in finding.remedy


def test_patches_of_gevent_come_first(program: MakeProgram) -> None:
    packages = {**program().packages, "gevent": Package("26.9.0", [])}
    found = one(judge(program(packages=packages)), "gevent")
    assert (found.state, found.remedy) == (State.WARNING, f"export {GEVENT}=patch_all")
    findings = judge(program(packages=packages, environ={GEVENT: "patch_all"}))
    assert "gevent" not in {finding.check for finding in findings}


def test_an_instrumentor_without_its_library_is_not_needed(program: MakeProgram) -> None:
    ours = [Instrumentor("memtrace_everos", "memtrace-otel", ["everos>=1.2"])]
    assert "memtrace_everos" in one(judge(program(instrumentors=ours)), "instrumentors").found


@pytest.mark.parametrize(("library", "state"), [("mem0ai", State.WARNING), ("openai", State.OK)])
def test_another_instrumentation_of_the_same_library(program: MakeProgram, library: str, state: State) -> None:
    there = program()
    found = judge(
        program(
            packages={
                **there.packages,
                "openai": Package("3.0.0", []),
                OTHER: Package("1.0", [f"{library}; extra == 'instruments'"]),
            },
            instrumentors=[
                *there.instrumentors,
                Instrumentor("memtrace_openai", "memtrace-otel", ["openai>=1.66"], active=True),
                Instrumentor("other", OTHER),
            ],
        )
    )
    assert one(found, "instrumentation other").state == state


def test_a_remedy_for_a_configuration_file_is_an_edit_of_the_file(program: MakeProgram, tmp_path: Path) -> None:
    file = tmp_path / "otel.yaml"
    file.touch()
    packages = {**program().packages, "opentelemetry-configuration": Package("0.66b0", [])}
    found = judge(program(environ={"OTEL_CONFIG_FILE": str(file)}, packages=packages, exporters=[]))
    assert one(found, "config file").state == State.OK
    assert one(found, "exporter").remedy.startswith(f"${{EDITOR:-vi}} {file}")


@pytest.mark.parametrize(
    ("size", "age", "limit", "state"),
    [(10, 0, 1000, State.OK), (10, 3600, 1000, State.WARNING), (950, 0, 1000, State.PROBLEM)],
)
def test_spans_that_wait_on_disk(
    program: MakeProgram, tmp_path: Path, size: int, age: float, limit: int, state: State
) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    path = folder / "1-1-1.spool"
    path.write_bytes(bytes(size))
    os.utime(path, (time.time() - age,) * 2)
    values = {**program().settings, "spool_bytes": SettingValue(str(limit), "environment")}
    assert one(judge(program(settings=values)), "spool").state == state
