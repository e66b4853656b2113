"""A MemTraceBench file with annotations: imported, attributed and scored by the rules of the benchmark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from memtrace_otel.cli import main
from memtrace_otel.graph.smartcomment import read_labels, score
from memtrace_otel.pipeline.diagnose import diagnose
from memtrace_otel.sources import SqliteStore
from tests.unit.graph.test_smartcomment import recorded


def annotated(kind: str, operation: str | None) -> dict[str, Any]:
    """The recording of a failed question, with what a person says of it."""
    document = recorded().document
    ids = {item["op_name"]: item["op_id"] for item in document["data"]["operations"]}
    document["data"]["annotations"] = [
        {"query_id": "query:qa-1@1", "query": "Where does Ann live?", "golden_answers": ["Lisbon"],
         "prediction": "Paris", "source_evidence_ids": ["U1:D2@1"], "final_error_type": kind,
         "final_op_id": ids.get(operation or "")}
    ]  # fmt: skip
    return document


@pytest.mark.parametrize(
    ("kind", "operation", "figures"),
    [
        ("ResponseError", "question-answering", (1, 1.0, 1.0)),
        ("RetrievalError", "question-answering", (1, 0.0, 1.0)),
        ("ResponseError", "memory_system.extract_facts", (1, 1.0, 0.0)),
        ("ExtractionError", None, (1, 0.0, 0.0)),
        ("AnnotationError", None, (0, 0.0, 0.0)),
        ("JudgeError", "llm-judge", (0, 0.0, 0.0)),
    ],
)
def test_type_and_operation_are_scored_separately(
    tmp_path: Path, kind: str, operation: str | None, figures: tuple[int, float, float]
) -> None:
    document, database = annotated(kind, operation), tmp_path / "bench.db"
    (tmp_path / "graph.json").write_text(json.dumps(document))
    arguments = ["import", str(tmp_path / "graph.json"), "--db", str(database)]
    assert CliRunner().invoke(main, arguments, catch_exceptions=False).exit_code == 0
    with SqliteStore.open(database, create=False) as store:
        verdicts = [verdict for found in diagnose(store, store) for verdict in found.verdicts]
    result = score(read_labels(document), verdicts)
    assert (result.cases, result.eta, result.oia) == figures
    assert score(read_labels(document), []).eta == 0.0
    printed = CliRunner().invoke(main, ["score", str(tmp_path / "graph.json"), "--db", str(database)])
    told = CliRunner().invoke(main, ["score", str(tmp_path / "graph.json"), "--db", str(database), "--json"])
    if not result.cases:
        assert (printed.exit_code, told.exit_code) == (1, 1)
        return
    assert printed.stderr == ""
    assert printed.stdout == f"1 cases: ETA {result.eta:.2%}, OIA {result.oia:.2%}\n"
    said = json.loads(told.stdout)
    assert (said["error_type_prediction_accuracy"], said["operation_identifier_prediction_accuracy"]) == figures[1:]
    assert said["results"][0]["error_type"] == "response"


def test_cases_without_a_verdict_are_reported(tmp_path: Path) -> None:
    """They are wrong ones, but not by what attribution found: here the judge took the answer for right."""
    file, database = str(tmp_path / "graph.json"), str(tmp_path / "bench.db")
    right = json.dumps(annotated("ResponseError", "question-answering")).replace('"0.0"', '"1.0"')
    Path(file).write_text(right)
    assert CliRunner().invoke(main, ["import", file, "--db", database], catch_exceptions=False).exit_code == 0
    for options in ([], ["--json"]):
        result = CliRunner().invoke(main, ["score", file, "--db", database, *options], catch_exceptions=False)
        assert result.exit_code == 0
        assert result.stderr.startswith("memtrace-otel: 1 of 1 cases without a verdict: ")
        assert "ETA 0.00%" in result.stdout or json.loads(result.stdout)["results"][0]["error_type"] is None


@pytest.mark.parametrize(
    ("files", "named"),
    [
        (["a.json"], "a.json is not in empty.db:"),
        (["a.json", "b.json", "c.json", "d.json", "e.json"], "a.json b.json c.json and 2 more are not in empty.db:"),
    ],
)
def test_files_that_were_not_imported_are_named_with_the_import_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in files:
        Path(file).write_text(json.dumps(annotated("ResponseError", "question-answering")))
    SqliteStore.open(tmp_path / "empty.db").close()
    result = CliRunner().invoke(main, ["score", *files, "--db", "empty.db"], catch_exceptions=False)
    said = f"memtrace-otel: {named} `memtrace-otel import FILES --db empty.db` first\n"
    assert (result.exit_code, result.stderr) == (2, said)


@pytest.mark.parametrize("query_id", ["query:other@1", "", None, ["query:qa-1@1"]])
def test_an_annotation_of_an_unknown_question_is_an_error(query_id: object) -> None:
    document = annotated("UpdateError", "question-answering")
    document["data"]["annotations"][0]["query_id"] = query_id
    with pytest.raises(ValueError, match=r"annotations\[0\]\.query_id"):
        read_labels(document)


@pytest.mark.parametrize("annotations", [{"a": 1}, ["x"], [None], 5])
def test_malformed_annotations_are_an_error(annotations: object) -> None:
    document = annotated("UpdateError", "question-answering")
    document["data"]["annotations"] = annotations
    with pytest.raises(ValueError, match=r"^data\.annotations.*expected"):
        read_labels(document)
