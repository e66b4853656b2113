"""The settings with their current values, for `config`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from memtrace_otel import settings
from memtrace_otel.doctor import ProbeError, examine_variables, observe_program, without
from memtrace_otel.launch import LaunchError

_CHANGED = "cyan"


def current_settings(environ: Mapping[str, str]) -> list[dict[str, str]]:
    """Return one row per setting: name, variable, value, source, problem and help; a secret's value is `set` or ''.

    Source is `default`, `environment` or, when that file sets it, `OTEL_CONFIG_FILE`.
    """
    file = environ.get("OTEL_CONFIG_FILE")
    if file:
        try:
            python = Path(sys.executable)
            found = observe_program(python, without(environ, examine_variables(python, environ))).settings
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


def settings_table(rows: Sequence[Mapping[str, str]]) -> RenderableType:
    """Return the rows as a table; what is not the default stands out, what cannot be used is named."""
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
