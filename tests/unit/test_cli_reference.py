"""docs/reference/cli.md is what the commands say of themselves.

Written by: python -m tests.unit.test_cli_reference > docs/reference/cli.md
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import click

from memtrace_otel.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def page() -> str:
    """The reference of every command, in the order of `--help`."""
    parts = ["# Commands", inspect.cleandoc(inspect.getdoc(inspect.getmodule(main.callback)) or "")]
    context = click.Context(main, info_name="memtrace-otel", terminal_width=120)
    for command in main.commands.values():
        parts += section(command, click.Context(command, parent=context, info_name=command.name))
    return "\n\n".join(parts) + "\n"


def section(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"## {context.command_path}"
    yield inspect.cleandoc(command.help or "")
    yield code(command.get_usage(context).removeprefix("Usage: "))
    rows = [parameter.get_help_record(context) for parameter in command.params if isinstance(parameter, click.Option)]
    if rows:
        cells = [tuple(cell.replace("|", "\\|") for cell in row) for row in rows if row]
        yield "\n".join(["| option | meaning |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in cells)])
    if command.epilog:
        yield code(inspect.cleandoc("\n".join(command.epilog.splitlines()[2:])))
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        yield from section(inner, click.Context(inner, parent=context, info_name=inner.name))


def code(text: str) -> str:
    return f"```sh\n{text}\n```"


def test_the_reference_is_what_the_commands_say() -> None:
    assert PAGE.read_text("utf-8") == page()


if __name__ == "__main__":
    print(page(), end="")
