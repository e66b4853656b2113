"""Why does nothing appear? Every reason by name, and what to type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import join, quote

from memtrace_otel import settings
from memtrace_otel.doctor.content import (
    check_content,
    check_digest_key,
    check_names,
    check_options,
    check_places,
    check_settings,
    check_usable,
)
from memtrace_otel.doctor.database import check_database
from memtrace_otel.doctor.endpoint import check_endpoints
from memtrace_otel.doctor.finding import Finding, State, problem
from memtrace_otel.doctor.foreign import check_foreign_instrumentations
from memtrace_otel.doctor.instrumentors import check_instrumentors, check_other_instrumentations
from memtrace_otel.doctor.packages import check_packages, check_python
from memtrace_otel.doctor.program import (
    SOME_COMMAND,
    ObservedProgram,
    ProbeError,
    observe_components,
    observe_program,
    observe_settings,
)
from memtrace_otel.doctor.recorded import check_recorded
from memtrace_otel.doctor.sdk import check_config_file, check_limits, check_provider, check_sampler, check_switch
from memtrace_otel.doctor.source import check_source
from memtrace_otel.doctor.spool import check_spool
from memtrace_otel.doctor.variables import Fault, find_faults, names_components, without

__all__ = [
    "CHECKS",
    "Fault",
    "Finding",
    "ObservedProgram",
    "ProbeError",
    "State",
    "examine",
    "examine_settings",
    "examine_variables",
    "observe_program",
    "without",
]

CHECKS: tuple[Callable[[ObservedProgram], Finding | Iterable[Finding] | None], ...] = (
    check_python,
    check_packages,
    check_switch,
    check_config_file,
    check_options,
    check_instrumentors,
    check_source,
    check_other_instrumentations,
    check_provider,
    check_sampler,
    check_limits,
    check_endpoints,
    check_spool,
    check_content,
    check_foreign_instrumentations,
    check_digest_key,
    check_settings,
    check_names,
    check_places,
    check_usable,
)
"""What is checked of a program, in the order in which things must be right."""


def examine(
    python: Path, environ: Mapping[str, str], database: Path | None = None, command: Sequence[str] = ()
) -> list[Finding]:
    """Check what a program run by `python` gets in `environ`, and what the database holds.

    The database is the one that the program writes when none is given. The program's files are looked at when its
    `command` line is given. Takes about a second.
    """
    findings: list[Finding] = []
    rerun = _rerun(environ, database, command or SOME_COMMAND)
    program = None
    try:
        faults = examine_variables(python, environ)
        findings += [fault.finding() for fault in faults]
        program = replace(observe_program(python, without(environ, faults)), command=command, rerun=rerun)
    except ProbeError as error:
        findings.append(problem("python", str(error), f"{python} --version"))
    else:
        for check in CHECKS:
            result = check(program)
            findings.extend([result] if isinstance(result, Finding) else result or ())
        database = database or written_database(program)
    if database is not None:
        of_file = list(check_database(database))
        findings += of_file
        if all(finding.state != State.PROBLEM for finding in of_file):
            findings += check_recorded(database, rerun, program)
    return findings


def examine_variables(python: Path, environ: Mapping[str, str]) -> list[Fault]:
    """What a program run by `python` cannot use of the variables of OpenTelemetry in `environ`. Raises ProbeError."""
    installed = observe_components(python, environ) if names_components(environ) else {}
    return list(find_faults(environ, installed, python))


def examine_settings(python: Path, environ: Mapping[str, str]) -> list[Finding]:
    """What a program run by `python` cannot use of our settings in `environ`; that contents are off is no finding."""
    try:
        program = observe_settings(python, environ)
    except ProbeError as error:
        return [problem("settings", str(error), f"{python} --version")]
    found = [*check_content(program), *check_settings(program), *check_usable(program)]
    return [finding for finding in found if finding.state == State.PROBLEM or finding.check == "settings"]


def _rerun(environ: Mapping[str, str], database: Path | None, command: Sequence[str]) -> str:
    """What to type to record a program."""
    if environ.get("OTEL_CONFIG_FILE"):  # `run` refuses it
        return f"opentelemetry-instrument -- {join(command)}"
    return f"memtrace-otel run {f'--db {quote(str(database))} ' if database else ''}-- {join(command)}"


def written_database(program: ObservedProgram) -> Path | None:
    """The file that the program writes, else the one that it would write when that is there from earlier."""
    paths = [Path(exporter.path) for exporter in program.exporters if exporter.path]
    earlier = Path(program.setting(settings.DB_PATH.name))
    return paths[0] if paths else earlier if earlier.is_file() else None
