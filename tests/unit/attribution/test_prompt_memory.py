"""A memory that the program keeps itself, in the system prompt: what the prompts of its calls tell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memtrace_otel.attribution import attribute, attribute_everywhere, attribute_trace, find_failures
from memtrace_otel.graph import build_graph
from memtrace_otel.model import OperationSpan, Verdict
from memtrace_otel.semconv import EVALUATION_LABEL, FailureType, OpKind, Role
from tests.unit.graph.conftest import origin_of, put, seen, span

FACT, OTHER = "The boiler is vented with the 5 mm key", "The chimney sweep comes in March"
SYSTEM, SHORT = "You help with the house. Notes: ", "Vent the boiler each autumn"
TOOL_CALL = '["save_note", "{\\"note\\": \\"' + SHORT + '\\"}"]'


def call(trace: int, question: str, prompt: str, *, reply: str = "Noted.", tool_call: str = "") -> OperationSpan:
    made = put("completion:t", tool_call) if tool_call else put(f"answer:{trace}", reply)
    asked = put(f"query:{trace}", question, role=Role.QUERY)
    given = [put(f"prompt:{trace}", prompt, role=Role.PROMPT)] if prompt else []
    return span(trace, 1, OpKind.RESPOND, at=trace, inputs=[asked, *given], outputs=[made])


def verdict(*calls: OperationSpan, prompt: str, history: tuple[str, ...] = ()) -> Verdict:
    """The verdict on an answer with this prompt, after this conversation, that lacks the key."""
    question = "With which key is the boiler vented?"
    answer = call(8, question if prompt else f"Facts:\n- {OTHER}\n\nMessage: {question}", prompt, reply="Not known.")
    said = [put(f"message:{n}", text, role=Role.HISTORY) for n, text in enumerate(history)]
    answer = replace(answer, inputs=(*answer.inputs, *said))
    judge = span(8, 2, OpKind.JUDGE, at=9, attributes={EVALUATION_LABEL: "fail"},
                 inputs=[seen("answer:8", origin_of(8, 1), role=Role.ANSWER),
                         put("expected:e", "5 mm", role=Role.EXPECTED)])  # fmt: skip
    (one,) = attribute_trace(build_graph([*calls, answer, judge]))
    return one


TOLD, NEXT = call(1, FACT, SYSTEM), call(3, OTHER, SYSTEM + FACT)
REWRITTEN = call(4, f"Notes: {FACT}. New: {OTHER}", "Rewrite the notes.", reply=OTHER)


@pytest.mark.parametrize(
    ("calls", "prompt", "kind", "operation"),
    [
        pytest.param([TOLD, NEXT], SYSTEM + OTHER, FailureType.UPDATE, origin_of(8, 1), id="notes cut"),
        pytest.param([TOLD, NEXT, REWRITTEN], SYSTEM + OTHER, FailureType.UPDATE, origin_of(4, 1), id="rewritten"),
        pytest.param(
            [call(1, FACT, SYSTEM, tool_call=TOOL_CALL)],
            *(SYSTEM + SHORT, FailureType.EXTRACTION, origin_of(1, 1)),
            id="tool call leaves the key out",
        ),
        pytest.param(
            [call(1, FACT, "Extract facts.", reply='{"facts": ["' + SHORT + '"]}')],
            *(SYSTEM + SHORT, FailureType.EXTRACTION, origin_of(1, 1)),
            id="reply in JSON leaves the key out",
        ),
        pytest.param([TOLD, NEXT], f"{SYSTEM}{FACT}. {OTHER}", FailureType.RESPONSE, origin_of(8, 1), id="shown"),
        pytest.param(
            [call(1, f"Facts:\n\nMessage: {FACT}", ""), call(3, f"Facts:\n- {FACT}\n\nMessage: {OTHER}", "")],
            *("", FailureType.UPDATE, origin_of(8, 1)),
            id="notes before the message of the user",
        ),
        pytest.param([], f"{SYSTEM}{FACT}. {OTHER}", FailureType.RESPONSE, origin_of(8, 1), id="only in the prompt"),
        pytest.param([call(1, FACT, SYSTEM)], SYSTEM, FailureType.RETRIEVAL, origin_of(8, 1), id="other conversation"),
        pytest.param([call(1, FACT, "It is 3 May.")], "It is 4 May.", FailureType.UNKNOWN, "-", id="nothing is kept"),
    ],
)  # fmt: skip
def test_the_prompts_of_an_assistant_are_the_versions_of_its_notes(
    calls: list[OperationSpan], prompt: str, kind: FailureType, operation: str
) -> None:
    found = verdict(*calls, prompt=prompt)
    assert (found.failure_type, f"{found.trace_id}-{found.span_id}") == (kind, operation), found.reason


@pytest.mark.parametrize("stored", [True, False])
def test_what_a_model_with_a_memory_was_told_and_did_not_store_was_not_extracted(stored: bool) -> None:
    question = "With which key is the boiler vented?"
    note = span(2, 1, OpKind.CREATE, at=2, scope="b" * 16, inputs=[put("message:n", FACT, role=Role.MESSAGE)],
                outputs=[put("memory:n", FACT)])  # fmt: skip
    search = span(8, 3, OpKind.RETRIEVE, at=7, scope="a" * 16, inputs=[put(f"query:{8}", question, role=Role.QUERY)],
                  outputs=[put("context:8", "")])  # fmt: skip
    answer = call(8, question, SYSTEM, reply="Not known.")
    answer = replace(answer, inputs=(*answer.inputs, seen("context:8", search.origin, role=Role.CONTEXT)))
    judge = span(8, 2, OpKind.JUDGE, at=9, attributes={EVALUATION_LABEL: "fail"},
                 inputs=[seen("answer:8", origin_of(8, 1), role=Role.ANSWER),
                         put("expected:e", "5 mm", role=Role.EXPECTED)])  # fmt: skip
    graph = build_graph([TOLD, *([note] if stored else []), search, answer, judge])
    [failure] = find_failures(graph)
    first = attribute(graph, failure)
    found = attribute_everywhere(graph, failure, first)
    assert found.failure_type == (FailureType.RETRIEVAL if stored else FailureType.EXTRACTION), found.reason
    assert first.failure_type != FailureType.EXTRACTION, "another memory may hold the message"


def test_what_was_told_in_another_conversation_is_named_so() -> None:
    found = verdict(call(1, FACT, SYSTEM), prompt=SYSTEM)
    assert "another conversation" in found.reason
    assert FACT in found.reason


def test_what_a_tool_of_the_answer_returned_counts_as_its_prompt() -> None:
    found = verdict(call(1, FACT, SYSTEM, tool_call=TOOL_CALL), prompt=SYSTEM, history=('["read_notes", "{}"]', SHORT))
    assert (found.failure_type, found.trace_id) == (FailureType.EXTRACTION, origin_of(1, 1)[:32]), found.reason


def test_a_tool_that_noted_the_fact_is_named_where_the_answer_called_no_tool() -> None:
    noted = '["save_note", "{\\"note\\": \\"' + FACT + '\\"}"]'
    told = call(1, FACT, SYSTEM, tool_call=noted)
    saved = span(2, 1, OpKind.INGEST, at=2, outputs=[put("state:1", noted)],
                 inputs=[put("message:1", FACT, role=Role.MESSAGE), seen("completion:t", told.origin)])  # fmt: skip
    found = verdict(told, saved, prompt=SYSTEM)
    assert found.failure_type == FailureType.RETRIEVAL
    assert "noted by save_note in another conversation" in found.reason
