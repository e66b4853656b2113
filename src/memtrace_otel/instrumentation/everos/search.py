"""Searches and lists: the query, the recallers, rankers and model decisions, and the returned records in order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, cast

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, variable_ref
from memtrace_otel.instrumentation.everos.state import SESSION, Call, Known, Session, ask
from memtrace_otel.instrumentation.everos.values import (
    candidate_ref,
    message_ref,
    message_text,
    profile_ref,
    profile_text,
    record_text,
    row_ref,
    space_of,
    value,
)
from memtrace_otel.instrumentation.steps import Step, StepFunction
from memtrace_otel.semconv import Incomplete, OpKind, RefKind, Role

_HYBRID = "memory_system.hybrid_retrieval"
_ROUND_1, _ROUND_2 = "memory_system.agentic_round1_bundle", "memory_system.agentic_round2_bundle"


@dataclass(slots=True)
class Search(Session):
    """State of one search.

    `vectors`: the texts of query vectors by identity of the vector, which is kept alive. `seen`: text and best score of
    every candidate. `shown`: the candidates that the next decision of a round sees.
    """

    round: int = 1
    vectors: dict[int, tuple[object, str]] = field(default_factory=dict[int, tuple[object, str]])
    seen: dict[str, tuple[str, float]] = field(default_factory=dict[str, tuple[str, float]])
    shown: list[Any] = field(default_factory=list[Any])

    def looked_at(self, candidate: Any, score: float) -> str:
        """Remember a candidate; returns its ref."""
        ref, text = candidate_ref(candidate), record_text(candidate)
        self.seen[ref] = text, max(self.seen.get(ref, (text, score))[1], score)
        return ref

    def query_of(self, vector: object) -> str | None:
        """The text of a query vector."""
        return self.vectors.get(id(vector), (None, None))[1]


def in_search(step: Callable[[Call, Search], Step]) -> StepFunction:
    """A step that records only inside a search."""

    @wraps(step)
    def inside(call: Call) -> Step:
        session = SESSION.get()
        if isinstance(session, Search):
            yield from step(call, session)

    return inside


# --- public calls ----------------------------------------------------------------------------------------------------
def search(call: Call) -> Step:
    """`SearchManager.search`: all five methods; hits in rank order, then the candidates that are not returned."""
    request = call.arguments().get("req")
    operation, session = _open_public(call, request, f"search.{value(value(request, 'method'), 'value') or ''}")
    query = str(value(request, "query") or "")
    session.known[query] = known = Known(variable_ref(RefKind.QUERY, query), query, "")
    asked = known.read_by(operation, Role.QUERY)
    if operation.captures_content:
        operation.set(semconv.GEN_AI_MEMORY_QUERY_TEXT, query)
    top_k = value(request, "top_k")
    if isinstance(top_k, int) and top_k > 0:
        operation.set(semconv.GEN_AI_RETRIEVAL_TOP_K, top_k)
    call.carry(SESSION, session)
    response = yield
    returned = _read_hits(operation, response, [asked])
    for ref, (text, score) in session.seen.items():
        if ref not in returned:
            operation.read(ref, role=Role.CANDIDATE, content=text, score=score)


def get(call: Call) -> Step:
    """`GetManager.get`: a page of records; the records are the hits, in the returned order."""
    operation, _ = _open_public(call, call.arguments().get("req"), "get")
    response = yield
    _read_hits(operation, response, [])


def _open_public(call: Call, request: Any, purpose: str) -> tuple[Operation, Search]:
    space = space_of(request)
    scope = space.owner(value(request, "owner_id"), str(value(request, "owner_type") or ""))
    attributes = {semconv.GEN_AI_MEMORY_STORE_ID: space.store}
    operation = call.open(semconv.SEARCH_MEMORY, OpKind.RETRIEVE, scope=scope, purpose=purpose, attributes=attributes)
    return operation, Search(space, scope)


def _read_hits(operation: Operation, response: Any, sources: Iterable[int]) -> set[str]:
    """Record the returned records as hits; returns their refs."""
    hits = list(_returned(value(response, "data")))
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(hits))
    read = [operation.read(ref, role=Role.HIT, content=text, score=score) for ref, text, score in hits]
    operation.context(sources=[*sources, *read])
    return {ref for ref, _, _ in hits}


def _returned(data: Any) -> Iterator[tuple[str, str, float | None]]:
    """(ref, text, score) of episodes with their facts, cases, skills, profiles and messages that are not yet cut."""
    for episode in value(data, "episodes") or ():
        owner = episode.user_id
        yield row_ref(episode.id, owner), record_text(episode), value(episode, "score")
        for fact in value(episode, "atomic_facts") or ():
            yield row_ref(fact.id, owner), fact.content.strip(), fact.score
    for record in (*(value(data, "agent_cases") or ()), *(value(data, "agent_skills") or ())):
        yield row_ref(record.id, record.agent_id), record_text(record), value(record, "score")
    for profile in value(data, "profiles") or ():
        yield profile_ref(profile.user_id), profile_text(profile.profile_data), None
    for message in value(data, "unprocessed_messages") or ():
        text = message_text(message)
        yield message_ref(message.id, text), text, None


# --- recallers -------------------------------------------------------------------------------------------------------
@in_search
def embed_query(call: Call, session: Search) -> Step:
    """`embed_query`, or `embed` in releases without `embed_query`: the text of a query vector."""
    text = str(call.arguments().get("text") or "")
    vector = yield
    session.vectors[id(vector)] = (vector, text)


@in_search
def sparse_recall(call: Call, session: Search) -> Step:
    """`sparse_recall`: candidates by words."""
    operation = _open(call, session, "memory_system.bm25_retrieval", call.arguments().get("query"))
    _read_recalled(operation, session, (yield))


@in_search
def dense_recall(call: Call, session: Search) -> Step:
    """`dense_recall`: candidates by vector."""
    query = session.query_of(call.arguments().get("vector"))
    operation = _open(call, session, "memory_system.embedding_retrieval", query)
    _read_recalled(operation, session, (yield))


@in_search
def facts_for_episodes(call: Call, session: Search) -> Step:
    """`facts_for_episodes`: the facts of the recalled episodes, by vector if there is a vector."""
    operation = _open(call, session, "facts_for_episodes", session.query_of(call.arguments().get("query_vector")))
    found = yield
    buckets = cast(Mapping[str, Sequence[Any]], found)
    _read_recalled(operation, session, (fact for facts in buckets.values() for fact in facts))


@in_search
def fetch(call: Call, session: Search) -> Step:
    """`fetch_by_entry_ids`, `fetch_by_case_ids`: records that other candidates name. They have no score yet."""
    found = yield
    for candidate in found:
        session.looked_at(candidate, 0.0)


def _open(call: Call, session: Search, purpose: str, query: object, kind: OpKind = OpKind.RETRIEVE) -> Operation:
    operation = call.open(None, kind, scope=session.scope, purpose=purpose)
    _read_query(operation, session, query)
    return operation


def _read_query(operation: Operation, session: Search, query: object) -> None:
    """Record the query of a step: the user's query or a query that a model made.

    The content is left out: the prompt of an answer is compared with the contents of the whole search.
    """
    known = session.known.get(query) if isinstance(query, str) else None
    if known is not None:
        operation.read(known.ref, role=Role.QUERY, content=None, origin=known.origin)


def _read_recalled(operation: Operation, session: Search, found: Iterable[Any]) -> None:
    for candidate in found:
        score = float(candidate.score)
        operation.read(session.looked_at(candidate, score), role=Role.CANDIDATE, score=score)


# --- rankers: candidates in their old order, hits in the new order -------------------------------------------------
@in_search
def fuse(call: Call, session: Search) -> Step:
    """`rrf`: several lists of candidates become one list."""
    operation = _open(call, session, _HYBRID, None, OpKind.RERANK)
    _read_ranked(operation, Role.CANDIDATE, [candidate for given in call.args for candidate in given])
    _read_ranked(operation, Role.HIT, (yield))


@in_search
def heap_expand(call: Call, session: Search) -> Step:
    """`heap_expand`: episodes and their facts compete for the places."""
    arguments = call.arguments()
    operation = _open(call, session, _HYBRID, None, OpKind.RERANK)
    facts = cast(Mapping[str, Sequence[Any]], arguments.get("episode_to_facts") or {})
    given = [*arguments.get("sparse", ()), *arguments.get("dense", ()), *(f for some in facts.values() for f in some)]
    _read_ranked(operation, Role.CANDIDATE, given)
    _read_ranked(operation, Role.HIT, (yield))


@in_search
def arank(call: Call, session: Search) -> Step:
    """`arank`: fusion of cases or skills, with or without a model that reranks them."""
    given = call.arguments().get("rank_input") or (call.args[0] if call.args else None)
    if given is None:
        return
    operation = _open(call, session, _HYBRID, value(given, "query"), OpKind.RERANK)
    ask(call, "rerank")
    _read_ranked(operation, Role.CANDIDATE, [*given.sparse_candidates, *given.dense_candidates])
    ranked = yield
    _read_ranked(operation, Role.HIT, ranked.items)


@in_search
def build_reranker(call: Call, session: Search) -> Step:
    """`build_rerank_fn` and its variants: the returned function calls a cross-encoder."""
    reranker = yield
    call.hand_out(call.patches.around(reranker, cross_encode))


@in_search
def cross_encode(call: Call, session: Search) -> Step:
    """The function that `build_rerank_fn` returned: candidates in a new order."""
    arguments = call.arguments()
    purpose = _ROUND_1 if session.round == 1 else "memory_system.agentic_final_rerank"
    operation = _open(call, session, purpose, arguments.get("query"), OpKind.RERANK)
    _read_ranked(operation, Role.CANDIDATE, list(arguments.get("candidates") or ()))
    _read_ranked(operation, Role.HIT, (yield))


def _read_ranked(operation: Operation, role: Role, candidates: Iterable[Any]) -> None:
    for candidate in candidates:
        operation.read(candidate_ref(candidate), role=role, score=float(candidate.score))


# --- decisions of a model --------------------------------------------------------------------------------------------
@in_search
def check_sufficiency(call: Call, session: Search) -> Step:
    """`_check_sufficiency`: whether the candidates answer the query."""
    arguments = call.arguments()
    operation = _open_decision(call, session, _ROUND_1, "sufficiency_check", arguments.get("query"))
    _read_shown(operation, arguments.get("candidates"))
    verdict = yield
    names = ("is_sufficient", "reasoning", "key_information_found", "missing_information")
    text = json.dumps({name: value(verdict, name) for name in names}, ensure_ascii=False, default=str)
    ref = variable_ref(RefKind.FACT, text)
    operation.wrote(ref, content=text)
    session.learn("sufficiency", ref, operation)


@in_search
def multiply_queries(call: Call, session: Search) -> Step:
    """`_generate_multi_queries`, `_generate_refined_query`: the queries of the second round."""
    arguments = call.arguments()
    operation = _open_decision(call, session, _ROUND_2, "multi_query_generation", arguments.get("original_query"))
    _read_shown(operation, arguments.get("candidates"))
    verdict = session.known.get("sufficiency")
    if verdict is not None:
        verdict.read_by(operation)
    made = yield
    session.round += 1
    _learn_queries(operation, session, value(made, "queries") or [value(made, "refined_query")])


@in_search
def decide_round(call: Call, session: Search) -> Step:
    """`LLMRoundDecider.__call__`: the needed memories, and the queries of the next round."""
    operation = _open_decision(call, session, "llm_multiround", "round_decision", call.arguments().get("question"))
    _read_shown(operation, session.shown)
    decision = yield
    session.round += 1
    shown = [candidate_ref(candidate) for candidate in session.shown]
    core = [shown[index] for index in cast(Sequence[int], decision.core) if 0 <= index < len(shown)]
    text = json.dumps({"core": core, "stop": bool(decision.stop)})
    operation.wrote(variable_ref(RefKind.FACT, text), content=text)
    _learn_queries(operation, session, decision.queries)
    if value(decision, "failed"):  # EverOS uses a fixed choice in place of the model's reply
        operation.mark(Incomplete.UNPARSED)
        operation.span.add_event(semconv.FALLBACK_EVENT)


@in_search
def render_blocks(call: Call, session: Search) -> Step:
    """`_render_blocks`: the candidates of a round, in the order in which the decision counts them."""
    _, candidates, _ = yield
    session.shown = list(candidates)


def _open_decision(call: Call, session: Search, purpose: str, prompt: str, query: object) -> Operation:
    ask(call, prompt)
    return _open(call, session, purpose, query, OpKind.DECIDE)


def _read_shown(operation: Operation, candidates: object) -> None:
    for candidate in cast(Sequence[Any], candidates or ()):
        operation.read(candidate_ref(candidate), role=Role.CANDIDATE)


def _learn_queries(operation: Operation, session: Search, queries: Iterable[object]) -> None:
    """A query that a model made is a fact of the reply. Only the query of the user has no source."""
    for query in queries:
        text = str(query or "")
        if text and text not in session.known:
            ref = variable_ref(RefKind.FACT, text)
            operation.wrote(ref, content=text)
            session.learn(text, ref, operation)
