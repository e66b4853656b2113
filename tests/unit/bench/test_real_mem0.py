"""Cases on a real Mem0 under capture."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from memtrace_otel.bench import real_mem0
from memtrace_otel.bench.generate import Plan, make_case
from memtrace_otel.cli import main
from memtrace_otel.otlp import decode_request


@pytest.mark.slow
@pytest.mark.parametrize("code", ["E1", "U2"])
def test_a_case_runs_on_mem0_with_its_fault_at_a_recorded_operation(code: str) -> None:
    pytest.importorskip("mem0")
    case = make_case(Plan(4, 1, systems=("mem0",), faults=(code,), messages=(10, 10)), 0)
    spans = {span.origin: span for span in decode_request(case.request)}
    assert case.truth["judged_right"] is False
    decisive = spans[case.truth["operations"][0]]
    assert (decisive.kind, decisive.system) == ("extract" if code == "E1" else "update", "mem0")
    assert spans[case.truth["answer"]].kind == "respond"
    assert any(span.evidence for span in spans.values())


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(real_mem0, "find_spec", lambda name: None)
    directory = tmp_path / "cases"
    result = CliRunner().invoke(
        main, ["bench", "generate", "--out", str(directory), "--system", "mem0", "--cases", "1"]
    )
    assert result.exit_code == 2
    assert "pip install 'memtrace-otel[demo]'" in result.stderr
    assert not directory.exists()
