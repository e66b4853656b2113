"""Which Python runs a command, and what is said when none could be observed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from memtrace_otel.launch import LaunchError, check_python, find_program
from memtrace_otel.version import __version__

PYTHON = Path(sys.executable)


def script(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("app.py", "--port", "80"), "app"),
        (("-W", "error", "-u", "shop/agent.py"), "agent"),
        (("shop/__main__.py",), "shop"),
        (("-m", "shop.agent", "-m"), "shop.agent"),
        (("-mshop",), "shop"),
        (("-um", "shop.agent"), "shop.agent"),
        (("-W", "ignore::ImportWarning", "app.py"), "app"),
        (("-Wignore::ImportWarning", "app.py"), "app"),
        (("-uWignore::ImportWarning", "app.py"), "app"),
        (("-uX", "pycache_prefix=/var/Shared/IES", "app.py"), "app"),
        (("-X", "pycache_prefix=/var/Shared", "-OO", "app.py"), "app"),
        (("--check-hash-based-pycs", "always", "app.py"), "app"),
        (("-c", "pass"), "python"),
        ((), "python"),
    ],
)
def test_a_program_is_called_like_what_python_runs(arguments: tuple[str, ...], name: str) -> None:
    program = find_program((sys.executable, *arguments))
    assert (program.name, program.python) == (name, PYTHON)
    assert program.observed_command[-len(arguments) - 1 :] == [sys.executable, *arguments]


@pytest.mark.parametrize(
    "head",
    [
        f"#!{sys.executable}\n",
        f"#!{sys.executable} -u\n",
        f"#!/usr/bin/env {sys.executable}\n",
        f"#!/usr/bin/env -S {sys.executable} -u\n",
        f"#!/bin/sh\n'''exec' {sys.executable} \"$0\" \"$@\"\n' '''\n",
        f"#!/bin/sh\n'''exec' \"{sys.executable}\" \"$0\" \"$@\"\n' '''\n",
    ],
)
def test_a_console_script_names_its_python(head: str, tmp_path: Path) -> None:
    program = find_program((script(tmp_path / "serve", head + "print(1)\n"), "-I"))
    assert (program.python, program.name) == (PYTHON, "serve")


def test_what_is_no_python_program_is_refused_with_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    Path("app.py").write_text("print(1)\n")
    script(tmp_path / "uv", "#!/bin/sh\n")
    script(tmp_path / "binary", "\x7fELF")
    script(tmp_path / "start.sh", "#!/bin/bash\npython app.py\n")
    for command, said in (
        ("no-such-command", "command not found: no-such-command"),
        ("app.py", "memtrace-otel run -- python app.py"),
        ("uv", "uv run memtrace-otel run -- python app.py"),
        ("binary", "for example: python app.py"),
        ("start.sh", "for example: python app.py"),
    ):
        with pytest.raises(LaunchError) as refused:
            find_program((command, "--verbose"))
        assert said in str(refused.value)


@pytest.mark.parametrize(
    ("option", "blinding"), [("-I", "-I"), ("-E", "-E"), ("-S", "-S"), ("-uI", "-I"), ("-uEWI", "-E")]
)
def test_options_that_keep_instrumentation_out_are_refused(option: str, blinding: str) -> None:
    with pytest.raises(LaunchError, match=f"leave {blinding} out"):
        find_program((sys.executable, option, "app.py"))
    assert find_program((sys.executable, "app.py", option)).name == "app"


def test_such_an_option_in_the_first_line_of_a_script_is_refused(tmp_path: Path) -> None:
    path = script(tmp_path / "serve", f"#!/usr/bin/env -S {sys.executable} -I\nprint(1)\n")
    with pytest.raises(LaunchError, match="leave -I out"):
        find_program((path,))


def test_the_command_without_such_an_option_is_told() -> None:
    with pytest.raises(LaunchError) as refused:
        find_program((sys.executable, "-I", "app.py", "-I"))
    assert str(refused.value).endswith(f"; type: memtrace-otel run -- {sys.executable} app.py -I")


def test_another_python_without_this_package_is_told_what_to_install(tmp_path: Path) -> None:
    check_python(PYTHON)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "other"], check=True)
    python = tmp_path / "other" / "bin" / "python"
    with pytest.raises(LaunchError) as refused:
        check_python(python)
    assert f"{python} -m pip install 'memtrace-otel=={__version__}'" in str(refused.value)


def test_a_python_that_does_not_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="does not run as a Python"):
        check_python(Path(script(tmp_path / "python", "#!/bin/sh\nexit 3\n")))
