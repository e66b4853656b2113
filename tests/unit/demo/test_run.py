"""The frame of a run: its folder, its environment, its errors."""

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from memtrace_otel.demo import DemoError, run, run_demo, shown


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(DemoError, match="not an earlier demo"):
        run_demo(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "precious"


def test_an_earlier_run_is_emptied(tmp_path: Path) -> None:
    first = run._fresh(tmp_path / "demo")
    (first / "memtrace.db").write_text("old")
    assert run._fresh(first) == first
    assert not (first / "memtrace.db").exists()


def test_a_users_own_model_is_never_reached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("OPENAI_API_KEY", "OPENROUTER_API_KEY", "OPENAI_API_BASE", "MEM0_API_KEY", "OTEL_TRACES_SAMPLER"):
        monkeypatch.setenv(name, "the user's own")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
    monkeypatch.setenv("NO_PROXY", "intranet")
    environment = run.observed_environment(tmp_path)
    assert "the user's own" not in environment.values()
    assert environment["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://127.0.0.1:4317"
    assert environment["NO_PROXY"] == "intranet,127.0.0.1"


def test_two_runs_share_no_user(tmp_path: Path) -> None:
    """In one backend each run's memories are its own."""
    users: list[set[str]] = []
    for name in ("first", "second"):
        titles = run._write_app(tmp_path / name)
        told, asked = (
            {one["user"] for one in json.loads((tmp_path / name / f"{what}.json").read_text("utf-8"))}
            for what in ("story", "questions")
        )
        assert asked <= told
        assert titles[1] == "day 1, Monday 2 March 2026: Mira"
        users.append(told)
    assert len(users[0]) == len(users[1]) == 2
    assert not users[0] & users[1]


def test_a_missing_mem0_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(run, "find_spec", lambda name: None)
    with pytest.raises(DemoError, match="needs the package mem0: in a checkout"):
        run_demo(tmp_path / "demo")
    assert not (tmp_path / "demo").exists()


def test_a_failing_process_names_step_log_and_reason(tmp_path: Path) -> None:
    directory = run._fresh(tmp_path / "demo")
    run._write_app(directory / "app")
    (directory / "app" / "assistant.py").write_text("raise SystemExit('the store is locked')")
    with pytest.raises(DemoError) as error:
        run._assistant(directory, "day-1", ["chat"], run.observed_environment(directory))
    assert "day-1: the assistant ended with status 1" in str(error.value)
    assert str(directory / "logs" / "day-1.log") in str(error.value)
    assert "the store is locked" in str(error.value)


def test_steps_are_plain_lines_without_a_terminal() -> None:
    output = StringIO()
    with shown(Console(file=output, force_terminal=False)) as progress:
        progress("start the model server", 1, 2)
        progress("questions from memory", 2, 2)
    assert output.getvalue() == "[1/2] start the model server\n[2/2] questions from memory\n"


def test_steps_are_a_bar_on_a_terminal() -> None:
    output = StringIO()
    with shown(Console(file=output, force_terminal=True, width=80)) as progress:
        progress("questions from memory", 1, 2)
    assert "2/2" in output.getvalue()
    assert "done" in output.getvalue()
