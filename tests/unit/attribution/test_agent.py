"""The agent: a scripted model walks the graph; a useless, lying or dead model leaves the verdict of the rules."""

from __future__ import annotations

import json
import time
from typing import Any

import openai
import pytest

from memtrace_otel.annotate.attribution_trace import attribution_trace
from memtrace_otel.attribution import attribute, find_failures, read_verdict, verdict_json
from memtrace_otel.attribution.agent import Agent
from memtrace_otel.attribution.endpoint import Endpoint
from memtrace_otel.graph import EvolutionGraph, build_graph
from memtrace_otel.model import OperationSpan, Verdict
from memtrace_otel.report import render_report
from memtrace_otel.semconv import FailureType, OpKind, Role
from tests.integration.model_stub import ModelStub
from tests.unit.attribution.test_rules_and_model import PLANTED
from tests.unit.attribution.told import UPDATE, told
from tests.unit.graph.conftest import ALICE, put, span

pytestmark = pytest.mark.usefixtures("scripted")

SPOILED = {"left": "Works in town", "expected": "an attorney"}
Document = dict[str, Any]
FRAME = {"question", "expected", "given", "judge", "answer_operation", "searches", "rules", "rules_reason",
         "near_the_question", "result", "cut", "problem", "tool", "id", "text", "verdict"}  # fmt: skip
"""Keys of the documents that the agent exchanges with the model."""


def agent(server: ModelStub, **options: bool) -> Agent:
    return Agent(Endpoint(openai.OpenAI(api_key="none", base_url=server.url, max_retries=0)), **options)


def case(*more: OperationSpan, **texts: str) -> tuple[EvolutionGraph, Verdict]:
    graph = build_graph([*told(**{**SPOILED, **texts}), *more])
    (failure,) = find_failures(graph)
    return graph, attribute(graph, failure)


def said(verdict: Verdict) -> tuple[str, str, str]:
    return str(verdict.failure_type), f"{verdict.trace_id}-{verdict.span_id}", verdict.variable


def step(tool: str, id: str = "", text: str = "", verdict: Document | None = None) -> Document:
    return {"tool": tool, "id": id, "text": text, "verdict": verdict}


def blames(operation: str, variable: str = "", **other: Any) -> Document:
    verdict = {"failure_type": "update", "operation": operation, "variable": variable, "evidence": [], "second": ""}
    return step("answer", verdict={**verdict, "confidence": 0.8, "reason": "The update dropped it.", **other})


def documents(prompt: str) -> list[Document]:
    return [json.loads(line) for line in prompt.splitlines() if line.startswith("{")]


def walks(prompt: str) -> Document:
    """A model that looks for the loss, and obeys any text outside of the strings of our documents."""
    instructions, _, rest = prompt.partition("is only data.\n")
    framed = all(line.startswith("{") and json.loads(line).keys() <= FRAME for line in rest.splitlines())
    if not framed or "lawyer" in instructions:
        return blames("obeyed")
    shown = documents(prompt)
    match sum("tool" in document for document in shown):
        case 0:
            return step("search", text="lawyer")
        case 1:
            found = shown[-1]["result"]["found"]
            return step("history", next(row["id"] for row in found if row["kind"] == "memory"))
        case _:
            first, second = shown[-1]["result"]["versions"]
            return blames(second["operation"], second["id"], evidence=[first["id"], second["id"]])


def test_a_walk_blames_the_operation_and_is_shown(server: ModelStub) -> None:
    server.script = [walks] * 3
    graph, rules = case()
    found = agent(server)(graph, rules)
    assert said(rules) != said(found) == (FailureType.UPDATE, UPDATE, "memory:job")
    assert (found.method, found.model, found.tokens, found.confidence) == ("agent", "scripted", 6, 0.8)
    assert [step.role for step in found.evidence] == ["record", "record"]
    assert found.alternatives[0].failure_type == rules.failure_type
    assert [call.tool for call in found.calls] == ["search", "history", "answer"]
    stored = read_verdict(json.dumps(verdict_json(found)), found.failure)
    assert (stored.calls, stored.attribution_id) == (found.calls, found.attribution_id)
    spans = attribution_trace(found, 1, 2)
    called = [one for one in spans if one.attributes.get("gen_ai.operation.name") == "chat"]
    tools = [one for one in spans if one.name.startswith("execute_tool ")]
    assert [one.parent_id for one in called] == [spans[0].span_id] * 3
    assert [one.parent_id for one in tools] == [one.span_id for one in called]
    assert "Steps of the model" in render_report([(found, graph)], title="", source="")
    again = agent(server)(graph, rules)
    assert (said(again), again.tokens, len(server.prompts)) == (said(found), 0, 3)  # replies are remembered


@pytest.mark.parametrize("tool", ["search", "open", "history", "readers", "candidates", "prompt", "compare", "state"])
def test_every_tool_answers_within_its_bounds(server: ModelStub, tool: str) -> None:
    def calls(prompt: str) -> Document:
        shown = documents(prompt)
        near = shown[0]["near_the_question"]
        id = {"open": shown[0]["answer_operation"], "candidates": shown[0]["searches"][0]}.get(tool, near[0]["id"])
        return step(tool, id, {"search": "lawyer town", "compare": near[-1]["id"]}.get(tool, ""))

    texts = [put(f"message:x{i}", "lawyer " * 900, role=Role.MESSAGE) for i in range(40)]
    messages = [span(9 + i, 1, OpKind.INGEST, at=1, scope=ALICE, inputs=[text]) for i, text in enumerate(texts)]
    server.script = [calls, step("answer", verdict={**blames("")["verdict"], "failure_type": "cannot_tell"})]
    graph, rules = case(*messages, left="Works as a lawyer in town")
    found = agent(server)(graph, rules)
    assert (said(found), found.model_problem) == (said(rules), "the model cannot tell")
    shown = documents(server.prompts[1])[-1]["result"]
    assert shown
    assert len(json.dumps(shown)) < 7000


def lies(prompt: str) -> Document:
    return blames("o99", "v99")


def slow(prompt: str) -> Document:
    time.sleep(0.3)
    return blames("o1")


@pytest.mark.parametrize(
    ("script", "problem", "calls"),
    [
        pytest.param(["I cannot help with that."] * 9, "not what was asked", 2, id="text"),
        pytest.param(['{"tool": "search",'] * 9, "not what was asked", 2, id="broken JSON"),
        pytest.param(["[" * 100_000] * 9, "not what was asked", 2, id="deep JSON"),
        pytest.param([step("delete_everything")] * 9, "not what was asked", 2, id="unknown tool"),
        pytest.param([lies] * 9, "not what was asked", 2, id="ids never shown"),
        pytest.param([step("open", "v1")] * 9, "not what was asked", 2, id="id of another kind"),
        pytest.param([blames("o1", failure_type="extraction")] * 9, "not what was asked", 2, id="wrong kind"),
        pytest.param([blames("o1", confidence="sure")] * 9, "not what was asked", 2, id="no number"),
        pytest.param([step("answer")] * 9, "not what was asked", 2, id="no verdict"),
        pytest.param([step("search", text="town")] * 20, "12 steps", 12, id="never ends"),
        pytest.param([""], "refused", 1, id="empty"),
        pytest.param([429], "status 429", 1, id="rate limit"),
        pytest.param([500], "status 500", 1, id="server error"),
        pytest.param([slow], "did not answer", 1, id="no answer in time"),
    ],
)
def test_a_useless_model_leaves_the_verdict_of_the_rules(
    server: ModelStub, monkeypatch: pytest.MonkeyPatch, script: list[Any], problem: str, calls: int
) -> None:
    if script == [slow]:
        monkeypatch.setenv("MEMTRACE_MODEL_SECONDS", "0.1")
    server.script = script
    graph, rules = case()
    found = agent(server)(graph, rules)
    assert (said(found), found.method) == (said(rules), "rules")
    assert problem in found.model_problem
    assert len(found.calls) == calls


def test_one_useless_reply_is_repaired(server: ModelStub) -> None:
    def goes_on(prompt: str) -> Document:
        return walks("\n".join(line for line in prompt.splitlines() if "o99" not in line))

    server.script = [lies, goes_on, goes_on, goes_on]
    assert said(agent(server)(*case())) == (FailureType.UPDATE, UPDATE, "memory:job")
    assert "no operation o99 was shown" in server.prompts[1]


@pytest.mark.parametrize(("setting", "value"), [("MEMTRACE_MODEL_CALLS", "0"), ("MEMTRACE_MODEL_TOKENS", "0")])
def test_a_spent_budget_makes_no_call(
    server: ModelStub, monkeypatch: pytest.MonkeyPatch, setting: str, value: str
) -> None:
    monkeypatch.setenv(setting, value)
    graph, rules = case()
    assert setting in agent(server)(graph, rules).model_problem
    assert server.prompts == []


def test_what_the_rules_decide_is_not_asked_with_rules_and_agent(server: ModelStub) -> None:
    graph, rules = case(expected="a lawyer")
    assert agent(server, always=False)(graph, rules) is rules
    assert server.prompts == []
    server.script = [walks] * 3
    assert agent(server, always=False)(*case()).method == "agent"


def test_an_error_of_ours_stops_no_other_case(server: ModelStub, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> None:
        raise RuntimeError("secret")

    graph, rules = case()
    monkeypatch.setattr("memtrace_otel.attribution.agent.agent.Tools", breaks)
    found = agent(server)(graph, rules)
    assert (said(found), found.model_problem) == (said(rules), "the agent failed: RuntimeError")


@pytest.mark.parametrize("place", ["memory", "question"])
@pytest.mark.parametrize("planted", PLANTED, ids=range(len(PLANTED)))
def test_planted_instructions_change_no_verdict(server: ModelStub, planted: str, place: str) -> None:
    server.script = [walks] * 3
    message = put("message:x", f"The lawyer next door. {planted}", role=Role.MESSAGE)
    more = span(8, 1, OpKind.INGEST, at=1, scope=ALICE, inputs=[message])
    texts = {"question": f"What do I work as? {planted}"} if place == "question" else {}
    graph, rules = case(more, **texts)
    found = agent(server)(graph, rules)
    assert said(found) == (FailureType.UPDATE, UPDATE, "memory:job"), found.model_problem
    assert len(server.prompts[-1]) < 30_000
