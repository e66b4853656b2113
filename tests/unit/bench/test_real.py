"""Cases on real systems under capture; systems that are not installed here run in `tests/environments`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from memtrace_otel.bench import real
from memtrace_otel.bench.faults import CODES
from memtrace_otel.bench.generate import Case, Plan, make_case
from memtrace_otel.bench.real import SYSTEMS, RealSystemError, check_installed
from memtrace_otel.cli import main
from memtrace_otel.otlp import decode_request
from memtrace_otel.semconv import OpKind

REWRITING = {OpKind.RESPOND, OpKind.CONSOLIDATE}
"""A notebook is written by a call of the model, which the next call shows as a changed prompt."""
FAULTS = [
    pytest.param("mem0", "E1", {OpKind.EXTRACT}, marks=pytest.mark.slow),
    pytest.param("mem0", "U2", {OpKind.UPDATE, OpKind.RESPOND}, marks=pytest.mark.slow),
    pytest.param("mem0-1", "E1", {OpKind.EXTRACT}, marks=pytest.mark.slow),
    ("mem0-1", "U1", {OpKind.UPDATE, OpKind.DECIDE}),
    pytest.param("mem0-1", "U3", {OpKind.DECIDE}, marks=pytest.mark.slow),
    pytest.param("mem0-1", "D1", {OpKind.DELETE, OpKind.DECIDE}, marks=pytest.mark.slow),
    ("rag", "R1", {OpKind.RETRIEVE}),
    pytest.param("rag", "R3", {OpKind.RESPOND}, marks=pytest.mark.slow),
    pytest.param("rag", "M1", {OpKind.RESPOND}, marks=pytest.mark.slow),
    ("notebook", "E2", REWRITING),
    pytest.param("notebook", "D1", REWRITING, marks=pytest.mark.slow),
    ("long-context", "R3", {OpKind.RESPOND}),
    pytest.param("long-context", "N2", {OpKind.JUDGE}, marks=pytest.mark.slow),
]


def case_of(system: str, code: str) -> Case:
    try:
        check_installed(system)
    except RealSystemError as error:
        pytest.skip(str(error))
    return make_case(Plan(4, 1, systems=(system,), faults=(code,), messages=(10, 10)), 0)


@pytest.mark.parametrize(("system", "code", "kinds"), FAULTS)
def test_the_fault_of_a_case_is_at_a_recorded_operation(system: str, code: str, kinds: set[OpKind]) -> None:
    case = case_of(system, code)
    spans = {span.origin: span for span in decode_request(case.request)}
    assert case.truth["judged_right"] is False
    assert {spans[origin].kind for origin in case.truth["operations"]} == kinds
    assert spans[case.truth["answer"]].kind == OpKind.RESPOND
    assert any(span.evidence for span in spans.values())
    written = " ".join(f"{span.attributes} {span.resource} {span.inputs} {span.outputs}" for span in spans.values())
    labels = "|".join(set(CODES) - {"healthy"})  # an ordinary word of a prompt of Mem0
    assert not re.search(rf"\b({labels}|bench|planted)\b", written)


def test_a_case_knows_nothing_of_the_case_before() -> None:
    first, second = case_of("notebook", "A1"), case_of("notebook", "A1")
    traces = {span.trace_id for span in decode_request(first.request)}
    for span in decode_request(second.request):
        assert not traces & {span.trace_id, *(variable.origin[:32] for variable in span.inputs)}


@pytest.mark.parametrize(
    ("system", "installed", "told"),
    [
        ("mem0", {}, "pip install 'memtrace-otel[demo]'"),
        ("mem0", {"mem0ai": "1.0.3"}, "mem0ai 1.0.3 is installed: in another environment, pip install"),
        ("mem0-1", {"mem0ai": "2.2.1"}, "pip install 'mem0ai>=1,<2' qdrant-client"),
        ("rag", {"langchain-core": "1.0"}, "langchain-openai"),
    ],
)
def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, system: str, installed: dict[str, str], told: str
) -> None:
    def version(name: str) -> str:
        if name not in installed:
            raise real.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(real, "version", version)
    directory = tmp_path / "cases"
    result = CliRunner().invoke(
        main, ["bench", "generate", "--out", str(directory), "--system", system, "--cases", "1"]
    )
    assert result.exit_code == 2
    assert told in result.stderr
    assert not directory.exists()


def test_a_program_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    system = real.RealSystem("missing", (), "", frozenset(CODES), embeds=False)
    monkeypatch.setitem(SYSTEMS, "missing", system)  # type: ignore[arg-type]
    with pytest.raises(RealSystemError, match="ended with"):
        make_case(Plan(4, 1, systems=("missing",), faults=("A1",), messages=(10, 10)), 0)
