"""Runs commands on one database in one process, as a user without rights when it is started by root.

    python -m tests.integration.sources.commands FILE

Prints what came of each as JSON: [exit status, output].
"""

from __future__ import annotations

import json
import os
import sys

from click.testing import CliRunner

from memtrace_otel.cli import main as memtrace_otel
from memtrace_otel.cli.errors import user_errors
from tests.integration.sources.works import HERE

COMMANDS = {
    "stats": ("store", "stats"),
    "check": ("store", "check"),
    "compact": ("store", "compact"),
    "prune": ("store", "prune", "--scope", HERE, "--yes"),
    "forget": ("store", "forget", HERE, "--yes"),
    "feedback": ("feedback", "f" * 32, "--label", "fail"),
}


def main(path: str) -> None:
    user_errors()  # imports what is imported late: the user without rights may not be able to read the packages
    CliRunner().invoke(memtrace_otel, ["store", "prune", "--help"])
    if os.geteuid() == 0:
        os.setegid(65534)
        os.seteuid(65534)
    outcomes: dict[str, tuple[int, str]] = {}
    for name, words in COMMANDS.items():
        result = CliRunner().invoke(memtrace_otel, [*words, "--db", path])
        crash = repr(result.exception) if result.exception and not isinstance(result.exception, SystemExit) else ""
        outcomes[name] = result.exit_code, result.output + crash
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main(*sys.argv[1:])
