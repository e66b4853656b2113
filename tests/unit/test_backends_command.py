"""`scripts/backends`: what it says, and that an interrupted build is no build. The compiler is a stand-in here."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "backends"
GO = """#!/bin/sh
while [ "$1" != -o ]; do shift; done
echo half > "$2"
[ -z "$GO_FAILS" ] || { echo "no such module" >&2; exit 3; }
[ -z "$GO_WAITS" ] || { echo waiting > "$GO_WAITS"; sleep 60; }
echo whole > "$2"
"""


@dataclass
class Command:
    environ: dict[str, str]
    cache: Path

    def __call__(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([SCRIPT, *arguments], env=self.environ | environ, capture_output=True, text=True)

    def start(self, *arguments: str, stderr: int = subprocess.DEVNULL, **environ: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([SCRIPT, *arguments], env=self.environ | environ, stderr=stderr, start_new_session=True)

    def left(self) -> list[str]:
        """What the cache holds of Tempo, logs apart."""
        return [path.name for path in (self.cache / "tempo").iterdir() if path.suffix != ".log"]


@pytest.fixture
def command(tmp_path: Path) -> Command:
    programs, cache = tmp_path / "bin", tmp_path / "cache"
    programs.mkdir()
    go = programs / "go"
    go.write_text(GO, "utf-8")
    go.chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    return Command({**os.environ, "PATH": path, "MEMTRACE_BACKENDS_CACHE": str(cache)}, cache)


def test_help_has_examples_and_names_all(command: Command) -> None:
    done = command("--help")
    assert done.returncode == 0
    assert "scripts/backends install jaeger tempo" in done.stdout
    listed = [line.split()[0] for line in command("list").stdout.splitlines()]
    assert {"jaeger", "tempo", "collector", "kafka", "prometheus", "alertmanager", "chromium"} <= set(listed)


def test_what_is_not_installed_says_how_to_install_it(command: Command) -> None:
    done = command("path", "tempo")
    assert (done.returncode, done.stdout) == (1, "")
    assert "tempo is not installed: run `scripts/backends install tempo`" in done.stderr


def test_an_unknown_name_and_a_missing_tool_are_named(command: Command, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.mkdir()
    (python / "python3").symlink_to(sys.executable)
    done = command("install", "temqo")
    assert done.returncode == 2
    assert "no such backend: temqo" in done.stderr
    done = command("install", "kafka", PATH=str(python))
    assert done.returncode == 1
    assert "kafka needs Java 17 or newer" in done.stderr


def test_a_cache_that_cannot_be_written_is_named(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    (command.cache / "installing.lock").mkdir(parents=True)
    for folder, why in ((file / "cache", "Not a directory"), (command.cache, "Is a directory")):
        done = command("install", "tempo", MEMTRACE_BACKENDS_CACHE=str(folder))
        assert done.returncode == 1
        assert done.stderr == (
            f"scripts/backends: cannot write to {folder}: {why}; MEMTRACE_BACKENDS_CACHE may name another folder\n"
        )


def test_it_is_built_once(command: Command) -> None:
    assert command("install", "tempo").returncode == 0
    built = Path(command("path", "tempo").stdout.strip())
    assert built.read_text("utf-8") == "whole\n"
    again = command("install", "tempo", GO_FAILS="1")
    assert (again.returncode, again.stderr) == (0, "")


def test_a_failed_build_leaves_nothing_and_shows_why(command: Command) -> None:
    done = command("install", "tempo", GO_FAILS="1")
    assert done.returncode == 1
    assert "status 3" in done.stderr
    assert "no such module" in done.stderr
    assert command.left() == []


def test_a_second_install_says_that_it_waits_for_the_first(command: Command) -> None:
    command.cache.mkdir()
    with (command.cache / "installing.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = command.start("install", "tempo", stderr=subprocess.PIPE)
        assert waiting.stderr
        assert select.select([waiting.stderr], [], [], 30)[0], "it waits without a word"
        assert waiting.stderr.readline().decode() == f"waiting for another install in {command.cache}\n"
    with waiting:
        assert waiting.wait(30) == 0
    assert command("path", "tempo").returncode == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_build_leaves_no_half_program(command: Command, how: signal.Signals, tmp_path: Path) -> None:
    reached = tmp_path / "reached"
    running = command.start("install", "tempo", GO_WAITS=str(reached))
    deadline = time.monotonic() + 30
    while not reached.exists():
        assert time.monotonic() < deadline, "the build has not begun"
        time.sleep(0.02)
    os.killpg(running.pid, how) if how is signal.SIGKILL else running.send_signal(how)
    running.wait(30)
    assert command("path", "tempo").returncode == 1
    assert command("install", "tempo").returncode == 0
    assert Path(command("path", "tempo").stdout.strip()).read_text("utf-8") == "whole\n"
    assert len(command.left()) == 1
