"""The program's own files: do they import what is watched, keep it from being recorded, set a provider of their own?

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

from memtrace_otel import settings
from memtrace_otel.doctor.finding import Finding, ok, problem, warning
from memtrace_otel.doctor.program import CONFIG_FILE, OURS, ObservedProgram
from memtrace_otel.doctor.remedies import change_setting

_MOST_FILES = 500
_OUR_MODULE = "memtrace_otel"
_HIDING = {"exec", "importlib", "runpy", "subprocess", "__import__"}
"""Ways to run code that does not show in the imports."""
_PYTHON = re.compile(r"(.*/)?(python|pypy)[\d.]*")
_BLINDING = re.compile(r"-[a-zA-Z]*[IES][a-zA-Z]*")
"""Options of Python with which it does not look into PYTHONPATH, or imports no `sitecustomize` from it."""
_BEGINS_PROGRAM = re.compile(r"-[mcWX].*")


@dataclass(frozen=True, slots=True)
class Place:
    """A line that matters to what is recorded: what it does, and what to write there."""

    path: Path
    line: int
    does: str
    instead: str


@dataclass(slots=True)
class Source:
    """What a script and the files beside it say: top-level names that they import from elsewhere, where they start a
    Python that gets nothing of us (`blinded`), where they end without what was recorded last (`hasty`), and where they
    set a tracer provider of their own (`providers`) or give one a sampler (`samplers`)."""

    script: Path
    imports: set[str] = field(default_factory=set[str])
    blinded: list[Place] = field(default_factory=list[Place])
    hasty: list[Place] = field(default_factory=list[Place])
    providers: list[Place] = field(default_factory=list[Place])
    samplers: list[Place] = field(default_factory=list[Place])
    broken: str = ""


def check_source(program: ObservedProgram) -> Iterator[Finding]:
    """A program that comes by nothing that is watched leaves nothing, however right all else is."""
    yield from _check_script(program.command)
    source = read_source(program.command)
    if source is None or OURS not in program.packages:
        return
    if source.broken and program.version[:2] <= sys.version_info[:2]:  # else it may be newer than what reads it here
        python = quote(str(program.python))
        yield problem("program", source.broken, f"{python} -m py_compile {quote(str(source.script))}")
        return
    watched = {_OUR_MODULE}.union(*(one.modules for one in program.instrumentors if one.active))
    used = sorted(source.imports & watched)
    for place in source.blinded:
        yield (warning if used else problem)("child process", _told(place), _edit(place))
    for place in source.hasty:
        yield warning("program end", _told(place), _edit(place))
    yield from _check_providers(source, program)
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
        f"${{EDITOR:-vi}} {quote(str(source.script))}  # say what its memory does: docs/guide/own-memory.md",
    )


def _check_providers(source: Source, program: ObservedProgram) -> Iterator[Finding]:
    """A provider that the program sets: what becomes of it depends on who starts the program."""
    joins = program.setting(settings.JOIN_PROVIDER.name) == "true"
    switch = change_setting(program, settings.JOIN_PROVIDER, "true")
    by_switch = f"{switch}  # then start the program by opentelemetry-instrument"
    by_run = f"{program.rerun}  # or, for opentelemetry-instrument: {switch}"
    for place in source.providers:
        if joins:
            both = "the exporters found here join it, and all of them get every span"
            yield ok("provider", f"{_told(place)}: {both}; started by plain `python` only its own do")
        else:
            harm = (
                "opentelemetry-instrument refuses it, so that its exporters get nothing; started by plain `python` "
                "only its exporters get anything, not the database"
            )
            yield problem(
                "provider", f"{_told(place)}: {harm}", by_switch if CONFIG_FILE in program.environ else by_run
            )
    for place in source.samplers if joins and source.providers else ():
        yield warning("sampler", _told(place), _edit(place))


def _told(place: Place) -> str:
    return f"{place.path}:{place.line} {place.does}"


def _edit(place: Place) -> str:
    return f"${{EDITOR:-vi}} +{place.line} {quote(str(place.path))}  # {place.instead}"


def _check_script(command: Sequence[str]) -> Iterator[Finding]:
    """A script that is not there; what comes after options with values of their own is not looked at."""
    script = command[1] if len(command) > 1 else ""
    if _PYTHON.fullmatch(command[0] if command else "") and script.endswith(".py") and not Path(script).exists():
        yield problem("program", f"{script} is no file here ({Path.cwd()})", f"find . -name {quote(Path(script).name)}")


def read_source(command: Sequence[str]) -> Source | None:
    """Read the script or the module (`-m`) of a command line; None when it names no file that is here."""
    found = _script(command)
    if found is None:
        return None
    script, root = found
    source = Source(script)
    readers = (
        (_blinding, source.blinded),
        (_hasty, source.hasty),
        (_providing, source.providers),
        (_sampling, source.samplers),
    )
    waiting, seen = [script], {script}
    while waiting and len(seen) <= _MOST_FILES:
        path = waiting.pop()
        try:
            with warnings.catch_warnings(action="ignore"):  # of the program's text
                tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
            if path == script and isinstance(error, SyntaxError):
                source.broken = f"{script}:{error.lineno} does not compile: {error.msg}"
            source.imports.add("exec")  # who knows what it does
            continue
        sheltered = set(_set_where_none_is(tree))
        for node in ast.walk(tree):
            if node in sheltered:
                continue
            for folder, name in _imported(node, path.parent, root):
                files = _files(folder, name)
                waiting += [file for file in files if file not in seen]
                seen.update(files)
                if not files and folder == root:
                    source.imports.add(name.partition(".")[0])
            for read, places in readers:
                places += [Place(path, getattr(node, "lineno", 1), *told) for told in read(node)]
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


def _blinding(node: ast.AST) -> Iterator[tuple[str, str]]:
    """How a command line in the program, a list of words or one text, starts a Python without us; and what to write."""
    words: list[str] = []
    if isinstance(node, ast.Assign) and any(_is_path_variable(target) for target in node.targets):
        if not any(isinstance(part, ast.Subscript | ast.Attribute) for part in ast.walk(node.value)):
            did = "sets PYTHONPATH anew, by which auto-instrumentation gets into child processes"
            yield did, 'os.pathsep.join([..., os.environ["PYTHONPATH"]])'
        return
    if isinstance(node, ast.Call) and (fresh := _fresh_environment(node)):
        yield f"starts a Python in an environment of its own, {fresh}: it is not recorded", "env={**os.environ, ...}"
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
                does = f"starts a Python with {option}, which keeps auto-instrumentation out: it is not recorded"
                yield does, f"leave {option} out"


def _is_path_variable(node: ast.AST) -> bool:
    """`os.environ["PYTHONPATH"]`."""
    return isinstance(node, ast.Subscript) and "environ" in ast.dump(node.value) and _word(node.slice) == "PYTHONPATH"


def _fresh_environment(node: ast.Call) -> str:
    """What the `env` of a call that starts a Python lacks, '' when it comes from the environment or nothing says so."""
    env = next((keyword.value for keyword in node.keywords if keyword.arg == "env"), None)
    starts = any(
        _PYTHON.fullmatch(_word(item)) for argument in node.args for item in getattr(argument, "elts", (argument,))
    )
    if not starts or not isinstance(env, ast.Dict) or None in env.keys:  # None: `**os.environ`
        return ""
    return "" if any(key and _word(key) == "PYTHONPATH" for key in env.keys) else "without PYTHONPATH"


def _hasty(node: ast.AST) -> Iterator[tuple[str, str]]:
    """How the program ends without its exit handlers, and what to write."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return
    called = f"{_name(node.func.value)}.{node.func.attr}"
    kills = called in ("os.kill", "os.killpg") and any(_is_sigkill(argument) for argument in node.args[1:])
    if called == "os._exit" or kills:
        what = "by SIGKILL" if kills else "by os._exit"
        said = f"ends a process {what}, without what it recorded in its last moment"
        yield said, "SIGTERM" if kills else "before it: opentelemetry.trace.get_tracer_provider().force_flush()"


def _providing(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Where the program sets a tracer provider."""
    if _called(node) == "set_tracer_provider":
        yield "sets a tracer provider of the program's own", ""


def _set_where_none_is(tree: ast.AST) -> Iterator[ast.AST]:
    """The calls that set a tracer provider only where none, or none of the SDK, is set: under observation one is."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and re.search(r"TracerProvider|get_tracer_provider", ast.unparse(node.test)):
            yield from (inner for inner in ast.walk(node) if _called(inner) == "set_tracer_provider")


def _sampling(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Where the program makes a provider that may leave spans out."""
    if isinstance(node, ast.Call) and _called(node) == "TracerProvider":
        given = [*node.args[:1], *(keyword.value for keyword in node.keywords if keyword.arg == "sampler")]
        if given and not re.search(r"ALWAYS_ON|DEFAULT_ON|None", ast.unparse(given[0])):
            yield "gives its tracer provider a sampler: what that leaves out is not recorded", "sampler=None"


def _called(node: ast.AST) -> str:
    """The last name of what a call calls, '' for what is no call."""
    called = node.func if isinstance(node, ast.Call) else None
    return called.attr if isinstance(called, ast.Attribute) else _name(called) if called else ""


def _is_sigkill(node: ast.AST) -> bool:
    number = isinstance(node, ast.Constant) and node.value == 9
    return number or (isinstance(node, ast.Attribute) and node.attr == "SIGKILL")


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _word(node: ast.AST) -> str:
    """A word of a command line in the program: its text, `python` for `sys.executable`, else ''."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return "python" if isinstance(node, ast.Attribute) and node.attr == "executable" else ""
