"""The spans of one case: a message is extracted, stored, updated, searched and answered."""

from __future__ import annotations

from dataclasses import replace

from memtrace_otel.model import OperationSpan
from memtrace_otel.semconv import EVALUATION_LABEL, GEN_AI_REQUEST_MODEL, Action, OpKind, Role
from tests.unit.graph.conftest import ALICE, origin_of, put, seen, span

QUESTION, EXPECTED, UNKNOWN = "What do I work as?", "a lawyer", "I do not know."
MESSAGE, STORED, POOL = "I work as a lawyer in town.", "Works as a lawyer", "The pool opens at 6"
EXTRACT, CREATE, UPDATE, SEARCH, ANSWER = (origin_of(*ids) for ids in ((1, 2), (1, 3), (3, 1), (4, 1), (4, 2)))
PROMPT = "You answer.\nMemories:\n{}"


def told(
    *,
    fact: str = STORED,
    left: str = STORED,
    shown: str = "",
    expected: str = EXPECTED,
    question: str = QUESTION,
    contents: bool = True,
) -> list[OperationSpan]:
    """A message is extracted as `fact`, an update leaves `left`, and the prompt of the answer shows `shown`."""
    asked = put("query:q", question, role=Role.QUERY)
    shown = shown or left
    reached = [seen("memory:job", UPDATE, role=Role.CONTEXT)] if shown == left else []
    prompt = put("prompt:p", PROMPT.format(f"- {shown}\n- {POOL}"), role=Role.PROMPT)
    spans = [
        span(1, 1, OpKind.INGEST, lasts=9, scope=ALICE, inputs=[put("message:1", MESSAGE, role=Role.MESSAGE)]),
        span(1, 2, OpKind.EXTRACT, parent=1, at=1, inputs=[put("message:1", MESSAGE, role=Role.MESSAGE)],
             outputs=[put("fact:1", fact, action=Action.DERIVE)]),
        span(1, 3, OpKind.CREATE, parent=1, at=2, scope=ALICE, inputs=[seen("fact:1", EXTRACT)],
             outputs=[put("memory:job", fact, action=Action.ADD)]),
        span(2, 1, OpKind.CREATE, at=20, scope=ALICE, inputs=[put("message:2", POOL, role=Role.MESSAGE)],
             outputs=[put("memory:pool", POOL, action=Action.ADD)]),
        span(3, 1, OpKind.UPDATE, at=40, scope=ALICE, inputs=[put("message:3", "I walk there.", role=Role.MESSAGE),
             seen("memory:job", CREATE, role=Role.PREVIOUS)], outputs=[put("memory:job", left, action=Action.UPDATE)]),
        span(4, 1, OpKind.RETRIEVE, at=60, scope=ALICE, inputs=[asked, *(
             [seen("memory:job", UPDATE, role=Role.HIT)] if reached else []),
             seen("memory:pool", origin_of(2, 1), role=Role.HIT)], outputs=[put("context:c", "")]),
        span(4, 2, OpKind.RESPOND, at=62, scope=ALICE, outputs=[put("answer:a", UNKNOWN)],
             attributes={GEN_AI_REQUEST_MODEL: "recorded"}, inputs=[asked, *reached, prompt,
             seen("memory:pool", origin_of(2, 1), role=Role.CONTEXT)]),
        span(4, 3, OpKind.JUDGE, at=64, attributes={EVALUATION_LABEL: "fail"},
             inputs=[seen("answer:a", ANSWER, role=Role.ANSWER),
                     *([put("expected:e", expected, role=Role.EXPECTED)] if expected else [])]),
    ]  # fmt: skip
    return spans if contents else [_bare(one) for one in spans]


def _bare(one: OperationSpan) -> OperationSpan:
    inputs = [replace(v, content="") if v.role != Role.EXPECTED else v for v in one.inputs]
    return replace(one, inputs=tuple(inputs), outputs=tuple(replace(v, content="") for v in one.outputs))
