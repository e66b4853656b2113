"""The program's own files: do they import what is watched, do they start a Python that gets nothing of this?

They are read, not run. Files beside the script are followed, installed packages are not.
"""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

from memtrace_otel.doctor.finding import Finding, ok, problem, warning
from memtrace_otel.doctor.program import OURS, ObservedProgram

_MOST_FILES = 500
_OUR_MODULE = "memtrace_otel"
_HIDING = {"exec", "importlib", "runpy", "subprocess", "__import__"}
"""Ways to run code that does not show in the imports."""
_PYTHON = re.compile(r"(.*/)?(python|pypy)[\d.]*")
_BLINDING = re.compile(r"-[a-zA-Z]*[IES][a-zA-Z]*")
"""Options of Python with which it does not look into PYTHONPATH, or imports no `sitecustomize` from it."""
_BEGINS_PROGRAM = re.compile(r"-[mcWX].*")


@dataclass(slots=True)
class Source:
    """What a script and the files beside it say: top-level names that they import from elsewhere, and where they start
    a Python with options that keep us out (file, line, option)."""

    script: Path
    imports: set[str] = field(default_factory=set[str])
    blinded: list[tuple[Path, int, str]] = field(default_factory=list[tuple[Path, int, str]])


def check_source(program: ObservedProgram) -> Iterator[Finding]:
    """A program that comes by nothing that is watched leaves nothing, however right all else is."""
    source = read_source(program.command)
    if source is None or OURS not in program.packages:
        return
    watched = {_OUR_MODULE}.union(*(one.modules for one in program.instrumentors if one.active))
    used = sorted(source.imports & watched)
    for path, line, option in source.blinded:
        yield (warning if used else problem)(
            "child process",
            f"{path}:{line} starts a Python with {option}, which keeps auto-instrumentation out: it is not recorded",
            f"$EDITOR +{line} {quote(str(path))}  # leave {option} out",
        )
    if used:
        yield ok("program", f"{source.script} imports {', '.join(used)}")
        return
    said = f"{source.script} imports nothing that is watched here ({', '.join(sorted(watched))})"
    others = sorted(source.imports & _HIDING) + sorted(source.imports - _HIDING - sys.stdlib_module_names)
    if others or source.blinded:
        unseen = f"; not looked at: what it gets by {', '.join(others)}" if others else ""
        if "subprocess" in others:
            unseen += " (a Python started there is recorded when it is the same one and gets PYTHONPATH)"
        yield ok("program", said + unseen)
        return
    yield problem(
        "program",
        f"{said}: there is nothing to record",
        f"$EDITOR {quote(str(source.script))}  # say what its memory does: docs/guide/own-memory.md",
    )


def read_source(command: Sequence[str]) -> Source | None:
    """Read the script or the module (`-m`) of a command line; None when it names no file that is here."""
    found = _script(command)
    if found is None:
        return None
    script, root = found
    source = Source(script)
    waiting, seen = [script], {script}
    while waiting and len(seen) <= _MOST_FILES:
        path = waiting.pop()
        try:
            with warnings.catch_warnings(action="ignore"):  # of the program's text
                tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            source.imports.add("exec")  # who knows what it does
            continue
        for node in ast.walk(tree):
            for folder, name in _imported(node, path.parent, root):
                files = _files(folder, name)
                waiting += [file for file in files if file not in seen]
                seen.update(files)
                if not files and folder == root:
                    source.imports.add(name.partition(".")[0])
            for option in _blinding(node):
                source.blinded.append((path, getattr(node, "lineno", 1), option))
    return source


def _script(command: Sequence[str]) -> tuple[Path, Path] | None:
    """The file that a command line runs, and the folder in which it finds its modules."""
    for position, word in enumerate(command):
        if position and word.endswith(".py") and Path(word).is_file():
            return Path(word), Path(word).parent
        if word == "-m" and position + 1 < len(command):
            place = Path(*command[position + 1].split("."))
            choices = (place.with_suffix(".py"), place / "__main__.py")
            return next(((choice, Path()) for choice in choices if choice.is_file()), None)
    return None


def _imported(node: ast.AST, folder: Path, root: Path) -> Iterator[tuple[Path, str]]:
    """What a statement imports: dotted names, each with the folder in which it is looked for first."""
    if isinstance(node, ast.Import):
        yield from ((root, alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        place = root
        if node.level:
            place = folder.joinpath(*[".."] * (node.level - 1))
        for alias in node.names:
            yield place, ".".join(filter(None, (node.module, alias.name)))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _HIDING:
        yield root, node.func.id


def _files(folder: Path, name: str) -> list[Path]:
    """The files in `folder` that importing `name` runs."""
    found: list[Path] = []
    for part in name.split("."):
        folder = folder / part
        choices = (folder.with_name(f"{part}.py"), folder / "__init__.py")
        with suppress(OSError, ValueError):
            found += [choice for choice in choices if choice.is_file()]
    return found


def _blinding(node: ast.AST) -> Iterator[str]:
    """The options by which a command line in the program, a list of words or one text, starts a Python without us."""
    words: list[str] = []
    if isinstance(node, ast.List | ast.Tuple):
        words = [_word(item) for item in node.elts]
    elif isinstance(node, ast.Call):
        words = [_word(item) for item in node.args]
        if len(words) == 1 and " " in words[0]:
            words = words[0].split()
    for position, word in enumerate(words):
        if not _PYTHON.fullmatch(word):
            continue
        for option in words[position + 1 :]:
            if not option.startswith("-") or _BEGINS_PROGRAM.fullmatch(option):
                break
            if _BLINDING.fullmatch(option):
                yield option


def _word(node: ast.AST) -> str:
    """A word of a command line in the program: its text, `python` for `sys.executable`, else ''."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return "python" if isinstance(node, ast.Attribute) and node.attr == "executable" else ""
