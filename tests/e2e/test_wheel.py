"""The demo from an installed wheel, in an environment that has never seen this checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MEM0 = "mem0ai==2.2.1"


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`memtrace-otel` in a new environment that holds the wheel and its `demo` extra."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT)], check=True)
    [wheel] = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "env")], check=True)
    pip = [
        str(folder / "env" / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "-c",
        str(ROOT / "constraints.txt"),
    ]
    subprocess.run([*pip, f"memtrace-otel[demo] @ {wheel.as_uri()}", MEM0], check=True)
    return folder / "env" / "bin" / "memtrace-otel"


def test_the_demo_runs_from_a_wheel_and_names_every_planted_fault(command: Path, tmp_path: Path) -> None:
    quiet = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "MEMTRACE_"))}
    done = subprocess.run(
        [str(command), "demo"],
        cwd=tmp_path,
        env=quiet | {"COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"(\d+) of (\d+) verdicts name the planted fault", done.stdout)
    assert found, done.stdout
    assert found[1] == found[2]
    assert int(found[2]) >= 6
    report = (tmp_path / "build" / "demo" / "report.html").read_text("utf-8")
    assert report.count("<svg") >= int(found[2])
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", report)


def test_what_is_missing_is_said_clearly(command: Path, tmp_path: Path) -> None:
    done = subprocess.run([str(command), "attribute", "--all"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "memtrace.db" in done.stderr
    assert "Traceback" not in done.stderr
