"""What categories, classes and names of smartcomment mean in our vocabulary (as MemBase and MemTraceBench use them)."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable
from typing import Any, cast

from memtrace_otel.graph.smartcomment.document import Node, Recorded
from memtrace_otel.model import make_ref
from memtrace_otel.semconv import Action, OpKind, RefKind, Role

UNIT = "memory-unit-"
DELETE_MARKER = "delete_marker"
SCORE = "judge_score"
JUDGING = "llm-judge"
ANSWERING = "question-answering"

_KIND_OF_NAME = {
    ANSWERING: OpKind.RESPOND,
    JUDGING: OpKind.JUDGE,
    "memory_system.message_buffer_update": OpKind.INGEST,
    "memory_system.add": OpKind.CREATE,
    "memory_system.add_to_vector_store": OpKind.CREATE,
    "memory_system.finalize_memory_unit": OpKind.CREATE,
    "memory_system.agentic_final_rerank": OpKind.RERANK,
}
_KIND_OF_CATEGORY = {
    "extraction": OpKind.EXTRACT,
    "update": OpKind.UPDATE,
    "retrieval": OpKind.RETRIEVE,
    "boundary_detection": OpKind.SEGMENT,
    "initialization": OpKind.CREATE,
    "embedding": OpKind.CREATE,
}
_KIND_OF_CLASS = {
    "query": RefKind.QUERY,
    "context": RefKind.CONTEXT,
    "prediction": RefKind.ANSWER,
    "golden_answers": RefKind.EXPECTED,
    "judge_prompt": RefKind.PROMPT,
    "extracted_facts": RefKind.FACT,
    "temporary_variable": RefKind.CHUNK,
}
_KIND_OF_VARIABLE = {
    "message": RefKind.MESSAGE,
    "message & query": RefKind.QUERY,
    "memory_entry": RefKind.MEMORY,
    "memory_context": RefKind.CONTEXT,
    "prompt": RefKind.PROMPT,
    "llm_response": RefKind.COMPLETION,
}
_TELLING = frozenset({"prediction", "golden_answers", "extracted_facts"})
"""Classes that say no more than the kind does."""
_REF_KINDS = frozenset(RefKind)
_OP_KINDS = frozenset(OpKind)
_ROLES = {
    RefKind.MESSAGE: Role.MESSAGE,
    RefKind.QUERY: Role.QUERY,
    RefKind.PROMPT: Role.PROMPT,
    RefKind.CONTEXT: Role.CONTEXT,
    RefKind.ANSWER: Role.ANSWER,
    RefKind.EXPECTED: Role.EXPECTED,
}


def kind_of_operation(operation: Recorded, targets: Iterable[Node]) -> OpKind:
    """The kind of an operation: as our own export says, else by its name, what an evaluation makes, its category."""
    told = operation.metadata.get("memtrace_kind")
    if isinstance(told, str) and told in _OP_KINDS:
        return OpKind(told)
    if operation.name in _KIND_OF_NAME:
        return _KIND_OF_NAME[operation.name]
    if operation.category == "evaluation":
        classes = {text for node in targets for text in (node.class_name, node.name)}
        return OpKind.JUDGE if SCORE in classes else OpKind.RESPOND if "prediction" in classes else OpKind.OTHER
    return _KIND_OF_CATEGORY.get(operation.category, OpKind.OTHER)


def kind_of_node(node: Node) -> RefKind:
    """The kind of a variable, by its class or bare name, else by its category; `state` for what has no counterpart."""
    if node.class_name in _REF_KINDS:  # as our own export names them
        return RefKind(node.class_name)
    by_class = _KIND_OF_CLASS.get(node.class_name) or _KIND_OF_CLASS.get(node.name)
    return by_class or _KIND_OF_VARIABLE.get(node.category, RefKind.STATE)


def ref_of_node(node: Node) -> str:
    """The ref of a variable; all its versions have the same."""
    kind = kind_of_node(node)
    if kind == RefKind.MEMORY:
        return make_ref(kind, node.name.removeprefix(UNIT))
    if node.class_name == kind or node.class_name in _TELLING or kind == RefKind.MESSAGE:
        return make_ref(kind, node.name)
    # Class and name are joined unambiguously: neither 'a:b' + 'c' nor 'a' + 'b:c' may meet.
    return make_ref(kind, f"{node.class_name.replace(':', '%3A')}:{node.name}" if node.class_name else node.name)


def role_of(ref_kind: str, operation_kind: OpKind) -> str:
    """The part that a variable plays as an input."""
    if ref_kind == RefKind.MEMORY:
        return Role.CONTEXT if operation_kind == OpKind.RESPOND else Role.CANDIDATE
    return _ROLES.get(RefKind(ref_kind), Role.OTHER)


def action_of(ref_kind: str, replaces: bool) -> str:
    """The action of an output: records are added or updated, everything else is derived."""
    if ref_kind != RefKind.MEMORY:
        return Action.DERIVE
    return Action.UPDATE if replaces else Action.ADD


def text_of(node: Node) -> str:
    """The content of a variable: the stored text without the encoding of the tracer (Python repr, JSON envelopes)."""
    value = _decoded(node.value)
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        fields = cast(dict[str, Any], value)
        content = fields.get("content", fields.get("memory"))
        if isinstance(content, str):
            when = fields.get("timestamp") or node.metadata.get("timestamp")
            return f"{content}\n(sent at {when})" if isinstance(when, str) and "content" in fields else content
    return node.value


def number_of(node: Node) -> float | None:
    """The value of a score; None when it is no number."""
    value = _decoded(node.value)
    try:
        return float(value if isinstance(value, str) else cast(float, value))
    except (TypeError, ValueError):
        return None


def _decoded(value: str) -> object:
    if value[:1] in ("'", '"'):
        try:
            text = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return value
        return text if isinstance(text, str) else value
    if value[:1] == "{":
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value
