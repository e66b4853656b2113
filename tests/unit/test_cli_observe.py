"""`run`, `doctor` and `config` as people use them: separate processes, a real program, a real environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from memtrace_otel import settings
from memtrace_otel.sources import SqliteStore

PROGRAM = """
import os, sys
from memtrace_otel import feedback, operation, scope_id

memory = {"system": "notes", "scope": scope_id("notes", user="ana")}

@operation("create_memory", kind="create", inputs={"said": "message"}, output="memory", action="ADD", **memory)
def remember(said):
    return said

remember("My train leaves at 9:40")
print("pid", os.getpid(), *sys.argv[1:])
sys.exit(7)
"""
CONTENT = settings.CAPTURE_CONTENT.env


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with a program, and an environment that says nothing of OpenTelemetry."""
    for name in [name for name in os.environ if name.startswith(("OTEL_", "MEMTRACE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text(PROGRAM)
    return tmp_path


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "memtrace_otel.cli", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )


# --- run ---------------------------------------------------------------------------------------------------------
def test_run_records_an_unchanged_program_and_says_what_to_do_next(folder: Path) -> None:
    # The launcher has such options, too.
    arguments = ["--db", "x", "-v", "--config", "y.yaml", "--log", "--", "--trace"]
    done = command("run", "--", sys.executable, "app.py", *arguments)
    assert done.returncode == 7
    assert done.stdout.split()[2:] == arguments
    first, *rest = done.stderr.splitlines()
    assert first == f"memtrace-otel: 1 operation of notes recorded in {folder / 'memtrace.db'}"
    assert any("--content" in line for line in rest)
    assert any("feedback" in line for line in rest)
    assert rest[-1].strip() == "next: memtrace-otel answers"
    with SqliteStore.open("memtrace.db", create=False) as store:
        [span] = store.spans()
    assert (span.name, span.service, span.outputs[0].content) == ("create_memory", "app", "")


def test_run_tells_which_answer_was_judged(folder: Path) -> None:
    (folder / "app.py").write_text(
        PROGRAM.replace(
            "sys.exit(7)",
            """
with operation("chat", kind="respond", system="notes") as answer:
    answer.wrote("answer:1", role="answer", content="At 10:15, I think.")
feedback("fail", expected="9:40")
""",
        )
    )
    done = command("run", "--content", "--", sys.executable, "app.py")
    assert "judged fail: the answer 'At 10:15, I think.' in trace" in done.stderr


def test_run_takes_a_database_a_service_and_contents(folder: Path) -> None:
    options = ("--db", "runs/one.db", "--service", "shop", "--content")
    done = command("run", *options, "--", sys.executable, "-m", "app")
    assert done.returncode == 7, done.stderr
    assert f"next: memtrace-otel answers --db {folder / 'runs' / 'one.db'}" in done.stderr
    assert "--content" not in done.stderr
    with SqliteStore.open("runs/one.db", create=False) as store:
        [span] = store.spans()
    assert (span.service, span.outputs[0].content) == ("shop", "My train leaves at 9:40")


def test_a_quiet_run_is_the_program(folder: Path) -> None:
    arguments = [sys.executable, "-m", "memtrace_otel.cli", "run", "--quiet", "--", sys.executable, "app.py"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        out, err = process.communicate()
    assert (process.returncode, out, err) == (7, f"pid {process.pid}\n", "")
    with SqliteStore.open("memtrace.db", create=False) as store:
        assert store.stats().operations == 1


def test_a_run_that_recorded_nothing_names_the_doctor(folder: Path) -> None:
    (folder / "app.py").write_text("print('hello')\n")
    done = command("run", "--", sys.executable, "app.py")
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert done.stderr.splitlines()[-1].strip() == f"to see why: memtrace-otel doctor --run -- {sys.executable} app.py"


def test_a_database_that_cannot_be_written_is_named_and_the_spans_wait() -> None:
    done = command("run", "--db", "/proc/x.db", "--", sys.executable, "app.py")
    assert "wait in the spool: /proc/x.db could not be written" in done.stderr
    findings = json.loads(command("doctor", "--json", "--run", "--db", "/proc/x.db").stdout)
    [found] = [finding for finding in findings if finding["check"] in ("database", "disk")]
    assert (found["state"], found["found"]) == ("problem", "/proc/x.db cannot be written: see /proc")


def test_what_is_switched_off_in_capitals_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "ALWAYS_OFF")
    done = command("run", "--", sys.executable, "app.py")
    assert (done.returncode, "no memory operation was recorded" in done.stderr) == (7, True)


UNUSABLE = {"MEMTRACE_PREVIEW_BYTES": "many", CONTENT: "true"}


@pytest.mark.parametrize("options", [(), ("--quiet",)])
def test_run_says_at_first_which_settings_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    Path("app.py").write_text("import sys; print('hello', flush=True); print('started', file=sys.stderr)")
    for name, value in UNUSABLE.items():
        monkeypatch.setenv(name, value)
    done = command("run", *options, "--", sys.executable, "app.py")
    assert (done.returncode, done.stdout) == (0, "hello\n")
    said = done.stderr.partition("started")[0].splitlines()
    assert len(said) == len(UNUSABLE)
    for name in UNUSABLE:
        [line] = [line for line in said if name in line.partition("; type: ")[0]]
        assert line.startswith("memtrace-otel: ")
        assert line.endswith(f"; type: unset {name}")


def test_run_says_what_sigkill_loses(folder: Path) -> None:
    (folder / "app.py").write_text("import os; os.kill(os.getpid(), 9)")
    done = command("run", "--", sys.executable, "app.py")
    assert done.returncode == -9
    assert "SIGKILL ended the program" in done.stderr


def test_run_imports_nothing_of_the_program_and_finds_a_callback_beside_the_script(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "shop").mkdir()
    source = f"import sys; print('imported', file=sys.stderr)\ndef redact(text): return 'x'\n{PROGRAM}"
    (folder / "shop" / "shopping.py").write_text(source)
    monkeypatch.setenv("MEMTRACE_REDACT_CALLBACK", "shopping:redact")
    done = command("run", "--", sys.executable, "shop/shopping.py")
    assert "cannot be used" not in done.stderr
    assert done.stderr.count("imported") == 1


def test_what_cannot_be_run_is_one_line_and_bad_input() -> None:
    for arguments, said in (
        (("run", "--", "no-such-command"), "command not found: no-such-command"),
        (("run", "--", "app.py"), "memtrace-otel run -- python app.py"),
        (("run", "--otlp", "nonsense", "--", sys.executable, "app.py"), "http://localhost:4317"),
        (("run",), "COMMAND"),
    ):
        done = command(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
        assert "Traceback" not in done.stderr
    assert not Path("memtrace.db").exists()


# --- doctor ------------------------------------------------------------------------------------------------------
def test_doctor_ends_with_what_to_type_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "memtrace")
    done = command("doctor")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines()[-1].strip() == "unset OTEL_SDK_DISABLED"
    assert "\x1b" not in done.stdout  # no terminal, no colours


def test_doctor_of_a_program_that_run_records() -> None:
    command("run", "--content", "--", sys.executable, "app.py")
    healthy = command("doctor", "--run", "--json", "--", sys.executable, "app.py")
    findings = json.loads(healthy.stdout)
    assert healthy.returncode == 0
    assert {finding["state"] for finding in findings} <= {"ok", "warning"}
    assert all(set(finding) == {"check", "state", "found", "remedy"} for finding in findings)
    assert any(finding["found"].startswith("1 of notes; the last operation, create_memory") for finding in findings)
    assert command("doctor", "--", sys.executable, "app.py").returncode == 1  # no receiver is there


def test_doctor_refuses_what_is_no_python_program() -> None:
    done = command("doctor", "--", "no-such-command")
    assert (done.returncode, "command not found" in done.stderr) == (2, True)


# --- config ------------------------------------------------------------------------------------------------------
def test_config_prints_every_setting_with_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMTRACE_PREVIEW_BYTES", "500")
    monkeypatch.setenv("MEMTRACE_DIGEST_KEY", "hush")
    monkeypatch.setenv(CONTENT, "true")
    done = command("config", "--json")
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert list(rows) == list(settings.NAMES)
    assert (rows["preview_bytes"]["value"], rows["preview_bytes"]["source"]) == ("500", "environment")
    assert (rows["digest_key"]["value"], rows["digest_key"]["source"]) == ("set", "environment")
    assert (rows["db"]["value"], rows["db"]["source"]) == ("memtrace.db", "default")
    assert "SPAN_ONLY" in rows["capture_content"]["problem"]
    table = command("config").stdout
    assert all(name in table for name in settings.NAMES)
    assert "takes one of" in table
    assert "hush" not in done.stdout + table


def test_config_shows_the_options_of_a_configuration_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "otel.yaml").write_text(
        'file_format: "1.0"\ninstrumentation/development:\n  python:\n    memtrace_openai: {preview_bytes: 321}\n'
    )
    monkeypatch.setenv("OTEL_CONFIG_FILE", "otel.yaml")
    monkeypatch.setenv("MEMTRACE_PREVIEW_BYTES", "500")
    [row] = [row for row in json.loads(command("config", "--json").stdout) if row["name"] == "preview_bytes"]
    assert (row["value"], row["source"]) == ("321", "OTEL_CONFIG_FILE")
