"""The decisions of a model inside a search: is this enough, and what else to ask."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, cast

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, variable_ref
from memtrace_otel.instrumentation.everos.calls import Call
from memtrace_otel.instrumentation.everos.recall import read_query
from memtrace_otel.instrumentation.everos.session import Search, ask, search_of
from memtrace_otel.instrumentation.everos.variables import candidate_ref, value
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.semconv import Incomplete, OpKind, RefKind, Role


def check_sufficiency(call: Call) -> Step:
    """`_check_sufficiency`: whether the candidates answer the query."""
    session = search_of()
    if session is None:
        return
    operation = _open(call, session, "memory_system.agentic_round1_bundle", "sufficiency_check")
    arguments = call.arguments()
    _read(operation, session, arguments.get("query"), arguments.get("candidates"))
    verdict = yield
    names = ("is_sufficient", "reasoning", "key_information_found", "missing_information")
    text = json.dumps({name: value(verdict, name) for name in names}, ensure_ascii=False, default=str)
    ref = variable_ref(RefKind.FACT, text)
    operation.wrote(ref, content=text)
    session.learn("sufficiency", ref, operation)


def multiply_queries(call: Call) -> Step:
    """`_generate_multi_queries`, `_generate_refined_query`: the queries of the second round."""
    session = search_of()
    if session is None:
        return
    operation = _open(call, session, "memory_system.agentic_round2_bundle", "multi_query_generation")
    arguments = call.arguments()
    _read(operation, session, arguments.get("original_query"), arguments.get("candidates"))
    verdict = session.known.get("sufficiency")
    if verdict is not None:
        verdict.read_by(operation)
    made = yield
    session.round += 1
    _learn_queries(operation, session, value(made, "queries") or [value(made, "refined_query")])


def decide_round(call: Call) -> Step:
    """`LLMRoundDecider.__call__`: which memories are needed, and what to ask in the next round."""
    session = search_of()
    if session is None:
        return
    operation = _open(call, session, "llm_multiround", "round_decision")
    _read(operation, session, call.arguments().get("question"), session.shown)
    decision = yield
    session.round += 1
    shown = [candidate_ref(candidate) for candidate in session.shown]
    core = [shown[index] for index in cast(Sequence[int], decision.core) if 0 <= index < len(shown)]
    text = json.dumps({"core": core, "stop": bool(decision.stop)})
    operation.wrote(variable_ref(RefKind.FACT, text), content=text)
    _learn_queries(operation, session, decision.queries)
    if value(decision, "failed"):  # a fixed choice stands in for the model's
        operation.mark(Incomplete.UNPARSED)
        operation.span.add_event(semconv.FALLBACK_EVENT)


def render_blocks(call: Call) -> Step:
    """`_render_blocks`: the candidates of a round, in the order in which the decider counts them."""
    session = search_of()
    if session is None:
        return
    _, candidates, _ = yield
    session.shown = list(candidates)


def _open(call: Call, session: Search, purpose: str, prompt: str) -> Operation:
    ask(call, prompt)
    return call.open(None, OpKind.DECIDE, scope=session.scope, purpose=purpose)


def _read(operation: Operation, session: Search, query: object, candidates: object) -> None:
    read_query(operation, session, query)
    for candidate in cast(Sequence[Any], candidates or ()):
        operation.read(candidate_ref(candidate), role=Role.CANDIDATE)


def _learn_queries(operation: Operation, session: Search, queries: Iterable[object]) -> None:
    """A query that a model made is a fact of its reply: the user's own query is the only one that has no source."""
    for query in queries:
        text = str(query or "")
        if text and text not in session.known:
            ref = variable_ref(RefKind.FACT, text)
            operation.wrote(ref, content=text)
            session.learn(text, ref, operation)
