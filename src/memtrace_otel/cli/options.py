"""Options and arguments that several commands share, and the examples at the end of their help."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from memtrace_otel import settings
from memtrace_otel.model import parse_time

if TYPE_CHECKING:
    from memtrace_otel.attribution.endpoint import Endpoint
    from memtrace_otel.attribution.entailment import Reader
    from memtrace_otel.attribution.methods import Ask
    from memtrace_otel.attribution.replay import Verifier
    from memtrace_otel.pages import Page

P = ParamSpec("P")
R = TypeVar("R")

_SQLITE = b"SQLite format 3\0"
"""The first bytes of a SQLite database."""
_TRACE_ID_DIGITS = 32
_LEAST_DIGITS = 16
DAY = 24 * 3600 * 10**9
"""Nanoseconds."""
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_AGO = re.compile(r"(\d{1,6})([smhd])")


def database_option(command: Callable[P, R]) -> Callable[P, R]:
    """`--db FILE`."""
    return click.option(
        "--db",
        "database",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar=settings.DB_PATH.env,
        default=settings.DB_PATH.default,
        show_default=True,
        show_envvar=True,
        help="Database written by OTEL_TRACES_EXPORTER=memtrace or by `import`.",
    )(command)


def no_database(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Refuse an output file that is a SQLite database: an existing file is replaced. A click callback."""
    if path and path.is_file():
        with open(path, "rb") as file:
            if file.read(len(_SQLITE)) == _SQLITE:
                raise click.BadParameter(f"{path} is a database and would be lost; name another file")
    return path


def source_option(command: Callable[P, R]) -> Callable[P, R]:
    """`--source URL`."""
    return click.option(
        "--source",
        default="",
        metavar="URL",
        help="Read a tracing backend instead: jaeger+http://HOST[:PORT] or tempo+http://HOST[:PORT], also +https. "
        "MEMTRACE_SOURCE_* hold token, headers and limits.",
    )(command)


def repair_option(command: Callable[P, R]) -> Callable[P, R]:
    """`--repair RUN`."""
    return click.option(
        "--repair",
        "run",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="Run of `repair optimize`: the metrics show when its repair was applied (alert MemoryRepairRegressed).",
    )(command)


def look_in_option(command: Callable[P, R]) -> Callable[P, R]:
    """`--look-in URL`."""
    return click.option(
        "--look-in",
        default="",
        metavar="URL",
        help="Read this backend before sending verdicts of the database: verdicts that the backend shows are not sent "
        "again. Needed for a second database with the same spans. The form is that of --source.",
    )(command)


def since_option(command: Callable[P, R]) -> Callable[P, R]:
    """`--since AGO`, as ns since the epoch; None when the option is not given."""
    return _since_option("Failures found since: 90m, 24h (default), 7d, or a time such as 2026-11-24T08:00:00Z.")(
        command
    )


def period_option(command: Callable[P, R]) -> Callable[P, R]:
    """`--since AGO`; without the option the command reads the whole database, and the value is None."""
    return _since_option(
        "Operations since: 90m, 24h, 7d, or a time such as 2026-11-24T08:00:00Z. Default: the whole database."
    )(command)


def _since_option(text: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    return click.option("--since", callback=_since, metavar="AGO", help=text)


def _since(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    if (found := _AGO.fullmatch(value)) is not None:
        return time.time_ns() - int(found[1]) * _SECONDS[found[2]] * 10**9
    with suppress(ValueError, OverflowError):
        if (then := parse_time(value)) >= 0:
            return then
    raise click.BadParameter(f"{value!r} is neither a duration such as 24h nor a time since 1970")


def page_option(command: Callable[P, R]) -> Callable[P, R]:
    """`--ui KIND=URL`."""
    return click.option(
        "--ui",
        "page",
        metavar="KIND=URL",
        callback=_page,
        help="The backend's page: jaeger=http://localhost:16686, or tempo=http://localhost:3000 for Grafana Explore "
        "(?datasource=UID). Default: the page on the receiver's host that shows the traces.",
    )(command)


def _page(context: click.Context, parameter: click.Parameter, value: str | None) -> Page | None:
    from memtrace_otel.pages import PageError, read_page

    try:
        return read_page(value) if value else None
    except PageError as error:
        raise click.BadParameter(str(error)) from None


def check_trace_ids(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Refuse texts that are no trace id. Upper case, and ids without leading zeros as in Tempo, are accepted."""
    ids = (value,) if isinstance(value, str) else value
    for id in ids:
        if not _LEAST_DIGITS <= len(id) <= _TRACE_ID_DIGITS or not set(id.lower()) <= set("0123456789abcdef"):
            raise click.BadParameter(f"{id!r} is no trace id: 32 hex digits are needed")
    whole = tuple(id.lower().zfill(_TRACE_ID_DIGITS) for id in ids)
    return whole[0] if isinstance(value, str) else whole


def check_scope(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Refuse an empty scope, which would mean all scopes, and bytes that are no UTF-8 text."""
    if value == "":
        raise click.BadParameter("give a scope")
    try:
        (value or "").encode()
    except UnicodeEncodeError:
        raise click.BadParameter("no UTF-8 text") from None
    return value


def examples(*lines: str) -> str:
    """Return the examples at the end of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def model_options(command: Callable[P, R]) -> Callable[P, R]:
    """`--method`, `--concurrency` and `--max-cost`."""
    for option in (
        click.option(
            "--max-cost",
            type=click.FloatRange(0),
            metavar="MONEY",
            help="No call of the model is made after so much money; MEMTRACE_MODEL_INPUT_PRICE and "
            "MEMTRACE_MODEL_OUTPUT_PRICE are the prices of a million tokens.",
        ),
        click.option(
            "--concurrency",
            default=4,
            show_default=True,
            type=click.IntRange(1, 256),
            help="Cases about which the model is asked at the same time.",
        ),
        click.option(
            "--method",
            default="rules",
            show_default=True,
            type=click.Choice(["rules", "rules+model", "agent", "rules+agent"]),
            help="What attributes. rules+model: a model (MEMTRACE_MODEL) reads the texts of the cases that rules leave "
            "unsure. agent: a model walks the graph of every case; rules+agent: of those tied or unknown.",
        ),
    ):
        command = option(command)
    return command


def endpoint_within(max_cost: float | None) -> Endpoint:
    """Return the endpoint of the settings. Raise UsageError when a bound on the cost lacks prices."""
    from memtrace_otel.attribution.endpoint import Endpoint

    try:
        return Endpoint(max_cost=max_cost)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def named_endpoint() -> Endpoint:
    """Return the endpoint of the settings. Raise UsageError when the endpoint or the model is not named."""
    endpoint = endpoint_within(None)
    try:
        endpoint.check()
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if not endpoint.model:
        raise click.UsageError(f"name the model: {settings.MODEL.env}")
    return endpoint


def model_reader(endpoint: Endpoint) -> Reader:
    """Return what compares texts by meaning. Raise UsageError when no model is named, or the model cannot be used."""
    from memtrace_otel.attribution.model_reader import open_reader

    try:
        return open_reader(endpoint)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def ask_with(method: str, endpoint: Endpoint) -> Ask | None:
    """Return what asks the model of a method, None for `rules`. Raise UsageError when no model is named."""
    from memtrace_otel.attribution.methods import ask_with

    try:
        return ask_with(method, endpoint)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def verifier(endpoint: Endpoint, reader: Reader | None, replayers: Sequence[str], *, asks: bool = True) -> Verifier:
    """Return what runs failures again, with our replayers and those named `module:name`.

    Raise UsageError without an endpoint, unless nothing is asked.
    """
    from memtrace_otel.attribution.replay import Verifier, known_replayers, load_replayer

    if asks:
        try:
            endpoint.check()
        except ValueError as error:
            raise click.UsageError(str(error)) from None
    try:
        own = [load_replayer(name) for name in replayers]
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--replayer") from None
    return Verifier(endpoint, replayers=[*known_replayers(), *own], reader=reader)


def replayer_option(command: Callable[P, R]) -> Callable[P, R]:
    """`--replayer MODULE:NAME`."""
    return click.option(
        "--replayer",
        "replayers",
        multiple=True,
        metavar="MODULE:NAME",
        help="A replayer for a memory of your own, repeatable: the memory is built again in a scratch store.",
    )(command)
