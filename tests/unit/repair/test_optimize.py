"""The closed loop on a model whose behaviour depends on its prompts: planted defects, poisoned reflections, limits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from typing import Any

import filelock
import httpx
import openai
import pytest
from click.testing import CliRunner

from memtrace_otel.cli import main
from memtrace_otel.demo.model_server import serving
from memtrace_otel.model import Failure, OperationSpan, Verdict
from memtrace_otel.repair import plan
from memtrace_otel.repair.gates import Gates
from memtrace_otel.repair.optimize import Result, difference, optimize, read_config
from memtrace_otel.repair.page import write_page
from memtrace_otel.repair.running import Outcome, Runner, Spent, is_right
from memtrace_otel.repair.subjects import Case, RepairError, read_cases, split
from memtrace_otel.repair.systems import Mem0, Rag
from memtrace_otel.semconv import FailureType
from memtrace_otel.serve.metrics import Metrics
from memtrace_otel.sources import SqliteStore
from tests.unit.repair.simulator import PromptModel, Rewrite, conversations

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "docs" / "guide" / "examples"
NOTES, RAG, MEM0 = "repair_subject:Notes", "memtrace_otel.repair.systems:Rag", "memtrace_otel.repair.systems:Mem0"
EXACT = "Use the exact words of the memories.\n{memories}"
PLAIN = "Answer from the memories.\n{memories}"
KEEPS = 'List the facts, with quantities, dates and names. Reply in JSON: {"facts": ["..."]}'
DEFECTS: Mapping[str, tuple[str, Mapping[str, Any], Sequence[str]]] = {
    "extraction leaves out quantities": (NOTES, {"answer": EXACT}, ("quantities",)),
    "extraction leaves out dates": (NOTES, {"answer": EXACT}, ("dates",)),
    "extraction leaves out names": (NOTES, {"answer": EXACT}, ("names",)),
    "extraction leaves out dates and names": (NOTES, {"answer": EXACT}, ("dates", "names", "dates")),
    "answers are vague": (NOTES, {"extract": KEEPS, "answer": PLAIN}, ("quantities", "names", "dates")),
    "answers never abstain": (NOTES, {"extract": KEEPS, "answer": EXACT}, ("unasked",)),
    "extraction and answers are vague": (NOTES, {"answer": PLAIN}, ("quantities",)),
    "k is too small": (RAG, {"model": "m", "answer": EXACT, "k": 1}, ("asked",)),
    "the threshold is too high": (RAG, {"model": "m", "answer": EXACT, "threshold": 0.97}, ("names",)),
    "answers of a search are vague": (RAG, {"model": "m", "answer": PLAIN}, ("dates",)),
}
"""What is planted: the subject, its options, and the kinds of the questions that fail."""
Loop = Callable[..., Result]


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loop]:
    """A function that runs the loop on questions of which three of four have the defect."""
    servers: list[AbstractContextManager[Any]] = []
    monkeypatch.syspath_prepend(str(EXAMPLES))
    for name, value in {"OPENAI_API_KEY": "none", "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1",
                        "MEM0_TELEMETRY": "False", "MEM0_DIR": str(tmp_path / "mem0")}.items():  # fmt: skip
        monkeypatch.setenv(name, value)

    def run(
        subject: str,
        options: Mapping[str, Any],
        kinds: Sequence[str],
        *,
        poison: Rewrite | None = None,
        evaluations: int = 96,
        ablation: bool = False,
        judge: str = "",
        budget: Mapping[str, float] | None = None,
        prices: Mapping[str, Any] | None = None,
        judged: int = 0,
    ) -> Result:
        server = serving(PromptModel(poison))
        monkeypatch.setenv("OPENAI_BASE_URL", server.__enter__().base_url)
        servers.append(server)
        lines = [json.dumps(asdict(case)) for case in questions(kinds)]
        (tmp_path / "cases.jsonl").write_text("\n".join(lines))
        said = {"subject": subject, "cases": "cases.jsonl", "model": "m", "ablation": ablation, "judge": judge}
        tables = {  # the prompts are tiny, one more sentence is a large share
            "budget": {"evaluations": evaluations, **(budget or {})},
            "gates": {"cost": 3},
            "options": options,
            "prices": prices or {},
        }
        lines = [f"{name} = {json.dumps(value)}" for name, value in said.items()]
        for name, table in tables.items():
            lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
        (tmp_path / "repair.toml").write_text("\n".join(lines))
        if judged:  # in a process that kills itself at this judgement
            command = [sys.executable, "-m", "memtrace_otel", "repair", "optimize", tmp_path / "repair.toml"]
            path = os.pathsep.join([str(ROOT), str(EXAMPLES)])
            done = subprocess.run(command, env={**os.environ, "JUDGED": str(judged), "PYTHONPATH": path}, check=False)
            assert done.returncode == -signal.SIGKILL
            (tmp_path / "repair-run").rename(tmp_path / "run")
            return {}
        return optimize(read_config(tmp_path / "repair.toml"), tmp_path / "run")

    yield run
    for server in servers:
        server.__exit__(None, None, None)
    sys.modules.pop("repair_subject", None)


def questions(kinds: Sequence[str]) -> list[Case]:
    return conversations([*(list(kinds) * 3)[:3], "plain"], questions=4)


def exposed(metrics: Metrics) -> float:
    """When the repair was applied, as a scrape shows."""
    text, _ = metrics.exposition("")
    return float(text.decode().partition("\nmemtrace_repair_applied_seconds ")[2].split()[0])


def after(judged: list[int]) -> Result:
    """The plan of a period in which 20 of 40 answers failed, after one of the answers `judged` before."""
    answer = OperationSpan("1" * 32, "1" * 16, kind="respond")
    verdict = Verdict(Failure(answer), FailureType.UNKNOWN, "", "", "", "", "", 0.5, "")
    late = replace(verdict, failure=Failure(replace(answer, start=250)))
    early = replace(verdict, failure=Failure(replace(answer, start=150)))
    found = [plan.Pointed(one, None, plan.Information.OTHER) for one in [early, *[late] * 20]]
    return plan.make_plan(found, [*(time + 50 for time in judged), *[250] * 40], since=200, now=300)


def test_a_defect_is_found_repaired_and_tested_on_unseen_conversations(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = loop(*DEFECTS["extraction leaves out quantities"])
    found = result["attribution"]
    assert found["offered"]
    run = tmp_path / "run"
    assert [oct((run / name).stat().st_mode & 0o77) for name in ("attribution", "repair.json")] == ["0o0", "0o0"]
    assert not list(run.rglob("candidate_tree.html"))
    assert result["spent"]["calls"] > found["spent"]["calls"]  # with the test questions
    assert [one["component"] for one in found["tried"]] == ["extraction prompt"]
    assert found["candidates"][0]["by_type"] == {"extraction": 6}
    assert (result["test"]["a"], result["test"]["b"], result["test"]["only_a"]) == (2, 8, 0)
    assert "ablation" not in result
    file, prompts = tmp_path / "run" / "repair.json", tmp_path / "prompts.json"

    def done(*arguments: object, code: int = 0) -> str:
        result = CliRunner().invoke(main, ["repair", *map(str, arguments)])
        assert result.exit_code == code, result.output
        return result.output

    before = file.read_text()
    assert "+List the facts of the message" in done("optimize", tmp_path / "repair.toml", "--out", tmp_path / "run")
    assert file.read_text() == before  # a finished run is shown: the test split is seen once
    assert "offered" in (page := (tmp_path / "run" / "repair.html").read_text())
    assert "<script" not in page
    prompts.write_text("{}")
    said = done("apply", tmp_path / "run", "--to", prompts, code=1)  # no word of the user
    assert "+List the facts of the message" in said
    assert ("Aborted" in said, "test, unseen conversations: 2 -> 8 of 8" in said) == (True, True)
    assert prompts.read_text() == "{}"
    done("apply", tmp_path / "run", "--to", prompts, "--yes")
    assert "quantities" in json.loads(prompts.read_text())["extraction prompt"]
    metrics = Metrics(tmp_path / "run")  # of `serve`
    assert exposed(metrics) == pytest.approx(time.time(), abs=60)
    assert str(prompts) in done("show", tmp_path / "run")
    SqliteStore.open(tmp_path / "run.db").close()
    for judged, code in (([100] * 40, 1), ([100] * 2, 0)):  # before the application one of so many answers failed
        monkeypatch.setattr(plan, "plan_of_store", lambda *_, judged=judged, **__: after(judged))
        said = done("show", tmp_path / "run", "--db", tmp_path / "run.db", code=code)
        assert ("memtrace:repair:regressed" in said) is bool(code)
    done("revert", tmp_path / "run", "--yes")
    assert prompts.read_text() == "{}"
    assert exposed(metrics) == 0
    done("revert", tmp_path / "run", "--yes", code=2)
    assert "export EXTRACTION_PROMPT='" in done("apply", tmp_path / "run", "--to", "env", "--yes")


@pytest.mark.slow
def test_planted_defects_are_repaired_with_fewer_evaluations_than_without_attribution(
    loop: Loop, tmp_path: Path
) -> None:
    repaired, lost, wrong, gained = 0, 0, 0, 0
    spent = {"attribution": 0, "ablation": 0}
    for subject, options, kinds in DEFECTS.values():
        for path in (tmp_path / "run").rglob("*"):
            path.is_file() and path.unlink()
        result = loop(subject, options, kinds, ablation=True)
        repaired += result["attribution"]["offered"]
        if "test" in result:
            lost += result["test"]["only_a"]
            gained += result["test"]["only_b"]
            wrong += result["test"]["cases"] - result["test"]["a"]
        seen = 8  # evaluations of the texts in use, which both loops begin with
        for kind in spent:
            needed = result[kind]["needed"]
            spent[kind] += (result[kind]["evaluations"] if needed is None else needed) - seen
    print(f"repaired {repaired} of {len(DEFECTS)}, unseen questions {gained} of {wrong}, lost {lost}, spent {spent}")
    assert repaired >= 9
    assert gained >= 0.8 * wrong
    assert lost == 0
    assert spent["attribution"] <= 0.6 * spent["ablation"]


TRAINED = split(questions(DEFECTS["answers are vague"][2]))["train"][0]


@pytest.mark.slow
def test_the_custom_instructions_of_a_real_mem0_are_repaired(loop: Loop) -> None:
    options = {"model": "m", "extraction": "Keep what the user tells.", "answer": EXACT}
    result = loop(MEM0, options, ("quantities",))
    assert result["attribution"]["candidates"][0]["by_type"] == {"extraction": 6}
    assert "quantities" in result["attribution"]["candidates"][-1]["texts"]["extraction prompt"]
    assert (result["attribution"]["offered"], result["test"]["only_b"], result["test"]["only_a"]) == (True, 6, 0)


@pytest.mark.parametrize(
    ("defect", "gate", "poison"),
    [
        ("extraction leaves out quantities", "json", lambda text, new: new.replace('"facts"', "facts")),
        ("extraction leaves out quantities", "json", lambda text, new: new.replace("JSON", "the form")),
        ("answers are vague", "placeholders", lambda text, new: new.replace("{memories}", "")),
        ("answers are vague", "length", lambda text, new: new + " Take care of what the user wants to know." * 12),
        ("answers are vague", "memorised", lambda text, new: f"{new} {TRAINED.question}"),
        ("answers are vague", "unchanged", lambda text, new: text),
        (
            "answers are vague",
            "language",
            lambda text, new: "Antworte nur mit den genauen Worten aus diesen Erinnerungen, bitte.\n{memories}",
        ),
        ("k is too small", "json", lambda text, new: json.dumps({"k": "many", "threshold": 0.1})),
        ("k is too small", "json", lambda text, new: "Use a larger k."),
        ("k is too small", "json", lambda text, new: json.dumps({"k": 0, "threshold": 0.1})),
    ],
)
def test_a_poisoned_reflection_is_rejected_by_the_gate_that_is_named(
    loop: Loop, tmp_path: Path, defect: str, gate: str, poison: Rewrite
) -> None:
    result = loop(*DEFECTS[defect], poison=poison, evaluations=16)
    assert result["attribution"]["tried"][0]["gate"] == gate
    assert {one["gate"] for one in result["attribution"]["tried"]} <= {gate, "repeated"}
    assert len(result["attribution"]["candidates"]) == 1
    assert not result["attribution"]["offered"]
    assert "test" not in result
    assert f">{gate}</span>" in write_page(result, tmp_path).read_text("utf-8")


def test_answers_are_no_part_of_a_prompt() -> None:
    used, cases = "Answer from the memories in a few words.", questions(("names", "quantities"))
    for case in cases:
        assert (rejection := Gates().text(used, used, f"{used} For example: {case.expected}.", cases))
        assert rejection.gate == "memorised"
    polar = replace(cases[0], question="Did Ana move?", expected="Yes")
    new = f"{used} Give numbers and names as they are said. Answer yes or no where the question asks for it."
    assert Gates().text(used, used, new, [*cases, polar]) is None


def outcome(right: bool, tokens: int = 100) -> Outcome:
    return Outcome("", right, spent=Spent(tokens=tokens))


@pytest.mark.parametrize(
    ("before", "after", "gate"),
    [
        ([outcome(True), outcome(False), outcome(False)], [outcome(False), outcome(True), outcome(True)], "lost"),
        ([outcome(True), outcome(False)], [outcome(True), outcome(False)], "no improvement"),
        ([outcome(False)], [outcome(True, 151)], "cost"),
        ([outcome(False)], [outcome(True, 150)], ""),
    ],
)
def test_a_minibatch_decides_by_answers_lost_answers_gained_and_cost(
    before: list[Outcome], after: list[Outcome], gate: str
) -> None:
    scores = sum(one.progress for one in before), sum(one.progress for one in after)
    rejection = Gates().minibatch(before, after, scores, 100)
    assert (rejection.gate if rejection else "") == gate


judged = count(1)


def judge(question: str, expected: str, given: str) -> bool:
    """The judge of the configuration; the process ends at the judgement that JUDGED names."""
    if next(judged) == int(os.environ.get("JUDGED", "0")):
        os.kill(os.getpid(), signal.SIGKILL)
    return is_right(question, expected, given)


@pytest.mark.parametrize("runs", [3, 20])
def test_a_run_that_was_killed_goes_on_without_repeating_runs(loop: Loop, tmp_path: Path, runs: int) -> None:
    defect = DEFECTS["extraction leaves out quantities"]
    loop(*defect, judge=f"{__name__}:judge", judged=runs)
    outcomes = tmp_path / "run" / "attribution" / "outcomes.jsonl"
    before = outcomes.read_text().splitlines()
    result = loop(*defect, judge=f"{__name__}:judge")
    after = outcomes.read_text().splitlines()
    assert result["attribution"]["offered"]
    assert after[: len(before)] == before
    keys = [json.loads(line)[0] for line in after]
    known = [key for key in keys if key != "rewriting"]
    assert len([key for key in keys[: len(before)] if key != "rewriting"]) == runs - 1
    assert len(set(known)) == len(known)
    calls = sum(json.loads(line)[1]["spent"]["calls"] for line in after)
    assert result["attribution"]["spent"]["calls"] <= calls  # with those before the kill, without the test questions


def fails(question: str, expected: str, given: str) -> bool:
    """A judge that cannot be used."""
    raise OSError("no judge here")


def refuse(text: str, new: str) -> str:
    raise ValueError("no model here")  # the server answers with status 400


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"judge": f"{__name__}:fails"}, "OSError: no judge here"),
        ({"poison": refuse}, "was not rewritten: BadRequestError: Error code: 400"),
    ],
)
def test_a_loop_that_cannot_work_ends_with_the_reason(loop: Loop, broken: Mapping[str, Any], message: str) -> None:
    with pytest.raises(RepairError, match=message):
        loop(*DEFECTS["answers are vague"], **broken)


def test_any_error_of_the_rewriting_ends_the_loop_and_its_calls_are_kept(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reflect(prompt: str) -> str:
        openai.OpenAI().chat.completions.create(model="m", messages=[{"role": "user", "content": prompt}])
        raise TypeError("no choices")

    monkeypatch.setattr("memtrace_otel.repair.adapter.reflecting_model", lambda name: reflect)
    with pytest.raises(RepairError, match="TypeError: no choices"):
        loop(*DEFECTS["answers are vague"])
    lines = (tmp_path / "run" / "attribution" / "outcomes.jsonl").read_text().splitlines()
    kept = [json.loads(line) for line in lines if line.startswith('["rewriting"')]
    assert [one["spent"]["calls"] for _, one in kept] == [1]


UNSEEN = frozenset(case.question for case in split(questions(DEFECTS["extraction leaves out quantities"][2]))["test"])


def contrary(question: str, expected: str, given: str) -> bool:
    """A judge that takes right answers to the test questions for wrong, and wrong ones for right."""
    return is_right(question, expected, given) is (question not in UNSEEN)


def test_a_candidate_that_loses_in_the_test_is_not_offered(loop: Loop, tmp_path: Path) -> None:
    result = loop(*DEFECTS["extraction leaves out quantities"], judge=f"{__name__}:contrary")
    assert result["test"]["only_a"] > result["test"]["only_b"]
    assert not result["attribution"]["offered"]
    page = write_page(result, tmp_path).read_text("utf-8")
    assert "No candidate is offered" in page
    assert f"On the test questions: {result['test']['a']} → {result['test']['b']}" in page
    for command in (["show"], ["apply", "--to", str(tmp_path / "prompts.json")]):
        done = CliRunner().invoke(main, ["repair", *command, str(tmp_path / "run")])
        assert "on the test questions, the best candidate lost" in done.output
    assert done.exit_code == 2
    assert not (tmp_path / "prompts.json").exists()


def test_nothing_is_sent_to_a_server_that_nobody_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "cases.jsonl").write_text(json.dumps(asdict(TRAINED)))
    said = [f"subject = '{RAG}'", "cases = 'cases.jsonl'", "model = 'm'", "[options]", "model = 'm'"]
    (tmp_path / "repair.toml").write_text("\n".join(said))
    result = CliRunner().invoke(main, ["repair", "optimize", str(tmp_path / "repair.toml")])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "OPENAI_BASE_URL" in result.stderr
    with pytest.raises(ValueError, match="OPENAI_BASE_URL"):
        Rag("m").run({"answering prompt": "{memories}", "retrieval": '{"k": 1, "threshold": 0}'}, TRAINED)


class Failing:
    """A subject that fails once, and then answers right."""

    def __init__(self, error: Exception) -> None:
        self._errors = [error]

    def components(self) -> dict[str, str]:
        return {"answering prompt": "x"}

    def run(self, candidate: Mapping[str, str], case: Case) -> str:
        time.sleep(0.002)
        if self._errors:
            raise self._errors.pop()
        return case.expected


REQUEST = httpx.Request("POST", "http://localhost")


@pytest.mark.parametrize(
    "error", [ConnectionError("down"), httpx.ConnectError("down"), openai.APIConnectionError(request=REQUEST)]
)
def test_an_outage_is_no_outcome(error: Exception, tmp_path: Path) -> None:
    case, path = TRAINED, tmp_path / "outcomes.jsonl"
    runner = Runner(Failing(error), is_right, path)
    with pytest.raises(RepairError, match="an endpoint does not answer"):
        runner.run({}, case)
    assert not path.exists()
    assert runner.run({}, case).right


def test_a_candidate_that_breaks_the_subject_is_an_outcome_with_costs(tmp_path: Path) -> None:
    outcome = Runner(Failing(KeyError("k")), is_right, tmp_path / "outcomes.jsonl").run({}, TRAINED)
    assert (outcome.failure_type, outcome.spent.seconds > 0) == ("error", True)


def test_half_a_line_of_a_killed_run_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "outcomes.jsonl"
    Runner(Failing(KeyError("k")), is_right, path).run({}, TRAINED)
    before = path.read_bytes()
    path.write_bytes(before + b'["half", {"answer')
    Runner(Failing(KeyError("k")), is_right, path)
    assert path.read_bytes() == before


def test_no_call_is_made_of_a_model_without_a_price(loop: Loop) -> None:
    with pytest.raises(RepairError, match="gpt-5-mini has no price"):
        loop(*DEFECTS["answers are vague"], budget={"cost": 1}, prices={"m": [1, 4]})


class Odd(Failing):
    """A subject with components that cannot be repaired."""

    def __init__(self, names: Sequence[str], text: Any = "x") -> None:
        self.components = lambda: dict.fromkeys(names, text)


ODD = f"{__name__}:Odd"


@pytest.mark.parametrize(
    ("subject", "options", "message"),
    [
        (NOTES, {"width": 1}, "unexpected keyword argument 'width'"),
        (ODD, {"names": ["extraction prmpt"]}, "unknown components .'extraction prmpt'.; known"),
        (ODD, {"names": ["retrieval"], "text": 5}, "retrieval is no text"),
        (ODD, {"names": 5}, "TypeError"),
        (ODD, {"names": []}, "no components"),
    ],
)
def test_a_subject_that_cannot_be_used_claims_no_directory(
    loop: Loop, tmp_path: Path, subject: str, options: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(RepairError, match=message):
        loop(subject, options, ("names",))
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.parametrize(
    "change", [{"expected": None}, {"question": None}, {"messages": [{"role": "user"}]}, {"messages": [1]}]
)
def test_a_question_that_cannot_be_asked_is_named_by_its_line(tmp_path: Path, change: Mapping[str, Any]) -> None:
    lines = [asdict(TRAINED), asdict(TRAINED) | change]
    (path := tmp_path / "cases.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(RepairError, match="line 2: "):
        read_cases(path)


def test_a_directory_has_one_process(loop: Loop, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with filelock.FileLock(tmp_path / "run" / "run.lock"), pytest.raises(RepairError, match="another process"):
        loop(*DEFECTS["answers are vague"])


@pytest.mark.parametrize("changed", ["options", "judge", "cases"])
def test_a_run_of_another_configuration_is_refused(tmp_path: Path, loop: Loop, changed: str) -> None:
    subject, options, kinds = DEFECTS["answers are vague"]
    loop(subject, options, kinds, poison=lambda text, new: text, evaluations=16)
    other = {"judge": f"{__name__}:judge"} if changed == "judge" else {}
    with pytest.raises(RepairError, match=f"another {changed};"):
        loop(
            subject,
            {**options, "answer": EXACT} if changed == "options" else options,
            ("names",) if changed == "cases" else kinds,
            evaluations=16,
            **other,
        )


@pytest.mark.parametrize("key", ["vector_store", "graph_store", "history_db_path"])
def test_no_option_of_mem0_replaces_a_scratch_store(key: str) -> None:
    with pytest.raises(RepairError, match=key):
        Mem0("m", config={key: {}})


def test_no_conversation_is_in_two_parts() -> None:
    parts = split(questions(("names",)))
    seen = [{case.conversation for case in cases} for cases in parts.values()]
    assert [len(names) for names in seen] == [4, 2, 2]
    assert len(set.union(*seen)) == 8
    with pytest.raises(RepairError, match="4 are needed"):
        split(conversations(["names"], count=3))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("subject = 'x:y'", "cases"),
        ("subject = 'x:y'\ncases = 'c'\nwhat = 1", "unknown: what"),
        ("subject = 'x:y'\ncases = 'c'\n[gates]\nwidth = 1", "width"),
        ("subject = 'x:y'\ncases = 'c'\n[budget]\nevaluations = 0", "at least 1"),
        ("subject = 'x:y'\ncases = 'c'\n[budget]\ncost = 2", "MEMTRACE_MODEL_INPUT_PRICE"),
        ("subject =", "Invalid value"),
        ("subject = 1\ncases = 'c'", "subject = 1 is no str"),
        ("subject = 'x:y'\ncases = 'c'\n[budget]\nevaluations = '96'", "evaluations = '96' is no int"),
        ("subject = 'x:y'\ncases = 'c'\n[gates]\ncost = '3'", "cost = '3' is no float"),
        ("subject = 'x:y'\ncases = 'c'\nmodel = 'm'", "questions cannot be read"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "repair.toml").write_text(text)
    result = CliRunner().invoke(main, ["repair", "optimize", str(tmp_path / "repair.toml")])
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("expected", "given", "right"),
    [
        ("60", "The stall needs 60 litres.", True),
        ("60", "The stall needs 16 litres.", False),
        ("12 May 2026", "It opens on 12 May 2026.", True),
        ("Not mentioned", "I do not know.", True),
        ("Not mentioned", "It is red.", False),
        ("Rana", "I do not know.", False),
    ],
)
def test_the_comparison_of_the_rules_judges(expected: str, given: str, right: bool) -> None:
    assert is_right("What is it?", expected, given) is right


def test_the_interval_of_a_change_is_the_published_one() -> None:
    """Agresti and Min (2005): half a count is added to each of the four cells."""
    assert difference({"cases": 100, "only_a": 10, "only_b": 20}) == {"change": 0.1, "low": -0.0072, "high": 0.2033}


def ponder(question: str, expected: str, given: str) -> bool:
    """A judge that takes its time."""
    time.sleep(0.1)
    return is_right(question, expected, given)


@pytest.mark.parametrize(("name", "limit"), [("calls", 30), ("tokens", 900), ("seconds", 1), ("cost", 0.002)])
def test_a_loop_ends_within_its_budget(loop: Loop, tmp_path: Path, name: str, limit: float) -> None:
    more: dict[str, Any] = {"judge": f"{__name__}:ponder"} if name == "seconds" else {}
    more |= {"prices": {"m": [1, 4], "gpt-5-mini": [1, 4]}} if name == "cost" else {}
    result = loop(*DEFECTS["answers are vague"], poison=lambda text, new: text, budget={name: limit}, **more)
    assert limit <= result["attribution"]["spent"][name] < 2 * limit
    assert result["attribution"]["evaluations"] < 96
    assert not result["attribution"]["offered"]
