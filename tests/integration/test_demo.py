"""The demo on a real Mem0: each fault is what makes its answer wrong, and none is written into the spans."""

from __future__ import annotations

import ast
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

os.environ["MEM0_TELEMETRY"] = "False"  # read when mem0 is imported

from memtrace_otel.demo import DemoRun, compare, run_demo
from memtrace_otel.demo.assistant import SEEN_BY_QUESTION, Assistant
from memtrace_otel.demo.embedding import words
from memtrace_otel.demo.model import ScriptedModel
from memtrace_otel.demo.model_server import serving
from memtrace_otel.demo.script import Fault, load_faults, load_json, load_script
from memtrace_otel.pipeline.diagnose import diagnose
from memtrace_otel.semconv import OP_KIND, FailureType, OpKind
from memtrace_otel.sources import SqliteStore

FAULTS = load_faults()
RIGHT = {question.id: question.expected for question in load_script().questions}


class Played:
    """The whole story, played on a real Mem0 in this process, and its judged answers by question id."""

    def __init__(self, assistant: Assistant, faults: Sequence[Fault]) -> None:
        self._memory = assistant.memory
        for conversation in load_json("story.json")["conversations"]:
            for turn in conversation["turns"]:
                assistant.chat(conversation["user"], conversation["date"], turn["say"])
        self._questions = {question.id: question for question in load_script(faults).questions}
        self.answers = {q.id: assistant.ask(q.user, q.question, q.expected) for q in self._questions.values()}
        self.wrong = {id for id, answer in self.answers.items() if answer["label"] == "WRONG"}

    def stored(self, question: str) -> list[str]:
        """What is stored for the user who asked."""
        user = self._questions[question].user
        return [memory["memory"] for memory in self._memory.get_all(filters={"user_id": user}, top_k=100)["results"]]

    def found(self, question: str, top_k: int = SEEN_BY_QUESTION) -> list[str]:
        """What a search for the question gives."""
        asked = self._questions[question]
        hits = self._memory.search(asked.question, filters={"user_id": asked.user}, top_k=top_k)
        return [memory["memory"] for memory in hits["results"]]

    def history(self, event: str) -> list[tuple[str, str]]:
        """Old and new text of every write of this kind."""
        rows = self._memory.db.connection.execute(
            "SELECT old_memory, new_memory FROM history WHERE event = ?", (event,)
        )
        return [(old or "", new or "") for old, new in rows]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Played]]:
    assistants: list[Assistant] = []
    monkeypatch.setenv("OPENAI_API_KEY", "none")

    def play(*faults: Fault) -> Played:
        with serving(ScriptedModel(load_script(faults))) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
            assistants.append(Assistant(tmp_path))
            return Played(assistants[-1], faults)

    yield play
    for assistant in assistants:
        assistant.close()


def says(text: str, answer: str) -> bool:
    return set(words(answer)) <= set(words(text))


def test_without_faults_every_answer_is_right(play: Callable[..., Played]) -> None:
    assert play().wrong == set()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.type}-{fault.question}")
def test_one_fault_spoils_its_own_question_for_its_own_reason(fault: Fault, play: Callable[..., Played]) -> None:
    played = play(fault)
    id, right = fault.question, RIGHT[fault.question]
    assert played.wrong == {id}
    stored = [text for text in played.stored(id) if says(text, right)]
    if fault.type == FailureType.EXTRACTION:
        assert stored == [new for _, new in played.history("ADD") if says(new, right)] == []
    elif fault.type == FailureType.UPDATE:
        assert stored == []
        assert [new for old, new in played.history("UPDATE") if says(old, right) and not says(new, right)]
    elif fault.type == FailureType.DELETION:
        assert stored == []
        assert [old for old, _ in played.history("DELETE") if says(old, right)]
    elif fault.type == FailureType.RETRIEVAL:
        assert played.found(id, top_k=SEEN_BY_QUESTION + 1)[SEEN_BY_QUESTION:] == stored
    else:
        assert set(stored) <= set(played.found(id))
        assert says(played.answers[id]["given"], right) == (fault.type != FailureType.RESPONSE)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> DemoRun:
    return run_demo(tmp_path_factory.mktemp("demo"))


@pytest.fixture
def store(run: DemoRun) -> Iterator[SqliteStore]:
    with SqliteStore.open(run.database, create=False) as store:
        yield store


def test_the_assistant_knows_nothing_of_us(run: DemoRun) -> None:
    source = (run.directory / "app" / "assistant.py").read_text()
    imported = {
        name
        for node in ast.walk(ast.parse(source))
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in getattr(node, "names", ())]
        )
    }
    assert {"mem0", "openai", "opentelemetry"} <= imported
    assert "memtrace" not in source


def test_what_is_planted_goes_wrong_and_nothing_else(run: DemoRun) -> None:
    wrong = [answer.question for answer in run.answers if answer.label == "WRONG"]
    assert wrong == [planted.question for planted in run.planted]
    assert all(planted.time for planted in run.planted if planted.failure_type in ("extraction", "update", "deletion"))


def test_each_day_is_a_process_and_each_question_a_trace(store: SqliteStore, run: DemoRun) -> None:
    roots = [span for span in store.spans() if span.name == "invoke_agent assistant"]
    days = [conversation["day"] for conversation in load_json("story.json")["conversations"]]
    assert {span.resource["service.instance.id"] for span in roots} == {f"day-{day}" for day in days} | {"questions"}
    asked = [span for span in roots if span.resource["service.instance.id"] == "questions"]
    assert len(asked) == len(run.answers)
    for root in asked:
        kinds = Counter(span.kind for span in store.trace(root.trace_id))
        assert (kinds[OpKind.RETRIEVE], kinds[OpKind.RESPOND], kinds[OpKind.JUDGE]) == (1, 1, 1)


def test_attribution_is_given_no_label(store: SqliteStore, run: DemoRun) -> None:
    """Attribution reads the stored spans; no name, attribute, resource or content there tells what was planted."""
    spans = list(store.spans())
    assert len(spans) > 300
    everything = json.dumps([asdict(span) for span in spans], default=str)
    for planted in run.planted:
        assert planted.note not in everything
    assert not re.findall(r"(?i)\b(planted|faults?|faulty|injected|journal|\w+error)\b", everything)
    types = set(FailureType) - {FailureType.UNKNOWN}
    for span in spans:
        values = [value for name, value in (span.attributes | span.resource).items() if name != OP_KIND]
        assert not types & {value for value in values if isinstance(value, str)}


def test_the_shape_of_a_trace_does_not_tell(store: SqliteStore, run: DemoRun) -> None:
    """Wrong answers have the same kinds of spans with the same attributes as right ones."""
    wrong = {planted.question for planted in run.planted}
    shapes: dict[bool, set[tuple[str, str]]] = {True: set(), False: set()}
    for trace_id in store.trace_ids():
        spans = store.trace(trace_id)
        judge = next((span for span in spans if span.kind == OpKind.JUDGE), None)
        if judge:
            question = next(variable.content for variable in judge.inputs if variable.role == "query")
            shapes[question in wrong] |= {(span.name, name) for span in spans for name in span.attributes}
    assert shapes[True] == shapes[False]


def test_every_planted_fault_is_named_with_its_operation(store: SqliteStore, run: DemoRun) -> None:
    rows = compare([verdict for found in diagnose(store, store) for verdict in found.verdicts], run.planted, store)
    assert [(row.question, row.verdict and row.verdict.failure_type) for row in rows if not row.matches] == []
    assert len(rows) == len(run.planted)
