"""The recallers of a search: candidates by words, by vector, by id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from memtrace_otel.capture import Operation
from memtrace_otel.instrumentation.everos.calls import Call
from memtrace_otel.instrumentation.everos.session import Known, Search, search_of
from memtrace_otel.instrumentation.everos.variables import candidate_ref, record_text
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.semconv import OpKind, Role


def embed_query(call: Call) -> Step:
    """`embed_query`: which text a query vector is."""
    session = search_of()
    if session is None:
        return
    text = str(call.arguments().get("text") or "")
    vector = yield
    session.vectors[id(vector)] = (vector, text)


def embed(call: Call) -> Step:
    """`embed`: the same, in releases that tell queries and texts apart and in those that do not."""
    yield from embed_query(call)


def sparse_recall(call: Call) -> Step:
    """`sparse_recall`: candidates by words."""
    session = search_of()
    if session is None:
        return
    operation = _open(call, session, "memory_system.bm25_retrieval", call.arguments().get("query"))
    found = yield
    _read(operation, session, found)


def dense_recall(call: Call) -> Step:
    """`dense_recall`: candidates by vector."""
    session = search_of()
    if session is None:
        return
    _, query = session.vectors.get(id(call.arguments().get("vector")), (None, None))
    operation = _open(call, session, "memory_system.embedding_retrieval", query)
    found = yield
    _read(operation, session, found)


def facts_for_episodes(call: Call) -> Step:
    """`facts_for_episodes`: the facts of the episodes recalled so far, by vector where there is one."""
    session = search_of()
    if session is None:
        return
    _, query = session.vectors.get(id(call.arguments().get("query_vector")), (None, None))
    operation = _open(call, session, "facts_for_episodes", query)
    found = yield
    buckets = cast(Mapping[str, Sequence[Any]], found)
    _read(operation, session, (fact for facts in buckets.values() for fact in facts))


def fetch(call: Call) -> Step:
    """`fetch_by_entry_ids`, `fetch_by_case_ids`: records that other candidates lead to; they have no score yet."""
    session = search_of()
    if session is None:
        return
    found = yield
    for candidate in found:
        session.looked_at(candidate_ref(candidate), record_text(candidate), 0.0)


def _open(call: Call, session: Search, purpose: str, query: object) -> Operation:
    operation = call.open(None, OpKind.RETRIEVE, scope=session.scope, purpose=purpose)
    read_query(operation, session, query)
    return operation


def read_query(operation: Operation, session: Search, query: object) -> int:
    """Record what a step of a search was asked: the query or one that a model made of it.

    Without its content: what an answer's prompt is matched with is the search around the step.
    """
    known = session.known.get(query) if isinstance(query, str) else None
    return -1 if known is None else Known(known.ref, None, known.origin).read_by(operation, Role.QUERY)


def _read(operation: Operation, session: Search, found: Iterable[Any]) -> None:
    for candidate in found:
        ref, score = candidate_ref(candidate), float(candidate.score)
        session.looked_at(ref, record_text(candidate), score)
        operation.read(ref, role=Role.CANDIDATE, score=score)
