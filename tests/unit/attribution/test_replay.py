"""Replay: the fault is undone, the recorded request runs again at a scripted endpoint, and the answer flips or not."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast

import openai
import pytest
from click.testing import CliRunner

from memtrace_otel.annotate import identity
from memtrace_otel.annotate.attributes import verdict_attributes
from memtrace_otel.attribution import attribute, find_failures, read_verdict, verdict_document, verdict_json
from memtrace_otel.attribution.endpoint import Endpoint
from memtrace_otel.attribution.entailment import Reader
from memtrace_otel.attribution.replay import Replayer, Search, Verifier, Write, load_replayer
from memtrace_otel.attribution.replay.prompt import Prompt
from memtrace_otel.cli import main
from memtrace_otel.graph import EvolutionGraph, build_graph
from memtrace_otel.model import Alternative, OperationSpan, Verdict, split_origin
from memtrace_otel.otlp import encode_request
from memtrace_otel.semconv import FailureType
from memtrace_otel.sources import SqliteStore
from tests.integration.model_stub import ModelStub
from tests.unit.attribution.told import (
    ANSWER,
    EXTRACT,
    POOL,
    SEARCH,
    STORED,
    UNKNOWN,
    UPDATE,
    told,
)

pytestmark = pytest.mark.usefixtures("own_replies")


def reads(prompt: str) -> str:
    """A model that answers from its prompt."""
    return "You work as a lawyer." if "lawyer" in prompt else UNKNOWN


def fails(prompt: str) -> str:
    return "You are a pilot."


def heals(prompt: str) -> str:
    return "You are a lawyer."


def verifier(server: ModelStub, *replayers: Replayer) -> Verifier:
    return Verifier(Endpoint(openai.OpenAI(api_key="none", base_url=server.url, max_retries=0)), replayers=replayers)


def case(spans: Sequence[OperationSpan], blamed: tuple[FailureType, str, str] | None) -> tuple[EvolutionGraph, Verdict]:
    """The graph and the verdict of the rules, or one that blames what is given."""
    graph = build_graph(spans)
    (failure,) = find_failures(graph)
    verdict = attribute(graph, failure)
    if blamed:
        trace_id, span_id = split_origin(blamed[1])
        verdict = replace(verdict, failure_type=blamed[0], trace_id=trace_id, span_id=span_id, variable=blamed[2])
    return graph, replace(verdict, alternatives=())


EXTRACTION = FailureType.EXTRACTION, EXTRACT, "message:1"
OVERWRITTEN = FailureType.UPDATE, UPDATE, "memory:job"
MISSED = FailureType.RETRIEVAL, SEARCH, "memory:job"
IGNORED = FailureType.RESPONSE, ANSWER, "answer:a"
VAGUE = {"fact": "Has work", "left": "Has work"}
SPOILED = {"left": "Works in town"}
HIDDEN = {"shown": "Has a dog"}


@pytest.mark.parametrize("blamed", [EXTRACTION, OVERWRITTEN, MISSED, IGNORED], ids=lambda one: str(one[0]))
@pytest.mark.parametrize(
    ("texts", "model", "true"),
    [
        (VAGUE, reads, EXTRACTION),
        (SPOILED, reads, OVERWRITTEN),
        (HIDDEN, reads, MISSED),
        ({}, fails, IGNORED),
    ],
    ids=["extraction lost it", "update lost it", "search missed it", "model ignored it"],
)
def test_only_the_true_cause_is_verified(
    server: ModelStub,
    texts: dict[str, str],
    model: Callable[[str], str],
    true: tuple[FailureType, str, str],
    blamed: tuple[FailureType, str, str],
) -> None:
    server.script = [model] * 9
    replay = verifier(server)(*case(told(**texts), blamed)).replay
    assert replay
    wrong = "not_replayable" if model is fails else "refuted"
    assert replay.outcome == ("verified" if blamed is true else wrong), replay
    assert 1 <= replay.calls == len(server.prompts) <= 4
    assert replay.tokens == 2 * replay.calls


@pytest.mark.parametrize(
    ("texts", "script", "outcome", "reason"),
    [
        ({"left": "Works in town"}, heals, "not_reproducible", "unchanged request"),
        ({"left": "Works in town", "expected": ""}, heals, "not_replayable", "memtrace-otel feedback 0"),
        ({"left": "Works in town", "contents": False}, heals, "not_replayable", "SPAN_ONLY"),
        ({"left": "Works in town"}, 500, "not_replayable", "status 500"),
        ({"left": "Works in town", "expected": "an attorney"}, fails, "not_replayable", "by meaning"),
    ],
    ids=["healed", "no expected answer", "no contents", "server error", "paraphrase"],
)
def test_a_replay_that_proves_nothing_says_why(
    server: ModelStub, texts: dict[str, str], script: Callable[[str], str], outcome: str, reason: str
) -> None:
    server.script = [script] * 9
    graph, verdict = case(told(**texts), OVERWRITTEN)
    replay = verifier(server)(graph, verdict).replay
    assert replay
    assert (replay.outcome, reason in replay.reason) == (outcome, True), replay


@pytest.mark.parametrize(
    ("texts", "blamed"),
    [(VAGUE, EXTRACTION), (SPOILED, OVERWRITTEN), (HIDDEN, MISSED)],
    ids=["extraction", "update", "retrieval"],
)
def test_a_model_that_cannot_answer_refutes_nothing(
    server: ModelStub, texts: dict[str, str], blamed: tuple[FailureType, str, str]
) -> None:
    server.script = [fails] * 9
    found = verifier(server)(*case(told(**texts), blamed))
    assert found.replay
    assert (found.failure_type, found.replay.outcome) == (blamed[0], "not_replayable")
    assert "source messages alone" in found.replay.reason


@pytest.mark.parametrize(
    ("shown", "outcome"),
    [
        ("[25 February 2026] We meet next Friday", "not_replayable"),
        ("[25 February 2026] Last Friday", "verified"),
    ],
)
def test_response_needs_the_date_in_the_context(server: ModelStub, shown: str, outcome: str) -> None:
    server.script = [fails] * 9
    asked = told(fact=shown, left=shown, question="When do we meet?", expected="20 February 2026")
    replay = verifier(server)(*case(asked, IGNORED)).replay
    assert replay
    assert replay.outcome == outcome, replay


@pytest.mark.parametrize(
    ("messages", "question", "after"),
    [
        (["S\n- X moved", "X moved"], "X moved", ["S\n- new", "X moved"]),
        (["S", "Notes:\n- X moved\n\nSo X moved?"], "So X moved?", ["S", "Notes:\n- new\n\nSo X moved?"]),
        (["S", "So X moved?\n- X moved"], "So X moved?", ["S", "So X moved?\n- new"]),
        (["S\n- X moved", "X moved", "Really?"], "Really?", ["S\n- new", "X moved", "Really?"]),
    ],
    ids=["the question is the memory", "memory before the question", "memory after the question", "history"],
)
def test_question_and_history_stay(messages: list[str], question: str, after: list[str]) -> None:
    roles = ["system", *["user"] * (len(messages) - 1)]
    sent = tuple({"role": role, "content": text} for role, text in zip(roles, messages, strict=True))
    changed = Prompt("", sent, ("X moved",), question).with_memories(["X moved"], ["new"])
    assert [message["content"].rstrip("\n") for message in changed.messages] == after


def test_a_refuted_verdict_gives_way_to_a_verified_alternative(server: ModelStub) -> None:
    server.script = [reads] * 9
    graph, wrong = case(told(**SPOILED), IGNORED)
    right = attribute(graph, wrong.failure)
    assert right.failure_type == FailureType.UPDATE
    wrong = replace(wrong, alternatives=(Alternative(FailureType.UPDATE, *split_origin(UPDATE), 0.4),))
    found = verifier(server)(graph, wrong)
    assert (found.failure_type, found.reason, found.variable) == (FailureType.UPDATE, right.reason, "memory:job")
    assert found.replay
    assert (found.replay.outcome, "response was refuted" in found.replay.reason) == ("verified", True)
    assert (found.replay.removed, found.replay.added) == (("Works in town",), (STORED,))
    assert [other.failure_type for other in found.alternatives] == [FailureType.RESPONSE]


def test_the_outcome_is_on_the_verdict_and_the_marker_and_holds(server: ModelStub) -> None:
    server.script = [reads] * 9
    graph, plain = case(told(**SPOILED), None)
    found = verifier(server)(graph, plain)
    assert found.attribution_id not in ("", plain.attribution_id)
    assert verdict_attributes(found)["memtrace.failure.replay"] == "verified"
    assert "memtrace.failure.replay" not in verdict_attributes(plain)
    stored = read_verdict(json.dumps(verdict_json(found)), found.failure)
    assert stored.replay == found.replay
    assert identity.reason_to_keep("rules", True, plain, replayed=True)
    assert not identity.reason_to_keep("rules", True, found, replayed=True)
    assert [identity.is_proof(o, same=s) for o in ("verified", "refuted", "") for s in (True, False)] == [
        *(True, True, True, False, False, False)
    ]
    calls = len(server.prompts)
    again = verifier(server)(graph, plain)
    assert again.replay
    assert (again.replay.calls, len(server.prompts)) == (0, calls)


class Notes:
    """A memory that finds the notes with most words of the question."""

    systems = frozenset({"test"})
    writes: Sequence[Write] = ()

    def search(self, writes: Sequence[Write], search: Search) -> Sequence[str]:
        notes = {write.record: write.text for write in writes}
        self.writes = writes
        return [text for text in notes.values() if text]


def test_a_replayer_builds_the_memory_with_the_corrected_step(server: ModelStub) -> None:
    server.script = [reads] * 9
    notes = Notes()
    replay = verifier(server, notes)(*case(told(**SPOILED), OVERWRITTEN)).replay
    assert replay
    assert (replay.outcome, "built again" in replay.reason) == ("verified", True)
    assert [write.text for write in notes.writes] == [STORED, POOL]


def test_a_later_fault_stays_in_the_memory_built_again(server: ModelStub) -> None:
    server.script = [reads] * 9
    graph, blamed = case(told(fact="Has work", left="Likes tea"), EXTRACTION)
    found = verifier(server, Notes())(graph, replace(blamed, complete=True))
    assert found.replay
    assert (found.replay.outcome, "built again" in found.replay.reason) == ("refuted", True)
    assert not found.complete


def test_the_replayer_of_the_documentation_works(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[3] / "docs" / "guide" / "replay.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(code.splitlines()) <= 30

    class Notebook(dict[str, str]):
        def __init__(self, path: str) -> None:
            assert path == ":memory:"

        add, remove = dict.__setitem__, dict.__delitem__

        def search(self, text: str, k: int) -> list[SimpleNamespace]:
            return [SimpleNamespace(text=note) for note in list(self.values())[:k]]

    notebook, own = ModuleType("notebook"), ModuleType("own")
    notebook.Notebook = Notebook  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "notebook", notebook)
    monkeypatch.setitem(sys.modules, "own", own)
    exec(code, own.__dict__)
    found = load_replayer("own:NotebookReplayer")
    writes = [Write("a", "old", 1), Write("b", "kept", 2), Write("a", "", 3)]
    assert (found.systems, found.search(writes, Search("?", 5))) == (frozenset({"notebook"}), ["kept"])


@pytest.mark.parametrize("name", ["nowhere:Thing", "json:nothing", "json:dumps", "json"])
def test_what_is_no_replayer_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        load_replayer(name)


def test_a_dry_run_calls_nothing_and_a_run_shows_what_changed(
    server: ModelStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("MEMTRACE_DB", str(tmp_path / "run.db"))
    spans = tmp_path / "spans.pb"
    spans.write_bytes(encode_request(told(**SPOILED)))
    run = CliRunner()
    assert run.invoke(main, ["import", str(spans)]).exit_code == 0
    dry = run.invoke(main, ["attribute", "--all", "--verify", "--dry-run"])
    assert "1 of 1 failing answers can run again: 1 to 4 chat calls" in dry.output
    assert server.prompts == []
    server.script = [reads] * 9
    told_after = run.invoke(main, ["attribute", "--all", "--verify"]).output
    assert "run again: 1 verified" in told_after
    assert re.search(r"again +the answer is right with .*You work as", " ".join(told_after.split()))
    shown = run.invoke(main, ["graph", "replay", f"{4:032x}"]).output
    assert re.search(rf"- memory +Works in town\n\+ memory +{STORED}\nnow +You work as a lawyer.\nverified", shown)
    kept = run.invoke(main, ["attribute", "--all", "--json"]).stdout
    assert json.loads(kept)["replay"]["outcome"] == "verified"


def test_a_local_reader_makes_no_call() -> None:
    def most(name: str) -> int:
        reader = cast("Reader", SimpleNamespace(name=name))
        return Verifier(Endpoint(), reader=reader).cost(*case(told(**SPOILED), OVERWRITTEN)).most_calls

    assert most("remote") == 2 * most("nli:local")


@pytest.mark.parametrize("method", ["rules", "rules+model", "agent", "rules+agent"])
def test_a_dry_run_sends_no_request(
    server: ModelStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, method: str
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("MEMTRACE_MODEL", "scripted")
    monkeypatch.setenv("MEMTRACE_DB", str(tmp_path / "run.db"))
    spans = tmp_path / "spans.pb"
    spans.write_bytes(encode_request(told(**SPOILED, expected="an attorney")))
    run = CliRunner()
    assert run.invoke(main, ["import", str(spans)]).exit_code == 0
    dry = run.invoke(main, ["attribute", "--all", "--verify", "--dry-run", "--method", method])
    assert (dry.exit_code, "can run again" in dry.output, server.prompts) == (0, True, []), dry.output
    run.invoke(main, ["attribute", "--all", "--verify", "--method", method])
    assert server.prompts


@pytest.mark.parametrize(
    "arguments",
    [
        ["attribute", "--all", "--verify"],
        ["attribute", "--all", "--method", "rules+model"],
        ["attribute", "--all", "--method", "agent"],
        ["graph", "replay", f"{4:032x}"],
    ],
    ids=" ".join,
)
def test_without_an_endpoint_nothing_is_sent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str]
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("MEMTRACE_MODEL", "scripted")
    monkeypatch.setenv("MEMTRACE_DB", str(tmp_path / "run.db"))
    refused = CliRunner().invoke(main, arguments)
    assert refused.exit_code == 2
    assert "export OPENAI_BASE_URL" in refused.output


def test_graph_replay_judges_the_verdict_that_the_database_keeps(
    server: ModelStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    _, verdict = case(told(**SPOILED), MISSED)
    kept = replace(verdict, method="agent", reason="The search missed the record.")
    with SqliteStore.open(tmp_path / "run.db") as store:
        store.add_request(encode_request(told(**SPOILED)))
        store.save_verdict(ANSWER, kept.claim, json.dumps(verdict_document(kept, "")))
    server.script = [fails] * 9
    shown = CliRunner().invoke(main, ["graph", "replay", f"{4:032x}", "--json", "--db", str(tmp_path / "run.db")])
    replayed = json.loads(shown.stdout)
    assert (replayed["failure_type"], replayed["reason"]) == ("retrieval", kept.reason)
    assert replayed["replay"]["outcome"] == "not_replayable"
