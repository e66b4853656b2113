"""The doctor: name every reason why nothing, or too little, is recorded, with the command that helps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import join, quote

from memtrace_otel import settings
from memtrace_otel.doctor import checks
from memtrace_otel.doctor.database import check_database
from memtrace_otel.doctor.endpoint import check_endpoints
from memtrace_otel.doctor.finding import Finding, State, problem
from memtrace_otel.doctor.program import CONFIG_FILE, ObservedProgram, ProbeError, observe_program
from memtrace_otel.doctor.recorded import check_recorded

__all__ = ["CHECKS", "Finding", "ObservedProgram", "ProbeError", "State", "examine", "judge", "observe_program"]

CHECKS = (
    checks.check_python,
    checks.check_packages,
    checks.check_switches,
    checks.check_instrumentors,
    checks.check_other_instrumentations,
    checks.check_gevent,
    checks.check_provider,
    checks.check_sampler,
    checks.check_limits,
    check_endpoints,
    checks.check_spool,
    checks.check_settings,
)
"""The checks of a program's set-up, in the order in which the parts depend on each other."""


def examine(
    python: Path, environ: Mapping[str, str], database: Path | None = None, command: Sequence[str] = ()
) -> list[Finding]:
    """Return the findings on the set-up that `python` gets in `environ`, and on the last recorded run.

    `database` defaults to the file that the program writes. `command` is the program's command line, for the remedies;
    the command is not run. Takes about a second.
    """
    rerun = _rerun(environ, database, command)
    try:
        program = observe_program(python, environ, rerun)
    except ProbeError as error:
        findings = [problem("python", str(error), f"{python} --version")]
    else:
        findings = judge(program)
        database = database or _written_database(program)
    if database is not None:
        of_file = list(check_database(database))
        findings += of_file
        if all(finding.state != State.PROBLEM for finding in of_file):
            findings += check_recorded(database, rerun)
    return findings


def judge(program: ObservedProgram) -> list[Finding]:
    """Return the findings of every check on an observed program; runs no code of the program."""
    return [finding for check in CHECKS for finding in check(program)]


def _rerun(environ: Mapping[str, str], database: Path | None, command: Sequence[str]) -> str:
    """Return the command that records the program."""
    program = join(command or ("python", "app.py"))
    if environ.get(CONFIG_FILE):  # `memtrace-otel run` refuses OTEL_CONFIG_FILE
        return f"opentelemetry-instrument -- {program}"
    return f"memtrace-otel run {f'--db {quote(str(database))} ' if database else ''}-- {program}"


def _written_database(program: ObservedProgram) -> Path | None:
    """Return the file that the program writes, else the file of an earlier run."""
    paths = [Path(exporter.path) for exporter in program.exporters if exporter.path]
    earlier = Path(program.setting(settings.DB_PATH.name))
    return paths[0] if paths else earlier if earlier.is_file() else None
