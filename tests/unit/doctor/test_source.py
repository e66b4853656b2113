"""A program that comes by nothing that is watched, or starts a Python that is not: seen in its files."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from memtrace_otel.doctor import Finding, ObservedProgram, State, examine
from memtrace_otel.doctor.program import Instrumentor, Package, SettingValue
from memtrace_otel.doctor.source import check_source
from tests.unit.doctor.conftest import one


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


PROGRAM = ObservedProgram(
    environ={},
    python=Path("python"),
    version=(3, 11),
    packages={"memtrace-otel": Package("0.1.0", ())},
    instrumentors=[Instrumentor("memtrace_mem0", "memtrace-otel", ["mem0ai>=1"], True, "", ["mem0"])],
    settings={},
    log=(),
)


def of(*files: tuple[str, str], command: tuple[str, ...] = ("python", "app.py")) -> list[Finding]:
    for name, text in files:
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
    return list(check_source(replace(PROGRAM, command=command)))


def test_a_program_that_uses_no_memory_is_named() -> None:
    [found] = of(("app.py", "import json\nprint(json)"))
    assert (found.check, found.state) == ("program", State.PROBLEM)
    assert "app.py imports nothing that is watched here (mem0, memtrace_otel)" in found.found
    assert found.remedy.startswith("${EDITOR:-vi} app.py")


@pytest.mark.parametrize(
    "files",
    [
        [("app.py", "def main():\n    from mem0 import Memory")],
        [("app.py", "import shop.memory"), ("shop/__init__.py", ""), ("shop/memory.py", "import mem0.client")],
        [
            ("app.py", "from shop import memory"),
            ("shop/memory.py", "from . import notes"),
            ("shop/notes.py", "import mem0"),
        ],
        [("app.py", "from memtrace_otel import operation")],
    ],
)
def test_what_is_watched_is_found_in_the_files_beside_the_script(files: list[tuple[str, str]]) -> None:
    [found] = of(*files)
    assert found.state == State.OK
    assert "app.py imports mem" in found.found


def test_a_module_is_read_as_well() -> None:
    [found] = of(("shop/agent.py", "import json"), command=("python", "-m", "shop.agent"))
    assert (found.state, "shop/agent.py" in found.found) == (State.PROBLEM, True)


@pytest.mark.parametrize("code", ["import crewai", "exec(open('x').read())", "import subprocess", "import importlib"])
def test_what_cannot_be_seen_is_no_problem(code: str) -> None:
    [found] = of(("app.py", code))
    assert (found.state, "not looked at" in found.found) == (State.OK, True)


def test_warnings_of_its_text_are_the_programs() -> None:
    with warnings.catch_warnings(action="error"):
        [found] = of(("app.py", "import mem0\nprint('\\d')"))
    assert found.found == "app.py imports mem0"


@pytest.mark.parametrize("command", [("uvicorn", "shop:app"), ("python", "-m", "pytest"), ()])
def test_a_program_without_a_file_here_has_no_finding(command: tuple[str, ...]) -> None:
    assert of(command=command) == []


@pytest.mark.parametrize(
    ("call", "option"),
    [
        ('subprocess.run([sys.executable, "-u", "-I", "worker.py"])', "-I"),
        ('subprocess.run(("/usr/bin/python3.12", "-ES", "worker.py"))', "-ES"),
        ('os.execl(sys.executable, "python", "-E", "worker.py")', "-E"),
        ('os.system("python -S worker.py")', "-S"),
    ],
)
def test_a_child_that_gets_nothing_of_the_environment_is_named(call: str, option: str) -> None:
    code = f"import os, subprocess, sys\n{call}"
    found = one(of(("app.py", code)), "child process")
    assert found.state == State.PROBLEM
    assert f"app.py:2 starts a Python with {option}," in found.found
    assert found.remedy == f"${{EDITOR:-vi}} +2 app.py  # leave {option} out"
    assert one(of(("app.py", f"import mem0\n{call}")), "child process").state == State.WARNING


def test_a_script_that_is_not_there_or_does_not_compile_is_named() -> None:
    [found] = of(command=("python", "gone.py"))
    assert (found.check, found.state, found.remedy) == ("program", State.PROBLEM, "find . -name gone.py")
    [found] = of(("app.py", "import mem0\ndef ("))
    assert found.found.startswith("app.py:2 does not compile: ")
    assert (found.state, found.remedy) == (State.PROBLEM, "python -m py_compile app.py")
    newer = replace(PROGRAM, command=("python", "app.py"), version=(9, 0))
    assert State.PROBLEM not in {finding.state for finding in check_source(newer)}


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ('subprocess.run([sys.executable, "app.py"], env={"PATH": "/bin"})', "without PYTHONPATH"),
        ('os.environ["PYTHONPATH"] = "src"', "sets PYTHONPATH anew"),
    ],
)
def test_a_child_that_loses_auto_instrumentation_is_named(code: str, said: str) -> None:
    found = one(of(("app.py", f"import mem0, os, subprocess, sys\n{code}")), "child process")
    assert (found.state, said in found.found) == (State.WARNING, True)
    assert found.remedy.startswith("${EDITOR:-vi} +2 app.py  # ")


@pytest.mark.parametrize(
    "code",
    [
        'subprocess.run([sys.executable, "app.py"], env={**os.environ, "A": "1"})',
        'subprocess.run([sys.executable, "app.py"], env=dict(os.environ))',
        'subprocess.run([sys.executable, "app.py"], env={"PYTHONPATH": os.environ["PYTHONPATH"]})',
        'subprocess.run(["ls"], env={"PATH": "/bin"})',
        'os.environ["PYTHONPATH"] = "src:" + os.environ["PYTHONPATH"]',
        "os.kill(9, 15)",
        "sys.exit(0)",
    ],
)
def test_what_keeps_auto_instrumentation_is_fine(code: str) -> None:
    assert [found.check for found in of(("app.py", f"import mem0, os, subprocess, sys\n{code}"))] == ["program"]


@pytest.mark.parametrize(
    ("code", "what", "write"),
    [
        ("os._exit(0)", "by os._exit", "force_flush()"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "by SIGKILL", "SIGTERM"),
        ("os.kill(os.getpid(), 9)", "by SIGKILL", "SIGTERM"),
    ],
)
def test_an_end_without_exit_handlers_is_named(code: str, what: str, write: str) -> None:
    found = one(of(("app.py", f"import mem0, os, signal\n{code}")), "program end")
    assert (found.state, f"app.py:2 ends a process {what}" in found.found) == (State.WARNING, True)
    assert found.remedy.startswith("${EDITOR:-vi} +2 app.py  # ")
    assert write in found.remedy


@pytest.mark.parametrize("words", ['"worker.py", "-I"', '"-m", "x", "-I"', '"-c", "-I"', '"-u", "worker.py"'])
def test_options_of_the_childs_program_are_its_own(words: str) -> None:
    found = of(("app.py", f"import subprocess, sys\nsubprocess.run([sys.executable, {words}])"))
    assert [finding.check for finding in found] == ["program"]


OWN_PROVIDER = "import mem0\nfrom opentelemetry import trace\n"
JOINS = {"join_provider": SettingValue("true", "environment", "")}


@pytest.mark.parametrize(
    "code",
    [
        "trace.set_tracer_provider(own)",
        "def main():\n    if on: set_tracer_provider(own)",
        "x = 1; trace.set_tracer_provider(own)",
    ],
)
def test_a_provider_of_its_own_is_named_with_what_follows(code: str) -> None:
    found = one(of(("app.py", OWN_PROVIDER + code)), "provider")
    line = 4 if "def" in code else 3
    assert found.state == State.PROBLEM
    assert found.found.startswith(f"app.py:{line} sets a tracer provider of the program's own: ")
    assert "opentelemetry-instrument refuses it, so that its exporters get nothing" in found.found
    assert "started by plain `python` only its exporters get anything, not the database" in found.found
    assert found.remedy == (
        "memtrace-otel run -- python app.py  # or, for opentelemetry-instrument: export MEMTRACE_JOIN_PROVIDER=true"
    )


def test_a_provider_in_a_file_beside_the_script_is_named_there() -> None:
    found = of(("app.py", "import mem0, telemetry"), ("telemetry.py", f"{OWN_PROVIDER}trace.set_tracer_provider(own)"))
    assert one(found, "provider").found.startswith("telemetry.py:3 sets")


def test_a_provider_that_is_joined_is_fine_but_for_its_sampler() -> None:
    code = OWN_PROVIDER + "trace.set_tracer_provider(TracerProvider(sampler={}))"
    joined = replace(PROGRAM, command=("python", "app.py"), settings=JOINS)
    for sampler, checks in (("TraceIdRatioBased(0.1)", ["provider", "sampler"]), ("ALWAYS_ON", ["provider"])):
        Path("app.py").write_text(code.format(sampler))
        found = list(check_source(joined))
        assert [finding.check for finding in found] == [*checks, "program"]
        assert found[0].state == State.OK
        assert "all of them get every span; started by plain `python` only its own do" in found[0].found
    Path("app.py").write_text(code.format("TraceIdRatioBased(0.1)"))
    sampler = one(list(check_source(joined)), "sampler")
    assert sampler.state == State.WARNING
    assert sampler.remedy == "${EDITOR:-vi} +3 app.py  # sampler=None"


def test_a_configuration_file_that_run_refuses_is_respected() -> None:
    Path("app.py").write_text(f"{OWN_PROVIDER}trace.set_tracer_provider(own)")
    by_file = replace(PROGRAM, command=("python", "app.py"), environ={"OTEL_CONFIG_FILE": "otel.yaml"})
    assert one(list(check_source(by_file)), "provider").remedy.startswith("export MEMTRACE_JOIN_PROVIDER=true")


@pytest.mark.parametrize(
    "test", ["isinstance(trace.get_tracer_provider(), Proxy)", "not isinstance(provider, TracerProvider)"]
)
def test_a_provider_that_is_set_only_where_none_is_has_no_finding(test: str) -> None:
    found = of(("app.py", f"{OWN_PROVIDER}if {test}:\n    trace.set_tracer_provider(own)"))
    assert [finding.check for finding in found] == ["program"]


def test_the_libraries_of_a_real_python_are_known_by_their_modules(environ: dict[str, str]) -> None:
    Path("app.py").write_text("import openai")
    findings = examine(Path(sys.executable), environ, command=("python", "app.py"))
    assert one(findings, "program").found == "app.py imports openai"
    assert one(findings, "recorded").remedy == "memtrace-otel run -- python app.py"
    findings = examine(Path(sys.executable), environ, Path("one.db"), ("python", "app.py", "--port", "8000"))
    assert one(findings, "recorded").remedy == "memtrace-otel run --db one.db -- python app.py --port 8000"
