"""Replay of a home-made notebook and of a vector store: the memory is built again, and only the true cause heals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import openai
import pytest

from memtrace_otel.attribution import attribute, find_failures
from memtrace_otel.attribution.endpoint import Endpoint
from memtrace_otel.attribution.replay import Search, Verifier, Write, known_replayers
from memtrace_otel.attribution.replay.stores import VectorReplayer
from memtrace_otel.graph import build_graph
from memtrace_otel.model import OperationSpan, split_origin
from memtrace_otel.semconv import EVALUATION_LABEL, GEN_AI_REQUEST_MODEL, FailureType, OpKind, Role
from tests.integration.model_stub import ModelStub
from tests.unit.graph.conftest import origin_of, put, seen, span

pytestmark = pytest.mark.usefixtures("own_replies")

TOLD = ("[2 March 2026] Since today I work as a lawyer.", "[3 March 2026] I like tea. My work is in town.")
JOB, TEA = "- Works as a lawyer", "- Likes tea"


def notebook(*pages: str) -> list[OperationSpan]:
    """Two turns, each answered and then written into the notebook; the third trace asks."""
    spans: list[OperationSpan] = []
    for number, (before, after, told) in enumerate(zip(("(nothing)", *pages), pages, TOLD, strict=False), 1):
        request = f"Notes:\n{before}\n\nNew:\nUser: {told}\nAssistant: I see."
        spans += [
            chat(number, 1, told, f"You answer.\n{before}", "I see."),
            chat(number, 2, request, "Rewrite the notes.", after),
        ]
    judged = [seen(f"answer:{origin_of(3, 1)}", origin_of(3, 1), role=Role.ANSWER)]
    judged.append(put("expected:e", "a lawyer", role=Role.EXPECTED))
    return [
        *spans,
        chat(3, 1, "What do I work as?", f"You answer.\n{pages[-1]}", "I do not know."),
        span(3, 2, OpKind.JUDGE, at=320, attributes={EVALUATION_LABEL: "fail"}, inputs=judged),
    ]


def chat(trace: int, number: int, asked: str, instructions: str, reply: str) -> OperationSpan:
    prompt = put(f"prompt:{abs(hash(instructions))}", instructions, role=Role.PROMPT)
    return span(
        trace, number, OpKind.RESPOND, at=100 * trace + 10 * number, attributes={GEN_AI_REQUEST_MODEL: "recorded"},
        inputs=[put(f"query:{trace}.{number}", asked, role=Role.QUERY), prompt],
        outputs=[put(f"answer:{origin_of(trace, number)}", reply)],
    )  # fmt: skip


def reads(prompt: str) -> str:
    return "You work as a lawyer." if "lawyer" in prompt else "I do not know."


def ignores(prompt: str) -> str:
    return "Hard to say." if "You answer" in prompt else reads(prompt)


@pytest.mark.parametrize(
    "blamed",
    [
        (FailureType.EXTRACTION, origin_of(1, 2)),
        (FailureType.UPDATE, origin_of(2, 2)),
        (FailureType.DELETION, origin_of(2, 2)),
        (FailureType.RETRIEVAL, origin_of(3, 1)),
        (FailureType.RESPONSE, origin_of(3, 1)),
    ],
    ids=lambda one: str(one[0]),
)
@pytest.mark.parametrize(
    ("pages", "model", "true"),
    [
        (("- Has work", f"- Has work\n{TEA}"), reads, {FailureType.EXTRACTION}),
        (("- Has work", f"- Has work in town\n{TEA}"), reads, {FailureType.EXTRACTION}),
        (("(nothing)", TEA), reads, {FailureType.EXTRACTION}),
        ((JOB, f"- Works in town\n{TEA}"), reads, {FailureType.UPDATE, FailureType.DELETION}),
        ((JOB, TEA), reads, {FailureType.UPDATE, FailureType.DELETION}),
        ((JOB, f"{JOB}\n{TEA}"), ignores, {FailureType.RESPONSE}),
    ],
    ids=["vague", "vague, then longer", "not written", "overwritten", "taken out", "ignored"],
)
def test_only_the_true_cause_of_a_notebook_is_verified(
    server: ModelStub,
    pages: Sequence[str],
    model: Callable[[str], str],
    true: set[FailureType],
    blamed: tuple[FailureType, str],
) -> None:
    server.script = [model] * 9
    graph = build_graph(notebook(*pages))
    (failure,) = find_failures(graph)
    trace_id, span_id = split_origin(blamed[1])
    verdict = replace(attribute(graph, failure), failure_type=blamed[0], trace_id=trace_id, span_id=span_id)
    client = openai.OpenAI(api_key="none", base_url=server.url, max_retries=0)
    replay = Verifier(Endpoint(client), replayers=known_replayers())(graph, replace(verdict, alternatives=())).replay
    assert replay
    wrong = {"not_replayable"} if model is ignores else {"refuted"}
    assert replay.outcome in ({"verified"} if blamed[0] in true else wrong), replay


def test_a_vector_store_is_built_again(server: ModelStub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    writes = [
        Write("a", "Works as a pilot", 1),
        Write("b", "The pool opens at 6", 2),
        Write("gone", "Works as a lawyer at night", 3),
        Write("a", "Works as a lawyer", 4),
        Write("gone", "", 5),
    ]
    found = [VectorReplayer().search(writes, Search("Works as", limit)) for limit in (5, 1)]
    assert found == [["Works as a lawyer", "The pool opens at 6"], ["Works as a lawyer"]]
    assert VectorReplayer().search(writes, Search("Works as", 5, threshold=0.5)) == ["Works as a lawyer"]
    assert server.prompts == []
