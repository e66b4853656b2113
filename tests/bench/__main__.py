"""Run the benchmarks, print a table and write build/bench/results.json.

Exit status 1 when a ratio misses its bar or a module fails. After a failure the other modules run, and the page stays.

    python -m tests.bench [--only NAME] [--page docs/benchmarks.md]

Every module of tests/bench/measures runs in an interpreter of its own, so that none inherits another's providers.
"""

from __future__ import annotations

import argparse
import json
import os
import pkgutil
import platform
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from tests.bench import measures, workload
from tests.bench.measure import Measure

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "build" / "bench" / "results.json"
MARK = "<!-- written by make bench -->"
FIELDS = tuple(Measure.__slots__)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.bench")
    names = [module.name for module in pkgutil.iter_modules(measures.__path__)]
    parser.add_argument("--only", choices=names, action="append", help="run these modules alone")
    parser.add_argument("--page", type=Path, help="page whose part below the mark becomes this run")
    parser.add_argument("--child", choices=names, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        for row in import_module(f"tests.bench.measures.{chosen.child}").measure():
            print(json.dumps({name: getattr(row, name) for name in FIELDS}), flush=True)
        return 0
    shutil.rmtree(workload.FOLDER, ignore_errors=True)
    rows: list[dict[str, object]] = []
    failed: list[str] = []
    for name in chosen.only or names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "tests.bench", "--child", name]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        rows += map(json.loads, done.stdout.splitlines())
        if done.returncode:
            failed.append(name)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n")
    table = as_table(rows)
    print(table)
    if failed:
        print(f"failed, with what they say above: {', '.join(failed)}", file=sys.stderr)
    elif chosen.page:
        text = chosen.page.read_text().partition(MARK)[0]
        chosen.page.write_text(f"{text}{MARK}\n\n{machine()}\n\n{table}\n")
    return 1 if failed or not all(row["holds"] for row in rows) else 0


def as_table(rows: list[dict[str, object]]) -> str:
    """The rows as a Markdown table."""
    lines = ["| measure | ours | yardstick | unit | ratio | bar | holds |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        cells = [figure(row[name]) for name in FIELDS]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def figure(value: object) -> str:
    """A cell: three significant digits, or more before the point."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, int | float):
        return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
    return str(value)


def machine() -> str:
    """What the figures were taken on and with."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("opentelemetry-sdk", "smartcomment", "memtrace-otel"))
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.partition(":")[2].strip() for line in lines if "model name" in line), platform.processor())
    return f"{os.cpu_count()} x {cpu}, {platform.system()}, Python {platform.python_version()}, {packages}."


if __name__ == "__main__":
    sys.exit(main())
