"""Tracing of the reference systems: one step is one operation from variables to a variable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opentelemetry.util.types import AttributeValue

from memtrace_otel import operation, scope_id, variable_ref
from tests.conformance.conversation import Message

ANN = scope_id("reference", user="ann")


@dataclass(frozen=True)
class Variable:
    """A version of a variable: its text, its identity and its score."""

    text: str
    ref: str
    origin: str = ""
    role: str = "other"
    score: float | None = None


def root(kind: str, text: str, id: str = "") -> Variable:
    """A variable from outside: a message, a question, a prompt template."""
    return Variable(
        text, variable_ref(kind, text, id), role=kind if kind in ("message", "query", "prompt") else "other"
    )


def said(message: Message) -> Variable:
    """A turn given to the system: speaker, text and time (row C1)."""
    return root("message", message.line, message.id)


def step(
    purpose: str,
    inputs: Sequence[Variable],
    text: str,
    ref: str = "",
    *,
    kind: str = "other",
    action: str = "DERIVE",
    role: str = "other",
    attributes: Mapping[str, AttributeValue] | None = None,
) -> Variable:
    """Do one step and return its output. An output without a `ref` is a reply or a part of a reply."""
    with operation(kind=kind, system="reference", scope=ANN, purpose=purpose, attributes=attributes) as op:
        for given in inputs:
            op.read(given.ref, role=given.role, origin=given.origin, content=given.text, score=given.score)
        ref = ref or variable_ref("completion", text)
        op.wrote(ref, action=action, content=text, role=role)
    return Variable(text, ref, op.origin, role)


def replaced(variable: Variable) -> Variable:
    """The version that a step replaces."""
    return Variable(variable.text, variable.ref, variable.origin, "previous")


def hit(variable: Variable, score: float | None = None) -> Variable:
    """A stored version that a search returned."""
    return Variable(variable.text, variable.ref, variable.origin, "hit", score)
