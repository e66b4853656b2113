"""The commands `run` and `doctor`: record a program, and explain why nothing is recorded."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import join, quote

import click
from click.core import ParameterSource

from memtrace_otel import settings
from memtrace_otel.cli.errors import NOTHING_FOUND, clear_errors
from memtrace_otel.cli.options import database_option, examples
from memtrace_otel.cli.own_environment import program_environment

_SHOWN_ANSWERS, _SHOWN_WORDS = 3, 60
"""Judged answers at the end of a run, and characters of each."""


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog=examples(
        "memtrace-otel run --content -- python app.py --port 8000",
        "memtrace-otel run --db run.db --service shop -- python -m shop.agent",
        "memtrace-otel run --otlp http://localhost:4317 -- uvicorn shop:app",
    ),
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND [ARGUMENT]...")
@database_option
@click.option(
    "--content/--no-content",
    default=None,
    help="Put contents on spans. Default: the environment, else no contents. Verdicts compare contents.",
)
@click.option("--service", metavar="NAME", help="`service.name`. Default: OTEL_SERVICE_NAME, else the program's name.")
@click.option(
    "--otlp",
    "endpoint",
    metavar="URL",
    help="Also send the spans to this OTLP receiver, when the environment names none.",
)
@click.option("--quiet", is_flag=True, help="No summary at the end: the program replaces this process.")
@clear_errors
def run(
    command: tuple[str, ...],
    database: Path,
    content: bool | None,
    service: str | None,
    endpoint: str | None,
    quiet: bool,
) -> None:
    """Run a Python program and record its memory operations into the database.

    The unchanged program is started by opentelemetry-instrument. Streams, signals and the exit status are those of the
    program. OpenTelemetry variables of the environment apply. Backends that get spans today still get spans.
    """
    from memtrace_otel.launch import (
        check_python,
        find_program,
        leave_like,
        recording_environment,
        replace_process,
        run_process,
    )

    program = find_program(command)
    check_python(program.python)
    environ = recording_environment(
        program_environment(), database=database, name=program.name, service=service, content=content, endpoint=endpoint
    )
    for line in _unusable_settings(environ):
        click.secho(line, err=True, dim=True)
    started = time.time_ns()
    if quiet:
        replace_process(program.observed_command, environ)
    status = run_process(program.observed_command, environ)
    with suppress(KeyboardInterrupt):  # an impatient user gets no summary, but the program's status
        try:
            for line in _summary(Path(environ[settings.DB_PATH.env]), started, command, status == -9):
                click.secho(line, err=True, dim=True)
        except Exception as error:  # the exit status is that of the program
            click.secho(f"memtrace-otel: the summary failed: {type(error).__name__}: {error}", err=True, dim=True)
    leave_like(status)


def _unusable_settings(environ: Mapping[str, str]) -> Iterator[str]:
    """Return one line for each setting whose value the program cannot use."""
    for setting in settings.TABLE:
        found = setting.find(environ)
        if found.problem:
            used = setting.shown(found.value) or "empty"
            yield f"memtrace-otel: {found.problem}; {used} is used; type: unset {setting.env}"


def _with_folder(environ: Mapping[str, str], command: Sequence[str]) -> dict[str, str]:
    """Return `environ` in which Python finds the modules beside a script, as the script itself does."""
    scripts = [Path(word) for word in command[1:] if word.endswith(".py") and Path(word).is_file()]
    places = [*[str(script.absolute().parent) for script in scripts[:1]], environ.get("PYTHONPATH", "")]
    return {**environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}


def _summary(database: Path, started: int, command: Sequence[str], killed: bool) -> Iterator[str]:
    """Yield the lines at the end of a run: recorded operations, missing information, the next command."""
    from memtrace_otel.launch import read_recorded
    from memtrace_otel.sources import SourceError

    try:
        recorded = read_recorded(database, started)
    except SourceError as error:
        yield f"memtrace-otel: {error}"
        return
    elsewhere = "" if database == Path(settings.DB_PATH.default).absolute() else f" --db {quote(str(database))}"
    if not recorded.operations:
        if recorded.waiting:
            yield f"memtrace-otel: {recorded.waiting} bytes of spans wait in the spool: {database} could not be written"
            yield "  the next run with the same database and service name writes them"
            return
        yield "memtrace-otel: no memory operation was recorded"
        if recorded.suppressed:
            yield f"  not recorded, because the program suppressed instrumentation: {recorded.suppressed}"
        if killed:
            yield "  SIGKILL ended the program and its last spans are lost; type: kill <pid> (SIGTERM)"
        yield f"  to see why: memtrace-otel doctor --run{elsewhere} -- {join(command)}"
        return
    systems = ", ".join(recorded.systems)
    count = f"{'' if recorded.complete else 'over '}{recorded.operations} operation{'s' * (recorded.operations != 1)}"
    yield f"memtrace-otel: {count} of {systems} recorded in {database}"
    if recorded.suppressed:
        yield f"  not recorded, because the program suppressed instrumentation: {recorded.suppressed}"
    if recorded.without_content:
        yield "  without contents, so most verdicts will be `unknown`: add --content"
    if recorded.complete and not recorded.judged:
        yield "  no answer was judged yet; to judge one: memtrace-otel feedback TRACE_ID, or feedback(...)"
        yield f"  next: memtrace-otel answers{elsewhere}"
        return
    yield from _judged(database, started)
    yield f"  next: memtrace-otel attribute --all{elsewhere}"


def _judged(database: Path, started: int) -> Iterator[str]:
    """Yield one line for each of the newest judged answers: the judgement, the first words and the trace."""
    from memtrace_otel.model.printable import one_line
    from memtrace_otel.pipeline.answers import judged_answers
    from memtrace_otel.sources import SqliteStore

    with SqliteStore.open(database, create=False) as store:
        for answer in judged_answers(store, started, _SHOWN_ANSWERS):
            words = one_line(answer.answer, _SHOWN_WORDS) if answer.answer else "text not captured"
            yield f"  judged {answer.label}: the answer {words!r} in trace {answer.trace_id}"


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog=examples(
        "memtrace-otel doctor",
        "OTEL_TRACES_EXPORTER=memtrace memtrace-otel doctor -- python app.py",
        "memtrace-otel doctor --run --content -- python app.py",
    ),
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND [ARGUMENT]...]")
@database_option
@click.option("--json", "as_json", is_flag=True, help="A JSON list of findings on standard output.")
@click.option("--run", "as_run", is_flag=True, help="Check the program as `memtrace-otel run` would start it.")
@click.option("--content", is_flag=True, help="With --run: check the program as `run --content` would start it.")
@click.pass_context
@clear_errors
def doctor(
    context: click.Context, command: tuple[str, ...], database: Path, as_json: bool, as_run: bool, content: bool
) -> None:
    """Name every reason why nothing, or too little, is recorded, with the command that helps.

    The doctor checks the set-up that opentelemetry-instrument makes in this environment: Python, packages,
    instrumentors, provider, sampler, exporters and settings. The doctor connects to the OTLP receivers and checks the
    last recorded run in the database. COMMAND is not run; COMMAND only names the Python of the program.

    Exit status: 0 without a problem (warnings count as no problem), 1 with a problem, 2 when COMMAND is no Python
    program.
    """
    from memtrace_otel.doctor import State, examine
    from memtrace_otel.launch import find_program, recording_environment

    program = find_program(command) if command else None
    python = program.python if program else Path(sys.executable)
    given = context.get_parameter_source("database") is ParameterSource.COMMANDLINE
    environ: Mapping[str, str] = program_environment()
    if as_run:
        name = program.name if program else "python"
        environ = recording_environment(environ, database=database, name=name, content=content or None)
    findings = examine(python, _with_folder(environ, command), database if given else None, command)
    if as_json:
        click.echo(json.dumps([finding.as_json() for finding in findings], indent=1, ensure_ascii=False))
    else:
        from rich.console import Console

        from memtrace_otel.doctor.finding import show_findings

        show_findings(findings, Console())
    if any(finding.state == State.PROBLEM for finding in findings):
        sys.exit(NOTHING_FOUND)
