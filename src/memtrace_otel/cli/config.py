"""The command `config`: every setting with its current value and the origin of the value."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memtrace_otel import settings
from memtrace_otel.cli.errors import clear_errors
from memtrace_otel.cli.options import examples
from memtrace_otel.cli.own_environment import program_environment

if TYPE_CHECKING:
    from rich.console import RenderableType

_CHANGED = "cyan"


@click.command(epilog=examples("memtrace-otel config", "MEMTRACE_PREVIEW_BYTES=500 memtrace-otel config --json"))
@click.option("--json", "as_json", is_flag=True, help="A JSON list on standard output.")
@clear_errors
def config(as_json: bool) -> None:
    """Print every setting: value, source of the value, variable, and name in Python and YAML.

    With OTEL_CONFIG_FILE the values are those of a program under that file. Secrets are not shown.
    """
    rows = _current_settings(program_environment())
    if as_json:
        click.echo(json.dumps(rows, indent=1, ensure_ascii=False))
    else:
        from memtrace_otel.cli.output import print_table

        print_table(_settings_table(rows))


def _current_settings(environ: Mapping[str, str]) -> list[dict[str, str]]:
    """Return one row per setting: name, variable, value, source, problem and help; a secret's value is `set` or ''.

    Source is `default`, `environment` or, when that file sets it, `OTEL_CONFIG_FILE`.
    """
    file = environ.get("OTEL_CONFIG_FILE")
    if file:
        from memtrace_otel.doctor import ProbeError, observe_program
        from memtrace_otel.launch import LaunchError

        try:
            found = observe_program(Path(sys.executable), environ, "").settings
        except ProbeError as error:
            raise LaunchError(str(error)) from None
        values = {name: (value.value, value.source, value.problem) for name, value in found.items()}
    else:
        values = {setting.name: _value(setting, environ) for setting in settings.TABLE}
    rows: list[dict[str, str]] = []
    for setting in settings.TABLE:
        value, source, problem = values[setting.name]
        origin = "OTEL_CONFIG_FILE" if source == "argument" else source
        row = {"name": setting.name, "variable": setting.env, "value": value, "source": origin, "problem": problem}
        rows.append(row | {"help": setting.help})
    return rows


def _settings_table(rows: Sequence[Mapping[str, str]]) -> RenderableType:
    """Return the rows as a table; other values than the default are coloured, unusable values have a red line."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_edge=False)
    for title, overflow in (("setting", "fold"), ("value", "ellipsis"), ("from", "fold"), ("variable", "fold")):
        table.add_column(title, overflow=overflow)  # pyright: ignore[reportArgumentType]
    for row in rows:
        style = "" if row["source"] == "default" else _CHANGED
        table.add_row(Text(row["name"]), Text(row["value"] or "empty", style), row["source"], row["variable"])
        if row["problem"]:
            table.add_row("", Text(row["problem"], "red"), "", "")
    return table


def _value(setting: settings.AnySetting, environ: Mapping[str, str]) -> tuple[str, str, str]:
    found = setting.find(environ)
    return setting.shown(found.value), found.source, found.problem
