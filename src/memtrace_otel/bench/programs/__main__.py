"""Run cases on one real system, each case in a forked process of its own.

    python -m memtrace_otel.bench.programs MODULE

A line of standard input is a case in JSON; the line of output is the exit status of the process. The packages are
imported once. Run under `opentelemetry-instrument`, with a scripted model at OPENAI_BASE_URL.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from openai import OpenAI


def main() -> None:
    """Fork for each line of standard input. The child ends as a program does: its exit handlers deliver the spans."""
    module = import_module(f"memtrace_otel.bench.programs.{sys.argv[1]}")
    assert OpenAI().chat.completions  # imports now, once, what the first call imports
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _run(module.Program, json.loads(line))
            break
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        sys.stdout.flush()


def _run(program: Any, case: dict[str, Any]) -> None:
    """Tell the turns, then ask."""
    assistant = program(Path(case["home"]))
    try:
        for turn in case["turns"]:
            assistant.chat(**turn)
        assistant.asking = case["asking"]
        assistant.ask(**case["question"])
    finally:
        assistant.close()


if __name__ == "__main__":
    main()
