"""The program to start: its command, the Python that runs it, and a check that this Python can record spans."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path
from shlex import join

from memtrace_otel.version import __version__

_PYTHON = re.compile(r"(python|pypy)w?[\d.]*t?(\.exe)?", re.IGNORECASE)
_INSTRUMENT = ["-c", "from opentelemetry.instrumentation.auto_instrumentation import run; run()"]
"""`opentelemetry-instrument` of this Python: the script of that name on PATH may belong to another Python."""
_ASK = """
import json, sys
from importlib.util import find_spec
def has(name):
    try:
        return find_spec(name) is not None
    except ImportError:
        return False
names = "memtrace_otel", "opentelemetry.instrumentation.auto_instrumentation"
print(json.dumps({"version": sys.version.split()[0], "missing": [name for name in names if not has(name)]}))
"""
_ASK_SECONDS = 30
_OWN_PYTHON = ("uv", "uvx", "poetry", "pdm", "pipenv", "hatch", "rye", "pixi", "conda", "tox", "nox")
_LONG_WITH_VALUE = "--check-hash-based-pycs"
_FLAGS = re.compile(r"-(?P<flags>[^-WXmc][^WXmc]*)?(?P<last>[WXmc])?(?P<value>.*)")
"""A word of options: `-uI`, `-uW error`, `-Werror`; `-m` and `-c` begin the program."""
_BLINDING = "IES"
"""Options of Python that ignore PYTHONPATH, which auto-instrumentation needs."""


class LaunchError(Exception):
    """The program cannot be started with recording; the message gives the reason and a command to type."""


@dataclass(frozen=True, slots=True)
class Program:
    """A Python program: its command line as given, the Python that runs it and a name for `service.name`."""

    command: tuple[str, ...]
    python: Path
    name: str

    @property
    def observed_command(self) -> list[str]:
        """The command line that runs it under auto-instrumentation."""
        return [str(self.python), *_INSTRUMENT, "--", *self.command]  # else its parser takes options of the program


def find_program(command: Sequence[str]) -> Program:
    """The program of a command line. Raises LaunchError for other programs, and if auto-instrumentation cannot load."""
    executable = shutil.which(command[0])
    if executable is None:
        raise LaunchError(_not_found(command))
    python = find_python(Path(executable))
    if python is None:
        raise LaunchError(_no_python(command))
    arguments = list(command[1:]) if _is_python(Path(executable)) else _first_line(Path(executable))[1:]
    flags, script = _split(arguments)
    blinding = next((f"-{flag}" for flag in flags if flag in _BLINDING), "")
    if blinding:
        told = f"{python.name} {blinding} keeps auto-instrumentation out"
        if not _is_python(Path(executable)):
            raise LaunchError(f"{told}: type: ${{EDITOR:-vi}} +1 {executable}  # leave {blinding} out")
        without = ""
        if blinding in command:
            at = command.index(blinding)
            without = f"; type: memtrace-otel run -- {join([*command[:at], *command[at + 1 :]])}"
        raise LaunchError(f"{told}: leave {blinding} out{without}")
    return Program(tuple(command), python, _name(Path(executable), script))


def check_python(python: Path) -> None:
    """Raise LaunchError unless `python` has this package and auto-instrumentation."""
    try:
        asked = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, timeout=_ASK_SECONDS, check=True)
        answer = json.loads(asked.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise LaunchError(f"{python} does not run as a Python: {error}") from None
    if answer["missing"]:
        raise LaunchError(
            f"{answer['missing'][0].partition('.')[0]} is not installed for {python} (Python {answer['version']}), "
            f"which runs this program; type: {python} -m pip install 'memtrace-otel=={__version__}'"
        )


def find_python(executable: Path) -> Path | None:
    """Return the Python behind an executable: itself, or the one named in the first lines of a script."""
    if _is_python(executable):
        return executable
    words = _first_line(executable)
    found = shutil.which(words[0]) if words else None
    return Path(found) if found and _is_python(Path(found)) else None


def _first_line(executable: Path) -> list[str]:
    """The command line of the interpreter that a script names at its beginning, [] when it names none."""
    try:
        with executable.open("rb") as file:
            first, second = (file.readline(1024).decode("utf-8", "replace").strip() for _ in range(2))
    except OSError:
        return []
    if not first.startswith("#!"):
        return []
    words = first[2:].split()
    if words and Path(words[0]).name == "env":
        words = list(dropwhile(lambda word: word.startswith("-") or "=" in word, words[1:]))
    elif words and Path(words[0]).name == "sh" and second.startswith("'''exec'"):
        words = [second.removeprefix("'''exec'").split('"$0"')[0].strip().strip("\"'")]  # pip, for a long path
    return words


def _is_python(executable: Path) -> bool:
    return _PYTHON.fullmatch(executable.name) is not None


def _split(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Split the arguments of a Python into its one-letter flags and what it runs (`app.py ...`, `-m module ...`)."""
    flags, position = "", 0
    while position < len(arguments):
        word = arguments[position]
        found = _FLAGS.fullmatch(word)
        if word == "-" or found is None:
            break
        position += 1
        if word.startswith("--"):
            position += word == _LONG_WITH_VALUE
            continue
        flags += found["flags"] or ""
        if found["last"] in ("m", "c"):
            return flags, [f"-{found['last']}{found['value']}", *arguments[position:]]
        position += found["last"] is not None and not found["value"]
    return flags, list(arguments[position:])


def _name(executable: Path, script: Sequence[str]) -> str:
    """A service name: the module after `-m`, the script's name, or that of a console script."""
    if not _is_python(executable):
        return executable.stem
    if script and script[0].startswith("-m"):
        return script[0][2:] or (script[1] if len(script) > 1 else "python")
    if script and not script[0].startswith("-"):
        path = Path(script[0])
        return path.parent.name if path.name == "__main__.py" and path.parent.name else path.stem
    return "python"


def _not_found(command: Sequence[str]) -> str:
    if command[0].endswith(".py") and Path(command[0]).is_file():
        return f"{command[0]} is not executable; type: memtrace-otel run -- python {' '.join(command)}"
    return f"command not found: {command[0]} (PATH is {os.environ.get('PATH', 'empty')})"


def _no_python(command: Sequence[str]) -> str:
    if Path(command[0]).name in _OWN_PYTHON:
        return (
            f"{command[0]} chooses the Python itself; start memtrace-otel inside of it, "
            f"for example: {command[0]} run memtrace-otel run -- python app.py"
        )
    return f"{command[0]} is no Python program; give the command that starts Python, for example: python app.py"
