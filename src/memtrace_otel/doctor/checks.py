"""Checks of a program's set-up: packages, instrumentors, provider, sampler, limits, spool and settings."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from packaging.requirements import Requirement

from memtrace_otel import settings
from memtrace_otel.doctor.finding import Finding, ok, problem, warning
from memtrace_otel.doctor.program import CONFIG_FILE, OURS, Instrumentor, ObservedProgram, canonical, requirements
from memtrace_otel.version import __version__

DISABLED = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"
GEVENT = "OTEL_PYTHON_AUTO_INSTRUMENTATION_EXPERIMENTAL_GEVENT_PATCH"
EXPORTER = "OTEL_TRACES_EXPORTER"
_LOWEST_PYTHON = (3, 11)
_LINKED = frozenset({"openai", "langchain-core", "langchain"})
"""Libraries whose calls another instrumentation may record as well: ours enriches those spans."""
_IN_FILE = 'tracer_provider: processors: - batch: {exporter: {memtrace: {path: "./memtrace.db"}}}'
_HARMLESS = "ignoring configurator kwargs"
"""OpenTelemetry logs this line at every start with OTEL_CONFIG_FILE."""
_LIMITS = (
    ("ATTRIBUTE_COUNT_LIMIT", "attributes", 64, "the SDK drops the oldest attributes of a span"),
    ("LINK_COUNT_LIMIT", "links", 32, "the SDK drops the oldest links of a span"),
    ("ATTRIBUTE_VALUE_LENGTH_LIMIT", "length", 256, "the SDK cuts refs and origins"),
)
"""Limit, field of `ObservedProgram`, lowest usable value, consequence below that value."""
_OLD_SECONDS = 60
_ALMOST_FULL = 0.9
_LEAST_FREE_BYTES = 10 << 20


def check_python(program: ObservedProgram) -> Iterator[Finding]:
    """Check the version of the interpreter."""
    version = ".".join(map(str, program.version))
    if program.version < _LOWEST_PYTHON:
        found = f"Python {version} at {program.python}; 3.11 or newer is needed"
        yield problem("python", found, "python3.11 -m venv .venv")
    else:
        yield ok("python", f"Python {version} at {program.python}")


def check_packages(program: ObservedProgram) -> Iterator[Finding]:
    """Check that this package and its requirements are installed in range."""
    pip = f"{program.python} -m pip install"
    package = program.packages.get(OURS)
    if package is None:
        yield problem("packages", f"{OURS} is not installed for {program.python}", f"{pip} '{OURS}=={__version__}'")
        return
    wrong = [
        f"{requirement.name}{requirement.specifier}"
        for requirement in requirements(package)
        if (there := program.packages.get(canonical(requirement.name))) is None
        or not requirement.specifier.contains(there.version, prereleases=True)
    ]
    if wrong:
        wanted = " ".join(f"'{name}'" for name in wrong)
        yield problem("packages", f"missing or outside the supported range: {', '.join(wrong)}", f"{pip} {wanted}")
        return
    if package.version != __version__:
        found = f"the program has {OURS} {package.version}, this command has {__version__}"
        yield warning("packages", found, f"{pip} '{OURS}=={__version__}'")
        return
    yield ok("packages", f"{OURS} {package.version}, opentelemetry-sdk {program.packages['opentelemetry-sdk'].version}")


def check_switches(program: ObservedProgram) -> Iterator[Finding]:
    """Check the variables that switch recording off, and OTEL_CONFIG_FILE."""
    if program.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        yield problem("sdk", "OTEL_SDK_DISABLED switches all recording off", "unset OTEL_SDK_DISABLED")
    name = program.environ.get(CONFIG_FILE)
    if not name:
        return
    if "opentelemetry-configuration" not in program.packages:
        found = "OTEL_CONFIG_FILE is set, but opentelemetry-configuration is not installed: the SDK stays off"
        yield problem("config file", found, f"{program.python} -m pip install '{OURS}[config]'")
    elif not Path(name).is_file():
        yield problem("config file", f"OTEL_CONFIG_FILE names {name}, which is no file", "unset OTEL_CONFIG_FILE")
    elif logged := [line for line in program.log if "onfig" in line and _HARMLESS not in line]:
        yield problem("config file", f"{name}: {logged[-1]}", f"${{EDITOR:-vi}} {name}")
    else:
        yield ok("config file", f"{name}; the SDK ignores variables that have a place in this file")


def check_instrumentors(program: ObservedProgram) -> Iterator[Finding]:
    """Check each installed memory system: version in range, instrumentor loaded and not disabled."""
    ours = [one for one in program.instrumentors if one.package == OURS]
    if not ours:
        if OURS in program.packages and not program.failure:
            reason = program.log[-1] if program.log else "the package has no entry points"
            reinstall = f"{program.python} -m pip install --force-reinstall {OURS}"
            yield problem("instrumentors", f"none is registered: {reason}", reinstall)
        return
    absent: list[str] = []
    for instrumentor in ours:
        installed = [
            (requirement, program.packages[canonical(requirement.name)].version)
            for requirement in map(Requirement, instrumentor.libraries)
            if canonical(requirement.name) in program.packages
        ]
        if installed or instrumentor.error:
            yield _check_instrumentor(instrumentor, installed, program)
        else:
            absent.append(instrumentor.name)
    if absent:
        yield ok("instrumentors", f"not needed, because their libraries are not installed: {', '.join(absent)}")


def _check_instrumentor(
    instrumentor: Instrumentor, installed: list[tuple[Requirement, str]], program: ObservedProgram
) -> Finding:
    check, pip = f"instrumentor {instrumentor.name}", f"{program.python} -m pip install"
    if instrumentor.error:
        return problem(check, f"does not load: {instrumentor.error}", f"{pip} -U {OURS}")
    for requirement, version in installed:
        if not requirement.specifier.contains(version, prereleases=True):
            found = f"{requirement.name} {version} is outside the supported range {requirement.specifier}"
            return problem(check, found, f"{pip} '{requirement.name}{requirement.specifier}'")
    libraries = ", ".join(f"{requirement.name} {version}" for requirement, version in installed)
    if instrumentor.active:
        return ok(check, f"records {libraries}")
    disabled = _disabled_names(program)
    if disabled & {instrumentor.name, "*"}:
        left = sorted(disabled - {one.name for one in program.instrumentors if one.package == OURS} - {"*"})
        remedy = f"export {DISABLED}={','.join(left)}" if left else f"unset {DISABLED}"
        return problem(check, f"{libraries} is not recorded: {DISABLED} names {instrumentor.name} or *", remedy)
    named = next((line for line in program.log if instrumentor.name in line), "")
    if not named and program.environ.get(CONFIG_FILE):
        named = f"{program.environ[CONFIG_FILE]} may disable the instrumentor"
    reason = program.failure or named or "the log names no reason"
    in_file = f"instrumentation/development: python: {instrumentor.name}: {{enabled: true}}"
    return problem(check, f"{libraries} is not recorded: {reason}", program.change(f"{pip} -U {OURS}", in_file))


def _disabled_names(program: ObservedProgram) -> set[str]:
    return {name.strip() for name in program.environ.get(DISABLED, "").split(",")} - {""}


def check_other_instrumentations(program: ObservedProgram) -> Iterator[Finding]:
    """Check for other instrumentations of a library that one of ours records."""
    disabled = _disabled_names(program)
    recorded = {
        canonical(Requirement(library).name)
        for one in program.instrumentors
        if one.package == OURS and one.active
        for library in one.libraries
    }
    for other in program.instrumentors:
        if other.package == OURS or other.package not in program.packages or disabled & {other.name, "*"}:
            continue
        wanted = requirements(program.packages[other.package], ("instruments", "instruments-any"))
        shared = sorted({canonical(requirement.name) for requirement in wanted} & recorded & set(program.packages))
        check = f"instrumentation {other.name}"
        if shared and _LINKED.issuperset(shared):
            yield ok(check, f"{other.package} records {', '.join(shared)} as well; ours enriches those spans")
        elif shared:
            found = f"{other.package} records {', '.join(shared)} as well: every operation appears twice"
            yield warning(check, found, f"export {DISABLED}={','.join(sorted(disabled | {other.name}))}")


def check_gevent(program: ObservedProgram) -> Iterator[Finding]:
    """Check that monkey patches of gevent come before the modules that instrumentation imports (`ssl`, `threading`)."""
    if "gevent" in program.packages and program.environ.get(GEVENT) != "patch_all":
        found = "gevent is installed: monkey.patch_all() of the program comes after instrumentation, and may hang it"
        yield warning("gevent", found, f"export {GEVENT}=patch_all")


def check_provider(program: ObservedProgram) -> Iterator[Finding]:
    """Check that the provider is one of the SDK and has an exporter."""
    if OURS not in program.packages:
        return
    if program.failure:
        found = "the SDK is not set up completely" if program.sdk else "no tracer provider of the SDK"
        blamed = sorted(
            name
            for name, value in program.environ.items()
            if name.startswith("OTEL_") and (name in program.failure or (value and f"'{value}'" in program.failure))
        )
        remedy = program.change(f"unset {' '.join(blamed)}" if blamed else program.rerun, "correct the named line")
        yield problem("provider", f"{found}: {program.failure}", remedy)
        return
    yield ok("provider", program.provider)
    ours = [exporter.path for exporter in program.exporters if exporter.path]
    if ours:
        yield ok("exporter", ", ".join(exporter.path or exporter.kind for exporter in program.exporters))
    elif not program.exporters:
        found = "no span exporter: the SDK drops every span" + (f" ({program.log[-1]})" if program.log else "")
        yield problem("exporter", found, program.change(f"export {EXPORTER}=memtrace", _IN_FILE))
    else:
        kinds = ", ".join(exporter.kind for exporter in program.exporters)
        names = [name.strip() for name in (program.environ.get(EXPORTER) or "otlp").split(",")]
        remedy = program.change(f"export {EXPORTER}={','.join([*names, 'memtrace'])}", _IN_FILE)
        yield warning("exporter", f"spans go to {kinds}; `attribute` and `report` need a database", remedy)


def check_sampler(program: ObservedProgram) -> Iterator[Finding]:
    """Check that the sampler keeps every trace: a lost write hides the cause of a later failure."""
    if program.sdk and program.kept < 1:
        name = program.sampler.partition(",")[0]
        found = f"{name} keeps {program.kept:.0%} of new traces; lost memory writes hide causes of later failures"
        in_file = "tracer_provider: sampler: parent_based: root: always_on: {}"
        remedy = program.change("unset OTEL_TRACES_SAMPLER OTEL_TRACES_SAMPLER_ARG", in_file)
        yield problem("sampler", found, remedy)
    elif program.sdk:
        yield ok("sampler", "keeps every new trace")


def check_limits(program: ObservedProgram) -> Iterator[Finding]:
    """Check that the span limits leave room for an operation."""
    low = False
    for limit, field, least, harm in _LIMITS:
        value = getattr(program, field)
        if value is not None and value < least:
            low = True
            names = [name for name in (f"OTEL_SPAN_{limit}", f"OTEL_{limit}") if program.environ.get(name)]
            remedy = program.change(f"unset {' '.join(names)}", f"tracer_provider: limits: {limit.lower()}: {least}")
            yield problem("limits", f"{limit} is {value}: {harm}", remedy)
    if program.sdk and not low:
        yield ok("limits", "leave room for every operation")


def check_spool(program: ObservedProgram) -> Iterator[Finding]:
    """Check the directories of spans that wait for a receiver."""
    folders = [Path(exporter.spool) for exporter in program.exporters if exporter.spool]
    limit = int(program.setting(settings.SPOOL_BYTES.name) or settings.SPOOL_BYTES.default)
    for folder in folders:
        there = next(path for path in (folder, *folder.parents) if path.exists())
        size, newest = _waiting(folder)
        free = shutil.disk_usage(there).free
        if limit and free < _LEAST_FREE_BYTES:
            found = f"{free >> 20} MiB are free for {folder}: spans that find no room in the queue are dropped"
            yield warning("spool", found, f"export {settings.SPOOL_DIR.env}=~/.local/state/memtrace-otel/spool")
        elif limit and size >= _ALMOST_FULL * limit:
            found = f"{size} of {limit} bytes wait in {folder}: new spans are dropped"
            yield problem("spool", found, f"export {settings.SPOOL_BYTES.env}={limit * 4}")
        elif size and time.time() - newest > _OLD_SECONDS:
            found = f"{size} bytes wait in {folder}; the next run with this receiver and service sends them"
            yield warning("spool", found, program.rerun)
        else:
            yield ok("spool", f"{size or 'no'} bytes wait in {folder}")


def _waiting(folder: Path) -> tuple[int, float]:
    """Return the waiting bytes of a spool directory and the time of the last write."""
    try:
        found = [path.stat() for path in folder.glob("*.spool")]
    except OSError:
        return 0, 0.0
    return sum(stat.st_size for stat in found), max((stat.st_mtime for stat in found), default=0.0)


def check_settings(program: ObservedProgram) -> Iterator[Finding]:
    """Check the values and the names of our settings, and the content switch."""
    for name, value in program.settings.items():
        if value.problem:
            yield warning("settings", f"{value.problem}; {value.value or 'empty'} is used", f"unset {_env(name)}")
    known = [setting.env for setting in settings.TABLE]
    for name in sorted(program.environ):
        if name.startswith("MEMTRACE_") and name not in known and (right := get_close_matches(name, known, 1, 0.8)):
            yield warning("settings", f"{name} is no setting", f'export {right[0]}="${name}"')
    content = settings.CAPTURE_CONTENT
    value = program.setting(content.name)
    if value in settings.CONTENT_ON:
        yield ok("content", f"{value}: contents go on spans")
    elif value:
        in_file = f"instrumentation/development: python: memtrace_openai: {{{content.name}: SPAN_ONLY}}"
        remedy = program.change(f"export {content.env}=SPAN_ONLY", in_file)
        yield warning("content", f"{value}: spans have no contents, so most verdicts will be `unknown`", remedy)


def _env(name: str) -> str:
    return settings.NAMES[name].env if name in settings.NAMES else name
