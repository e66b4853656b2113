"""The public methods of Memory and AsyncMemory as memory spans of the GenAI conventions.

`gen_ai.memory.store.id` is the name of the vector collection. The conventions have no name for reading by id or
listing: `get` and `get_all` are `search_memory`; `history` is `memtrace.retrieve`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from opentelemetry.util.types import AttributeValue

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, scope_id, variable_ref
from memtrace_otel.capture.content import said
from memtrace_otel.capture.layout import number
from memtrace_otel.instrumentation.mem0.calls import Call
from memtrace_otel.instrumentation.mem0.filters import record_filters
from memtrace_otel.instrumentation.mem0.graph import relations
from memtrace_otel.instrumentation.mem0.known_records import KnownRecord
from memtrace_otel.instrumentation.mem0.session import Given, Known, Session, open_session
from memtrace_otel.instrumentation.mem0.variables import (
    collection_of,
    event_time,
    memory_ref,
    owner_scope,
    place_of,
    record_of,
    results,
    turns,
)
from memtrace_otel.instrumentation.mem0.writes import gone
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.semconv import OpKind, RefKind, Role


def add(call: Call) -> Step:
    """`add`: `upsert_memory` when a model extracts, `create_memory` when the messages are stored as they are."""
    arguments = call.arguments()
    as_is = not arguments.get("infer", True) and not arguments.get("memory_type")
    name, kind = (semconv.CREATE_MEMORY, OpKind.CREATE) if as_is else (semconv.UPSERT_MEMORY, OpKind.INGEST)
    scope, purpose = owner_scope(call.instance, arguments), "add_to_vector_store" if as_is else "add"
    operation = call.open(name, kind, scope=scope, purpose=purpose, attributes=_store(call))
    session = open_session(call, operation, produces=as_is)
    session.event_time = event_time(cast("Mapping[str, Any] | None", arguments.get("metadata")))
    for turn in turns(arguments.get("messages"), session.said_in):
        known = Known(turn.ref, turn.content, Role.MESSAGE, "")
        place = known.read_by(operation)
        session.learn(turn.content, known)
        if isinstance(turn.content, str):
            session.given.setdefault(turn.content, []).append(Given(place, known))
        session.event_time = session.event_time or turn.time
    result = yield
    written = results(result)
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(written))
    if as_is and len(written) == 1:
        operation.set(semconv.GEN_AI_MEMORY_RECORD_ID, str(written[0].get("id")))


def search(call: Call) -> Step:
    """`search`: query and every candidate in, hits in rank order, the context they make out."""
    arguments = call.arguments()
    query = arguments.get("query")
    operation = call.open(
        semconv.SEARCH_MEMORY,
        OpKind.RETRIEVE,
        scope=_scope(call, arguments),
        purpose="search_vector_store",
        attributes=_store(call),
    )
    session = open_session(call, operation)
    known = Known(variable_ref(RefKind.QUERY, query), query, Role.QUERY, "")
    session.learn(query.strip() if isinstance(query, str) else None, known)  # 2.x goes on with the trimmed query
    session.learn(query, known)
    session.query, asked = known, known.read_by(operation)
    if operation.captures_content and isinstance(query, str):
        operation.set(semconv.GEN_AI_MEMORY_QUERY_TEXT, query)
    top_k = arguments.get("top_k", arguments.get("limit"))
    if isinstance(top_k, int):
        operation.set(semconv.GEN_AI_RETRIEVAL_TOP_K, top_k)
    record_filters(operation, arguments.get("filters"))
    threshold = number(arguments.get("threshold"))
    if threshold is not None:
        operation.set(semconv.RETRIEVAL_THRESHOLD, threshold)
    result = yield
    _retrieved(call, session, result, sources=[asked])
    session.read_all(operation, session.candidates, Role.CANDIDATE)


def get_all(call: Call) -> Step:
    """`get_all`: the listed records are the hits, in the order they are returned."""
    operation = call.open(
        semconv.SEARCH_MEMORY,
        OpKind.RETRIEVE,
        scope=_scope(call, call.arguments()),
        purpose="get_all",
        attributes=_store(call),
    )
    session = open_session(call, operation)
    record_filters(operation, call.arguments().get("filters"))
    result = yield
    _retrieved(call, session, result)


def get(call: Call) -> Step:
    """`get`: one record by id."""
    id = str(call.arguments().get("memory_id"))
    operation = _open_by_id(call, semconv.SEARCH_MEMORY, OpKind.RETRIEVE, id, purpose="get")
    session = open_session(call, operation)
    result = yield
    _retrieved(call, session, {"results": [result]})


def history(call: Call) -> Step:
    """`history`: reads the newest version of one record; the older ones are named by their count only."""
    id = str(call.arguments().get("memory_id"))
    operation = _open_by_id(call, None, OpKind.RETRIEVE, id, purpose="history")
    open_session(call, operation)
    rows = yield
    read_history(operation, id, rows)


def read_history(operation: Operation, id: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Record what was told of a record: its texts, oldest first, are the context."""
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(rows))
    if rows:
        operation.read(memory_ref(id), role=Role.HISTORY, content=rows[-1].get("new_memory"))
    operation.context("\n".join(str(row["new_memory"]) for row in rows if row.get("new_memory")))


def update(call: Call) -> Step:
    """`update`: the given text and the replaced version in, the new version out (the inner steps add both versions)."""
    arguments = call.arguments()
    id, text = str(arguments.get("memory_id")), arguments.get("text", arguments.get("data"))
    text = arguments.get("data") if text is None else text
    operation = _open_by_id(call, semconv.UPDATE_MEMORY, OpKind.UPDATE, id)
    session = open_session(call, operation, produces=True)
    session.event_time = event_time(cast("Mapping[str, Any] | None", arguments.get("metadata")))
    if isinstance(text, str):
        ref = said(variable_ref(RefKind.FACT, text), session.said_in)  # a statement to store, not a turn of a talk
        known = Known(ref, text, origin="")
        session.learn(text, known)
        session.given[text] = [Given(known.read_by(operation), known)]
    yield


def delete(call: Call) -> Step:
    """`delete`: the last version in, its tombstone out (added by the inner steps)."""
    id = str(call.arguments().get("memory_id"))
    operation = _open_by_id(call, semconv.DELETE_MEMORY, OpKind.DELETE, id)
    open_session(call, operation, produces=True)
    yield


def delete_all(call: Call) -> Step:
    """`delete_all`: the parent of one `delete_memory` per record, which own the tombstones."""
    scope = owner_scope(call.instance, call.arguments())
    operation = call.open(
        semconv.DELETE_MEMORY, OpKind.DELETE, scope=scope, purpose="delete_all", attributes=_store(call)
    )
    session = open_session(call, operation)
    yield
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, session.deleted)


def reset(call: Call) -> Step:
    """`reset`: the whole collection goes, whoever owns its records. Those known here get tombstones."""
    scope = scope_id(collection_of(call.instance))
    operation = call.open(
        semconv.DELETE_MEMORY_STORE, OpKind.DELETE, scope=scope, purpose="reset", attributes=_store(call)
    )
    open_session(call, operation)
    store, place = collection_of(call.instance), place_of(call.instance)
    yield
    gone(call, call.patches.records.take(store, place=place), "reset")


def _open_by_id(call: Call, name: str | None, kind: OpKind, id: str, purpose: str = "") -> Operation:
    """Open an operation on one record. Its owner is known once this process has seen the record."""
    return call.open(name, kind, scope=call.patches.records.scope_of(id), purpose=purpose, attributes=_store(call, id))


def _store(call: Call, id: str = "") -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {semconv.GEN_AI_MEMORY_STORE_ID: collection_of(call.instance)}
    if id:
        attributes[semconv.GEN_AI_MEMORY_RECORD_ID] = id
    return attributes


def _scope(call: Call, arguments: Mapping[str, Any]) -> str:
    """Owner named by the filters (2.x) or by the call itself (1.x)."""
    filters = arguments.get("filters")
    named = cast("Mapping[str, Any]", filters if isinstance(filters, Mapping) else {})
    return owner_scope(call.instance, {**named, **{k: v for k, v in arguments.items() if v is not None}})


def _retrieved(call: Call, session: Session, result: Mapping[str, Any], sources: Iterable[int] = ()) -> None:
    """Record the hits, memories before relations, and the context that they make together."""
    operation = session.operation
    hits = [record_of(call.instance, item) for item in results(result)]
    hits += relations(result.get("relations"), operation.scope, getattr(call.instance, "graph", None))
    owners = {hit.scope for hit in hits}
    if len(owners) == 1:  # records tell their owner better than a filter on an agent or a run
        operation.scope = owners.pop() or operation.scope
    store, place = collection_of(call.instance), place_of(call.instance)
    for hit in hits:
        call.patches.records.saw(KnownRecord(store, hit.scope, hit.id, place))
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(hits))
    read = session.read_all(operation, hits, Role.HIT)
    operation.context(sources=[*sources, *read])
