"""The public methods of Memory and AsyncMemory as memory spans of the GenAI conventions.

`gen_ai.memory.store.id` is the name of the vector collection. The conventions have no name for a read by id or a list:
`get` and `get_all` are `search_memory`; `history` is `memtrace.retrieve`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from opentelemetry.util.types import AttributeValue

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, scope_id, variable_ref
from memtrace_otel.capture.content import said
from memtrace_otel.capture.layout import number
from memtrace_otel.instrumentation.mem0.graph import relations
from memtrace_otel.instrumentation.mem0.state import Call, Known, KnownRecord, Session, open_session
from memtrace_otel.instrumentation.mem0.values import (
    collection_of,
    event_time,
    memory_ref,
    owner_scope,
    record_of,
    results,
    turns,
)
from memtrace_otel.instrumentation.mem0.writes import record_deleted
from memtrace_otel.instrumentation.steps import Step, record_filters
from memtrace_otel.semconv import OpKind, RefKind, Role


def add(call: Call) -> Step:
    """`add`: `upsert_memory` when a model extracts, `create_memory` when the messages are stored unchanged."""
    arguments = call.arguments()
    as_is = not arguments.get("infer", True) and not arguments.get("memory_type")
    name, kind = (semconv.CREATE_MEMORY, OpKind.CREATE) if as_is else (semconv.UPSERT_MEMORY, OpKind.INGEST)
    scope = owner_scope(collection_of(call.instance), arguments)
    operation = _open(call, name, kind, scope, purpose="add_to_vector_store" if as_is else "add")
    session = open_session(call, operation, produces=as_is)
    session.event_time = event_time(cast("Mapping[str, Any] | None", arguments.get("metadata")))
    for turn in turns(arguments.get("messages"), session.said_in):
        session.give(turn.content, Known(turn.ref, turn.content, Role.MESSAGE, ""))
        session.event_time = session.event_time or turn.time
    written = results((yield))
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(written))
    if as_is and len(written) == 1:
        operation.set(semconv.GEN_AI_MEMORY_RECORD_ID, str(written[0].get("id")))


def search(call: Call) -> Step:
    """`search`: the query and all candidates in, the hits in rank order, the context of the hits out."""
    arguments = call.arguments()
    operation = _open(call, semconv.SEARCH_MEMORY, OpKind.RETRIEVE, _scope(call), purpose="search_vector_store")
    session = open_session(call, operation)
    query = arguments.get("query")
    session.query = known = Known(variable_ref(RefKind.QUERY, query), query, Role.QUERY, "")
    session.learn(query.strip() if isinstance(query, str) else None, known)  # 2.x goes on with the trimmed query
    session.learn(query, known)
    asked = record_search(operation, query, arguments)
    result = yield
    _retrieved(call, session, result, sources=[asked])
    session.read_all(operation, session.candidates, Role.CANDIDATE)


def record_search(operation: Operation, query: object, arguments: Mapping[str, Any]) -> int:
    """Record the query and the parameters of a search; returns the input index of the query."""
    asked = operation.read(variable_ref(RefKind.QUERY, query), role=Role.QUERY, content=query, origin="")
    if operation.captures_content and isinstance(query, str):
        operation.set(semconv.GEN_AI_MEMORY_QUERY_TEXT, query)
    top_k, threshold = arguments.get("top_k", arguments.get("limit")), number(arguments.get("threshold"))
    if isinstance(top_k, int):
        operation.set(semconv.GEN_AI_RETRIEVAL_TOP_K, top_k)
    if threshold is not None:
        operation.set(semconv.RETRIEVAL_THRESHOLD, threshold)
    record_filters(operation, arguments.get("filters"))
    return asked


def get_all(call: Call) -> Step:
    """`get_all`: the listed records are the hits, in the returned order."""
    operation = _open(call, semconv.SEARCH_MEMORY, OpKind.RETRIEVE, _scope(call), purpose="get_all")
    session = open_session(call, operation)
    record_filters(operation, call.arguments().get("filters"))
    result = yield
    _retrieved(call, session, result)


def get(call: Call) -> Step:
    """`get`: one record by id."""
    session = open_session(call, _open_by_id(call, semconv.SEARCH_MEMORY, OpKind.RETRIEVE, purpose="get"))
    result = yield
    _retrieved(call, session, {"results": [result]})


def history(call: Call) -> Step:
    """`history`: reads the newest version of one record; the number of older versions is the record count."""
    operation = _open_by_id(call, None, OpKind.RETRIEVE, purpose="history")
    open_session(call, operation)
    rows = yield
    record_history(operation, str(call.arguments().get("memory_id")), rows)


def record_history(operation: Operation, id: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Record the history of a record: its texts, oldest first, are the context."""
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(rows))
    if rows:
        operation.read(memory_ref(id), role=Role.HISTORY, content=rows[-1].get("new_memory"))
    operation.context("\n".join(str(row["new_memory"]) for row in rows if row.get("new_memory")))


def update(call: Call) -> Step:
    """`update`: the given text and the replaced version in, the new version out. Inner steps add both versions."""
    arguments = call.arguments()
    text = arguments.get("text", arguments.get("data"))
    text = arguments.get("data") if text is None else text
    operation = _open_by_id(call, semconv.UPDATE_MEMORY, OpKind.UPDATE)
    session = open_session(call, operation, produces=True)
    session.event_time = event_time(cast("Mapping[str, Any] | None", arguments.get("metadata")))
    if isinstance(text, str):
        ref = said(variable_ref(RefKind.FACT, text), session.said_in)  # a statement to store, not a message
        session.give(text, Known(ref, text, origin=""))
    yield


def delete(call: Call) -> Step:
    """`delete`: the last version in, the tombstone out. Inner steps add both."""
    open_session(call, _open_by_id(call, semconv.DELETE_MEMORY, OpKind.DELETE), produces=True)
    yield


def delete_all(call: Call) -> Step:
    """`delete_all`: the parent of one `delete_memory` per record; the children own the tombstones."""
    scope = owner_scope(collection_of(call.instance), call.arguments())
    operation = _open(call, semconv.DELETE_MEMORY, OpKind.DELETE, scope, purpose="delete_all")
    session = open_session(call, operation)
    yield
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, session.deleted)


def reset(call: Call) -> Step:
    """`reset`: the whole collection is deleted. Records that this process has seen get tombstones."""
    store = collection_of(call.instance)
    open_session(call, _open(call, semconv.DELETE_MEMORY_STORE, OpKind.DELETE, scope_id(store), purpose="reset"))
    yield
    record_deleted(call, call.patches.records.take(store), "reset")


def _open(call: Call, name: str | None, kind: OpKind, scope: str, *, purpose: str = "", id: str = "") -> Operation:
    attributes: dict[str, AttributeValue] = {semconv.GEN_AI_MEMORY_STORE_ID: collection_of(call.instance)}
    if id:
        attributes[semconv.GEN_AI_MEMORY_RECORD_ID] = id
    return call.open(name, kind, scope=scope, purpose=purpose, attributes=attributes)


def _open_by_id(call: Call, name: str | None, kind: OpKind, purpose: str = "") -> Operation:
    """Open an operation on one record. The owner is known when this process has seen the record."""
    id = str(call.arguments().get("memory_id"))
    return _open(call, name, kind, call.patches.records.scope_of(id), purpose=purpose, id=id)


def _scope(call: Call) -> str:
    """The owner named by the filters (2.x) or by the call (1.x)."""
    arguments = call.arguments()
    filters = arguments.get("filters")
    named = cast("Mapping[str, Any]", filters if isinstance(filters, Mapping) else {})
    named = {**named, **{key: value for key, value in arguments.items() if value is not None}}
    return owner_scope(collection_of(call.instance), named)


def _retrieved(call: Call, session: Session, result: Mapping[str, Any], sources: Iterable[int] = ()) -> None:
    """Record the hits, memories before relations, and the context that they make together."""
    operation = session.operation
    hits = [record_of(call.instance, item) for item in results(result)]
    hits += relations(result.get("relations"), operation.scope, getattr(call.instance, "graph", None))
    owners = {hit.scope for hit in hits}
    if len(owners) == 1:  # the records name their owner; a filter may name an agent or a run
        operation.scope = owners.pop() or operation.scope
    for hit in hits:
        call.patches.records.saw(KnownRecord(collection_of(call.instance), hit.scope, hit.id))
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(hits))
    operation.context(sources=[*sources, *session.read_all(operation, hits, Role.HIT)])
