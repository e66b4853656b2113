"""Scores against hand-made outcomes; comparison, page and MemTraceBench files through the commands."""

from __future__ import annotations

import json
import shutil
from math import isclose
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from memtrace_otel.bench.compare import mcnemar
from memtrace_otel.bench.generate import Plan, generate
from memtrace_otel.bench.score import Outcome, calibration_error, coverage, figures, macro_f1, outcome, wilson
from memtrace_otel.cli import main
from tests.integration.model_stub import ModelStub
from tests.unit.graph.test_smartcomment import recorded

ANSWER, OTHER, OPERATION = (f"{letter * 32}-{letter * 16}" for letter in "abc")


def said(type: str, operation: str = OPERATION, confidence: float = 0.9, second: str = "") -> dict[str, Any]:
    ranked = [[type, operation], *([[type, second]] if second else [])]
    return {"answer": ANSWER, "failure_type": type, "confidence": confidence, "ranked": ranked, "reason": ""}


def case(planted: str | None, verdict: dict[str, Any] | None, *, judged_right: bool = False) -> Outcome:
    outside = planted in (None, "judge", "annotation")
    truth = {
        "failure_type": planted, "operations": [] if outside else [OPERATION], "answer": ANSWER,
        "answer_is_right": outside, "judged_right": judged_right, "messages": 20,
    }  # fmt: skip
    return outcome(truth, {"verdicts": [verdict] if verdict else [], "seconds": 0.1, "first_loss": None})


def test_figures_count_what_they_name() -> None:
    found = figures(
        [
            case("update", said("update")),
            case("update", said("update", OTHER, 0.8, second=OPERATION)),
            case("retrieval", said("unknown", "", 0.0)),
            case("judge", said("judge", "")),
            case("annotation", said("response", OTHER)),
            case(None, None, judged_right=True),
            case(None, said("update"), judged_right=True),
        ]
    )
    counts = {name: (f["hits"], f["count"]) for name, f in found.items() if isinstance(f, dict)}
    assert counts == {
        "type": (3, 5), "eta": (2, 3), "operation_1": (1, 3), "operation_2": (2, 3), "joint": (1, 3), "right": (2, 5),
        "asked": (0, 5), "not_asked": (3, 5),
        "outside_precision": (1, 1), "outside_recall": (1, 2), "accused_healthy": (1, 2), "accused_right": (1, 2),
        "abstained": (1, 5),
    }  # fmt: skip
    assert found["coverage"] == 0.0, "of the three surest, one is wrong"


def test_statistics_are_the_published_ones() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert [round(bound, 4) for bound in wilson(86, 160)] == [0.4603, 0.613]
    assert isclose(mcnemar(1, 9), 0.021484375)
    assert mcnemar(0, 0) == mcnemar(5, 5) == 1.0
    assert macro_f1([("update", "update"), ("judge", "update")]) == round((2 / 3 + 0) / 2, 4)
    surest = [case("update", said("update", confidence=0.9))] * 9 + [case("update", said("update", OTHER, 0.5))]
    assert coverage(surest) == 1.0
    assert calibration_error(surest) == round(0.9 * 0.1 + 0.1 * 0.5, 4)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("scored")
    generate(Plan(3, 12, faults=("E1", "U1", "N2", "healthy"), messages=(12, 14)), directory, processes=1)
    for evidence in ("known", "unknown"):
        done("run", str(directory), "--evidence", evidence, "--processes", "1")
    return directory


def done(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["bench", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_mode_that_was_run_is_scored(directory: Path) -> None:
    scores = json.loads(done("score", str(directory), "--json"))
    assert set(scores) == {"rules-expected-content", "rules-evidence-expected-content"}
    for score in scores.values():
        assert (score["all"]["cases"], score["all"]["failing"]) == (12, 9)
        assert set(score["by"]["fault"]) == {"E1", "U1", "N2", "healthy"}
        assert score["fewest"] == 1
        assert score["baselines"]["always extraction"]["type"]["hits"] == 3
    assert "always extraction" in done("score", str(directory))


def test_two_modes_are_compared_case_by_case(directory: Path) -> None:
    results = sorted(str(path) for path in (directory / "results").iterdir())
    (compared,) = json.loads(done("compare", *results, "--json")).values()
    assert compared["type"]["cases"] == 9
    assert compared["no false accusation"]["cases"] == 6
    (same,) = json.loads(done("compare", results[0], results[0], "--json")).values()
    assert all(row["only_a"] == row["only_b"] == 0 for row in same["by_fault"].values())
    assert "only A" in done("compare", str(directory), str(directory))


def test_the_page_holds_everything_and_links_reports_on_wrong_verdicts(directory: Path, tmp_path: Path) -> None:
    done("score", str(directory), "--html", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text("utf-8")
    assert page.count("<svg") == 4, "two plots for each mode"
    assert "prefers-color-scheme: dark" in page
    assert "<script" not in page
    assert "src=" not in page
    reports = list((tmp_path / "page-reports").iterdir())
    assert all(f'href="page-reports/{report.name}"' in page for report in reports)


def test_the_agent_is_scored_and_reported_with_its_own_verdicts(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = shutil.copytree(directory, tmp_path / "cases")
    verdict = {"failure_type": "response", "operation": "o1", "variable": "", "evidence": [], "second": "",
               "confidence": 1, "reason": "The model says so."}  # fmt: skip
    monkeypatch.setenv("MEMTRACE_MODEL", "scripted")
    monkeypatch.setenv("MEMTRACE_MODEL_CACHE", str(tmp_path / "replies.db"))
    with ModelStub() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        server.script = [json.dumps({"tool": "answer", "id": "", "text": "", "verdict": verdict})] * 9
        done("run", str(cases), "--method", "agent", "--concurrency", "3")
    score = json.loads(done("score", str(cases), "--json", "--html", str(tmp_path / "page.html")))
    found = score["agent-expected-content"]["all"]
    assert (found["asked"]["share"], found["type"]["hits"], found["tokens"]) == (1, 0, 2)
    reports = [*(tmp_path / "page-reports").glob("agent-*")]
    assert len(reports) == 9
    assert all("The model says so." in report.read_text("utf-8") for report in reports)


def test_a_file_of_something_else_is_no_page(directory: Path, tmp_path: Path) -> None:
    page = tmp_path / "precious.html"
    page.write_text("mine")
    for path, message in ((page, "would be lost"), (tmp_path / "nodir" / "x.html", "no directory")):
        result = CliRunner().invoke(main, ["bench", "score", str(directory), "--html", str(path)])
        assert (result.exit_code, message in result.stderr) == (2, True)
    assert page.read_text() == "mine"
    page.unlink()
    for _ in range(2):  # its own page is replaced
        done("score", str(directory), "--html", str(page))


def test_damaged_files_are_named(directory: Path, tmp_path: Path) -> None:
    whole = shutil.copytree(directory, tmp_path / "cases")
    damaged = (next((whole / "results").iterdir()), next((whole / "truth").iterdir()))
    for path in damaged:
        path.write_bytes(path.read_bytes()[:-20])
        result = CliRunner().invoke(main, ["bench", "score", str(whole)])
        assert (result.exit_code, f"{path.name} is damaged" in result.stderr) == (2, True), result.output
        shutil.copy(directory / path.relative_to(whole), path)
    result = CliRunner().invoke(main, ["bench", "compare", str(whole / "manifest.json"), str(whole)])
    assert "is no file of results" in result.stderr


def test_a_mode_withholds_what_it_names(directory: Path) -> None:
    from memtrace_otel.bench.run import Mode, case_files, read_spans

    spans = list(read_spans(case_files(directory)[0]))
    given = Mode(evidence=False, expected=False, content=False).given(spans)
    assert any(span.evidence for span in spans)
    assert not any(span.evidence for span in given)
    assert not any(v.content or v.role == "expected" for span in given for v in (*span.inputs, *span.outputs))


def test_annotated_graphs_are_scored_with_the_official_figures(tmp_path: Path) -> None:
    graph = recorded().document
    graph["data"]["annotations"] = [
        {"query_id": "query:qa-1@1", "final_error_type": "ResponseError", "final_op_id": "op-6"},
        {"query_id": "query:qa-1@1", "final_error_type": "SomethingElse", "final_op_id": None},
    ]
    (tmp_path / "graph.json").write_text(json.dumps(graph))
    done("run", str(tmp_path), "--processes", "1")
    (score,) = json.loads(done("score", str(tmp_path), "--json")).values()
    assert (score["all"]["eta"]["count"], score["all"]["operation_1"]["count"]) == (1, 1)


def test_a_directory_without_cases_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["bench", "run", str(tmp_path)])
    assert result.exit_code == 2
    assert "holds neither" in result.stderr
