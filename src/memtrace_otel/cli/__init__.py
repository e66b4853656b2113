"""The `memtrace-otel` command: parse, call, print.

Exit status: 0 done, 1 nothing found (`doctor`, `store check`: a problem found), 2 bad arguments or input. `run` has the
exit status of its program.
"""

from __future__ import annotations

import sys

import click
from click.shell_completion import get_completion_class

from memtrace_otel.cli.audit import audit
from memtrace_otel.cli.bench import bench
from memtrace_otel.cli.canary import canary
from memtrace_otel.cli.config import config
from memtrace_otel.cli.demo import demo
from memtrace_otel.cli.failures import answers, attribute, report
from memtrace_otel.cli.feedback import feedback
from memtrace_otel.cli.graph import graph
from memtrace_otel.cli.health import health
from memtrace_otel.cli.observe import doctor, run
from memtrace_otel.cli.options import examples
from memtrace_otel.cli.own_environment import set_aside
from memtrace_otel.cli.repair import repair
from memtrace_otel.cli.serve import serve
from memtrace_otel.cli.spans import import_files
from memtrace_otel.cli.store import store
from memtrace_otel.cli.ui import review, ui
from memtrace_otel.cli.watch import watch
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


_COMMANDS = (
    demo,
    run,
    serve,
    doctor,
    canary,
    bench,
    answers,
    feedback,
    attribute,
    watch,
    report,
    health,
    repair,
    audit,
    ui,
    review,
    graph,
    import_files,
    store,
    config,
    version,
    completion,
)


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        "memtrace-otel demo",
        "memtrace-otel run --content -- python app.py",
        "memtrace-otel doctor",
        "memtrace-otel attribute --all",
        "memtrace-otel report -o report.html",
    ),
)
@click.version_option(__version__, prog_name="memtrace-otel")
@click.pass_context
def main(context: click.Context) -> None:
    """Find the memory operation that made an agent's answer fail."""
    context.with_resource(set_aside())


for command in _COMMANDS:
    main.add_command(command)
