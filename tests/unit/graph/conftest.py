"""A tiny notation for operation spans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memtrace_otel.model import OperationSpan, Variable, content_digest
from memtrace_otel.semconv import Action, OpKind, Role

SPAN = Callable[..., OperationSpan]
ALICE = "a" * 16
BOB = "b" * 16


def origin_of(trace: int, number: int) -> str:
    """The origin of span `number` of trace `trace`."""
    return f"{trace:032x}-{number:016x}"


def put(ref: str, content: str = "", **fields: Any) -> Variable:
    """An output or an input that shows its content."""
    digest = content_digest(content) if content else ""
    return Variable(
        ref, **({"content": content, "digest": digest, "size": len(content.encode("utf-8", "surrogatepass"))} | fields)
    )


def seen(ref: str, origin: str = "", **fields: Any) -> Variable:
    """An input that shows no content."""
    return Variable(ref, origin=origin, **fields)


def span(
    trace: int, number: int, kind: str, *, parent: int = 0, at: int = 0, lasts: int = 1, **fields: Any
) -> OperationSpan:
    """Span `number` of trace `trace`, started at second `at`."""
    inputs, outputs = tuple(fields.pop("inputs", ())), tuple(fields.pop("outputs", ()))
    return OperationSpan(
        trace_id=f"{trace:032x}",
        span_id=f"{number:016x}",
        parent_id=f"{parent:016x}" if parent else "",
        name=fields.pop("name", f"memtrace.{kind}"),
        kind=kind,
        system="test",
        start=at * 1_000_000_000,
        end=(at + lasts) * 1_000_000_000,
        inputs=inputs,
        outputs=outputs,
        **fields,
    )


def life_of_a_fact() -> list[OperationSpan]:
    """Paris is stored, Lisbon replaces Paris, a question is answered and judged. A second question is about tea."""

    def told(trace: int, at: int, message: str, text: str, fact: str, write: OperationSpan) -> list[OperationSpan]:
        return [
            span(trace, 1, OpKind.INGEST, at=at, lasts=9, scope=ALICE, inputs=[put(message, text, role=Role.MESSAGE)]),
            span(
                trace,
                2,
                OpKind.EXTRACT,
                parent=1,
                at=at + 1,
                inputs=[put(message, text, role=Role.MESSAGE)],
                outputs=[put(fact, text.upper(), action=Action.DERIVE)],
            ),
            write,
        ]

    def asked(trace: int, at: int, query: str, hits: list[Variable]) -> list[OperationSpan]:
        context, answer = f"context:{2:016x}", f"answer:{1:016x}"
        return [
            span(
                trace,
                1,
                OpKind.RESPOND,
                at=at,
                lasts=9,
                inputs=[
                    put(query, f"{query}?", role=Role.QUERY),
                    seen(context, origin_of(trace, 2), role=Role.CONTEXT),
                ],
                outputs=[put(answer, "Paris", role=Role.ANSWER)],
            ),
            span(
                trace,
                2,
                OpKind.RETRIEVE,
                parent=1,
                at=at + 1,
                scope=ALICE,
                inputs=[put(query, f"{query}?", role=Role.QUERY), *hits],
                outputs=[put(context, "found")],
            ),
            span(
                trace,
                3,
                OpKind.JUDGE,
                parent=1,
                at=at + 4,
                inputs=[
                    seen(query, role=Role.QUERY),
                    seen(answer, origin_of(trace, 1), role=Role.ANSWER),
                    put("expected:e", "Lisbon", role=Role.EXPECTED),
                ],
                evidence=("message:m2",),
                attributes={"gen_ai.evaluation.score.label": "incorrect", "gen_ai.evaluation.score.value": 0.0},
            ),
        ]

    create = span(
        1,
        3,
        OpKind.CREATE,
        parent=1,
        at=3,
        scope=ALICE,
        inputs=[seen("fact:paris", origin_of(1, 2))],
        outputs=[put("memory:home", "Lives in Paris", action=Action.ADD)],
    )
    update = span(
        2,
        3,
        OpKind.UPDATE,
        parent=1,
        at=23,
        scope=ALICE,
        inputs=[
            seen("fact:lisbon", origin_of(2, 2)),
            seen("memory:home", origin_of(1, 3), role=Role.PREVIOUS),
        ],
        outputs=[put("memory:home", "Lives in Lisbon", action=Action.UPDATE)],
    )
    tea = span(
        3,
        3,
        OpKind.CREATE,
        parent=1,
        at=43,
        scope=ALICE,
        inputs=[seen("fact:tea", origin_of(3, 2))],
        outputs=[put("memory:tea", "Likes tea", action=Action.ADD)],
    )
    home = seen("memory:home", origin_of(2, 3), role=Role.HIT, score=0.9)
    drink = seen("memory:tea", origin_of(3, 3), role=Role.HIT, score=0.3)
    return [
        *told(1, 0, "message:m1", "I live in Paris", "fact:paris", create),
        *told(2, 20, "message:m2", "I moved to Lisbon", "fact:lisbon", update),
        *told(3, 40, "message:m3", "I like tea", "fact:tea", tea),
        *asked(4, 100, "query:q1", [home, drink]),
        *asked(5, 120, "query:q2", [drink]),
    ]


@pytest.fixture
def story() -> list[OperationSpan]:
    return life_of_a_fact()
