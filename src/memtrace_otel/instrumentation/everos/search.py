"""Searching and listing: what was asked, everything that was returned, in order, and what was looked at besides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, variable_ref
from memtrace_otel.instrumentation.everos.calls import Call
from memtrace_otel.instrumentation.everos.session import SESSION, Known, Search
from memtrace_otel.instrumentation.everos.variables import (
    message_ref,
    message_text,
    profile_ref,
    profile_text,
    record_text,
    row_ref,
    space_of,
    value,
)
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.semconv import OpKind, RefKind, Role


@dataclass(frozen=True, slots=True)
class Found:
    """One record of a result."""

    ref: str
    text: str
    score: float | None = None


def search(call: Call) -> Step:
    """`SearchManager.search`: all five methods; hits in rank order, then the candidates that were not returned."""
    request = call.arguments().get("req")
    operation, session = _open(call, request, f"search.{value(value(request, 'method'), 'value') or ''}")
    query = str(value(request, "query") or "")
    known = Known(variable_ref(RefKind.QUERY, query), query, "")
    session.known[query] = known
    asked = known.read_by(operation, Role.QUERY)
    if operation.captures_content:
        operation.set(semconv.GEN_AI_MEMORY_QUERY_TEXT, query)
    top_k = value(request, "top_k")
    if isinstance(top_k, int) and top_k > 0:
        operation.set(semconv.GEN_AI_RETRIEVAL_TOP_K, top_k)
    call.carry(SESSION, session)
    response = yield
    hits = list(_returned(value(response, "data")))
    _read_hits(operation, hits, [asked])
    returned = {hit.ref for hit in hits}
    for ref, (text, score) in session.seen.items():
        if ref not in returned:
            operation.read(ref, role=Role.CANDIDATE, content=text, score=score)


def get(call: Call) -> Step:
    """`GetManager.get`: a page of records; they are the hits, in the order they are returned."""
    request = call.arguments().get("req")
    operation, _ = _open(call, request, "get")
    response = yield
    _read_hits(operation, list(_returned(value(response, "data"))), [])


def _open(call: Call, request: Any, purpose: str) -> tuple[Operation, Search]:
    space = space_of(request)
    scope = space.owner(value(request, "owner_id"), str(value(request, "owner_type") or ""))
    attributes = {semconv.GEN_AI_MEMORY_STORE_ID: space.store}
    operation = call.open(semconv.SEARCH_MEMORY, OpKind.RETRIEVE, scope=scope, purpose=purpose, attributes=attributes)
    return operation, Search(space, scope)


def _returned(data: Any) -> Iterator[Found]:
    """Episodes with the facts nested in them, cases, skills, and beside them the profile and waiting messages."""
    for episode in value(data, "episodes") or ():
        owner = episode.user_id
        yield Found(row_ref(episode.id, owner), record_text(episode), value(episode, "score"))
        for fact in value(episode, "atomic_facts") or ():
            yield Found(row_ref(fact.id, owner), fact.content.strip(), fact.score)
    for record in (*(value(data, "agent_cases") or ()), *(value(data, "agent_skills") or ())):
        yield Found(row_ref(record.id, record.agent_id), record_text(record), value(record, "score"))
    for profile in value(data, "profiles") or ():
        yield Found(profile_ref(profile.user_id), profile_text(profile.profile_data))
    for message in value(data, "unprocessed_messages") or ():
        text = message_text(message)
        yield Found(message_ref(message.id, text), text)


def _read_hits(operation: Operation, hits: list[Found], sources: Iterable[int]) -> None:
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(hits))
    read = [operation.read(hit.ref, role=Role.HIT, content=hit.text, score=hit.score) for hit in hits]
    operation.context(sources=[*sources, *read])
