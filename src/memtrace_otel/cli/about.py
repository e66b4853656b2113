"""`version`, `completion`."""

from __future__ import annotations

import sys

import click
from click.shell_completion import get_completion_class

from memtrace_otel.cli.options import examples
from memtrace_otel.version import __version__


@click.command()
def version() -> None:
    """Print the version of memtrace-otel, of its wire contract and of Python."""
    from memtrace_otel.semconv import WIRE_VERSION

    click.echo(f"memtrace-otel {__version__}, wire {WIRE_VERSION}, Python {sys.version.split()[0]}")


@click.command(epilog=examples('eval "$(memtrace-otel completion bash)"', "memtrace-otel completion zsh >> ~/.zshrc"))
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands and options in a shell."""
    kind = get_completion_class(shell)
    assert kind is not None  # click knows all three
    click.echo(kind(context.find_root().command, {}, "memtrace-otel", "_MEMTRACE_OTEL_COMPLETE").source())
