"""Generated cases: admitted, repeatable, resumable, and without a label in any span."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from memtrace_otel.bench import generate as generating
from memtrace_otel.bench.faults import CODES
from memtrace_otel.bench.generate import BenchError, Plan, generate, make_case, read_truths
from memtrace_otel.bench.run import read_spans
from memtrace_otel.bench.stories import LANGUAGES, Wording, vocabulary
from memtrace_otel.model import OperationSpan
from memtrace_otel.semconv import FailureType

CASES = len(Plan(1, 1).combinations())
"""One round: each fault in each wording that it has."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("bench")
    generate(Plan(5, CASES), directory, processes=1)
    return directory


def test_a_round_holds_each_fault_in_each_wording(directory: Path) -> None:
    found = Counter((truth["fault"], truth["wording"]) for truth in read_truths(directory))
    assert set(found.values()) == {1}
    assert {code for code, _ in found} == set(CODES)
    assert len(found) == CASES


def test_an_answer_is_wrong_because_of_the_fault(directory: Path) -> None:
    for truth in read_truths(directory):
        spared = truth["fault"] in ("N1", "N2", "N3", "healthy")
        assert truth["answer_is_right"] == spared
        assert truth["judged_right"] == (truth["failure_type"] is None)


def test_the_decisive_operation_is_a_span_of_the_case(directory: Path) -> None:
    for truth in read_truths(directory):
        origins = {span.origin for span in spans(directory, truth["case"])}
        assert {truth["answer"], *truth["operations"]} <= origins
        assert bool(truth["operations"]) == (truth["failure_type"] not in (None, "annotation"))


def test_no_span_holds_a_label(directory: Path) -> None:
    operations = {"deletion", "update", "judge", "response", "retrieval", "extraction"}  # ordinary words
    labels = {*CODES, *FailureType, "fault", "planted", "bench", "seed"} - operations - {"unknown"}
    word = re.compile(rf"(?<![\w-])({'|'.join(labels)})(?![\w-])")
    for truth in read_truths(directory):
        for span in spans(directory, truth["case"]):
            assert not word.search(" ".join(texts(span))), span
            assert not {str(value) for value in span.attributes.values()} & {*CODES, *FailureType}


def spans(directory: Path, case: str) -> list[OperationSpan]:
    return list(read_spans(directory / "spans" / f"{case}.pb.gz"))


def texts(span: OperationSpan) -> Iterator[str]:
    yield from (span.name, span.system, span.scope, span.status_message, span.instrumentation_scope, *span.incomplete)
    for mapping in (span.attributes, span.resource, *(link.attributes for link in span.links)):
        yield from (f"{name} {value}" for name, value in mapping.items())
    for variable in (*span.inputs, *span.outputs):
        yield from (variable.ref, variable.content, variable.store, variable.event_time)


def test_a_killed_run_goes_on_and_the_same_seed_gives_the_same_files(directory: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "memtrace_otel", "bench", "generate", "--out", str(tmp_path)]
    command += ["--seed", "5", "--cases", str(CASES), "--processes", "2"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        while not list(tmp_path.glob("truth/[!.]*")):
            assert process.poll() is None
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
    last, *written = tmp_path.glob("truth/[!.]*")
    last.unlink()  # as if killed between spans and truth
    (tmp_path / "spans" / f".{last.stem}.pb.gz.123").write_bytes(b"half")  # as if killed while writing
    assert generate(Plan(5, CASES), tmp_path, processes=1) == CASES - len(written) > 0
    assert generate(Plan(5, CASES), tmp_path, processes=1) == 0
    assert contents(tmp_path) == contents(directory)


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_another_seed_gives_other_cases_and_needs_another_directory(directory: Path) -> None:
    assert make_case(Plan(6, 1), 0).request != make_case(Plan(5, 1), 0).request
    with pytest.raises(BenchError, match="another seed"):
        generate(Plan(6, CASES), directory, processes=1)


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(BenchError, match="not empty"):
        generate(Plan(1, 1), tmp_path)
    with pytest.raises(BenchError, match="neither generated"):
        read_truths(tmp_path)


def test_what_is_not_admitted_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = iter(["right with the fault", "right with the fault", ""])
    monkeypatch.setattr(generating, "_refused", lambda *case: next(reasons))
    assert make_case(Plan(1, 1), 0).truth["rejected"] == {"right with the fault": 2}


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_paraphrase_shares_no_content_word_with_the_fact(language: str) -> None:
    for template in vocabulary(language)["templates"]:
        for told, paraphrase, *_ in template["values"]:
            for name in ("fact", "corrected", "told", "correction"):
                shared = content_words(template[name].replace("{v}", told)) & content_words(paraphrase)
                assert not shared, (template["name"], paraphrase, shared)


FUNCTION_WORDS = """
    a an the of or so and at on in like from other what without anything
    der die das den dem des ein eine einer eines aus für am vor im und von jemand
"""


def content_words(text: str) -> set[str]:
    """Words without function words; of Chinese the pairs of characters."""
    words = {word for word in re.findall(r"[^\W_]+", text.casefold()) if not re.match(r"[\u4e00-\u9fff]", word)}
    return words - set(re.findall(r"\w+", FUNCTION_WORDS)) | set(re.findall(r"(?=([\u4e00-\u9fff]{2}))", text))


def test_wordings_are_known_by_their_truth(directory: Path) -> None:
    truths = read_truths(directory)
    assert {truth["wording"] for truth in truths} == set(Wording)
    assert all(truth["kind"] == "date" for truth in truths if truth["wording"] == "date")
    assert {truth["language"] for truth in truths} == set(LANGUAGES)
    assert json.loads((directory / "manifest.json").read_text())["seed"] == 5
