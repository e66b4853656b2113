"""The rankers of a search: candidates as they came, hits in the order they are handed on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from memtrace_otel.capture import Operation
from memtrace_otel.instrumentation.everos.calls import Call
from memtrace_otel.instrumentation.everos.recall import read_query
from memtrace_otel.instrumentation.everos.session import ask, search_of
from memtrace_otel.instrumentation.everos.variables import candidate_ref, value
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.semconv import OpKind, Role

_HYBRID = "memory_system.hybrid_retrieval"


def fuse(call: Call) -> Step:
    """`rrf`: several lists of candidates become one."""
    session = search_of()
    if session is None:
        return
    operation = call.open(None, OpKind.RERANK, scope=session.scope, purpose=_HYBRID)
    _read(operation, Role.CANDIDATE, [candidate for given in call.args for candidate in given])
    fused = yield
    _read(operation, Role.HIT, fused)


def heap_expand(call: Call) -> Step:
    """`heap_expand`: episodes and their facts compete for the places."""
    session = search_of()
    if session is None:
        return
    arguments = call.arguments()
    operation = call.open(None, OpKind.RERANK, scope=session.scope, purpose=_HYBRID)
    facts = cast(Mapping[str, Sequence[Any]], arguments.get("episode_to_facts") or {})
    given = [*arguments.get("sparse", ()), *arguments.get("dense", ()), *(f for some in facts.values() for f in some)]
    _read(operation, Role.CANDIDATE, given)
    ranked = yield
    _read(operation, Role.HIT, ranked)


def arank(call: Call) -> Step:
    """`arank`: fusion of cases or skills, with or without a model that reranks them."""
    session = search_of()
    given = call.arguments().get("rank_input") or (call.args[0] if call.args else None)
    if session is None or given is None:
        return
    operation = call.open(None, OpKind.RERANK, scope=session.scope, purpose=_HYBRID)
    ask(call, "rerank")
    read_query(operation, session, value(given, "query"))
    _read(operation, Role.CANDIDATE, [*given.sparse_candidates, *given.dense_candidates])
    ranked = yield
    _read(operation, Role.HIT, ranked.items)


def build_reranker(call: Call) -> Step:
    """`build_rerank_fn` and its like: the function that they return asks a cross-encoder."""
    reranker = yield
    if search_of() is not None:
        call.hand_out(call.patches.around(reranker, cross_encode))


def cross_encode(call: Call) -> Step:
    """What `build_rerank_fn` returned: candidates in a new order."""
    session = search_of()
    if session is None:
        return
    arguments = call.arguments()
    purpose = "memory_system.agentic_round1_bundle" if session.round == 1 else "memory_system.agentic_final_rerank"
    operation = call.open(None, OpKind.RERANK, scope=session.scope, purpose=purpose)
    read_query(operation, session, arguments.get("query"))
    _read(operation, Role.CANDIDATE, list(arguments.get("candidates") or ()))
    reranked = yield
    _read(operation, Role.HIT, reranked)


def _read(operation: Operation, role: Role, candidates: Iterable[Any]) -> None:
    for candidate in candidates:
        operation.read(candidate_ref(candidate), role=role, score=float(candidate.score))
