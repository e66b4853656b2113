"""What `make bench` leaves: the results, and an exit status that tells whether every bar holds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.bench import __main__ as bench
from tests.bench import workload
from tests.bench.measure import Measure, at_least, at_most

WITHIN = at_most("cost", 90.0, 130.0, 1.6, "us", ratio=1.5)
ENOUGH = at_least("acknowledged", 3000, 1000, 3, "spans/s")
TOO_MUCH = at_most("memory", 65.0, 640.0, 0.1, "MiB")
TOO_FEW = at_least("acknowledged", 2999, 1000, 3, "spans/s")
TOO_SLOW = at_most("cost", 1.0, 1.0, 1.6, "us", ratio=1.61)


@pytest.mark.parametrize(
    ("rows", "status"),
    [([WITHIN, ENOUGH], 0), ([WITHIN, TOO_MUCH], 1), ([TOO_FEW, WITHIN], 1), ([TOO_SLOW], 1)],
)
def test_the_results_of_all_measures_are_written_and_a_bar_that_falls_short_fails(
    rows: list[Measure],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(bench, "import_module", lambda _: SimpleNamespace(measure=lambda: iter(rows)))
    monkeypatch.setattr(sys, "argv", ["tests.bench", "--child", "memory"])
    assert bench.main() == 0
    said = capsys.readouterr().out
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: subprocess.CompletedProcess(a, 0, said))
    monkeypatch.setattr(bench, "RESULTS", tmp_path / "bench" / "results.json")
    monkeypatch.setattr(workload, "FOLDER", tmp_path / "workload")
    monkeypatch.setattr(sys, "argv", ["tests.bench", "--only", "memory"])
    assert bench.main() == status
    written = json.loads((tmp_path / "bench" / "results.json").read_text())
    fields = ["name", "ours", "yardstick", "unit", "ratio", "bar", "holds"]
    assert [list(row) for row in written] == [fields] * len(rows)
    assert [row["holds"] for row in written] == [row.holds for row in rows]
    assert capsys.readouterr().out.count("NO") == sum(not row.holds for row in rows)


def test_a_module_that_fails_is_named_and_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = json.dumps({name: getattr(WITHIN, name) for name in bench.FIELDS})

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, int(command[-1] == "delivery"), row + "\n")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(bench, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(workload, "FOLDER", tmp_path / "workload")
    page = tmp_path / "page.md"
    page.write_text("as it was")
    monkeypatch.setattr(sys, "argv", ["tests.bench", "--only", "delivery", "--only", "memory", "--page", str(page)])
    assert bench.main() == 1
    assert len(json.loads((tmp_path / "results.json").read_text())) == 2
    assert page.read_text() == "as it was"
    assert "failed, with what they say above: delivery\n" in capsys.readouterr().err
