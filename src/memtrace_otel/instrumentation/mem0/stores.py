"""The providers behind a Memory: vector store, embedder, reranker.

Only calls on the providers of the Memory in use are recorded, not the stores of entities (2.x) and of statistics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from memtrace_otel import semconv
from memtrace_otel.capture import config, variable_ref
from memtrace_otel.capture.layout import number
from memtrace_otel.instrumentation.mem0 import record_origins
from memtrace_otel.instrumentation.mem0.state import SESSION, WRITE, Call, Known, Session, provider_session
from memtrace_otel.instrumentation.mem0.values import (
    Record,
    collection_of,
    memory_ref,
    model_of,
    owner_scope,
    record_of,
)
from memtrace_otel.instrumentation.mem0.writes import open_create, record_deleted, record_written, replace
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.semconv import Action, OpKind, RefKind, Role

_RECORDS = "vector_store"


def search(call: Call) -> Step:
    """A similarity search: the candidates of a public search, or the neighbours of the messages of an `add`.

    Neighbours are searched by messages or facts, not by a question, so no memory ever descends from a query.
    """
    session = provider_session(call, _RECORDS)
    if session is None:
        return
    query = call.arguments().get("query")
    if session.neighbours is None:
        found = session.unmark(call, (yield))
        session.candidates += _records(session, found)
        return
    operation = call.open(None, OpKind.RETRIEVE, scope=session.scope, purpose="existing_memories")
    for known in session.variable_of(query) or [Known(turn.ref, turn.content, origin="") for turn in session.turns]:
        known.read_by(operation, Role.QUERY)
    found = session.unmark(call, (yield))
    session.neighbours[str(query)] = _records(session, found)
    session.read_all(operation, session.neighbours[str(query)], Role.HIT)


def get(call: Call) -> Step:
    """A read by id: inside an update or a delete the row is the previous version."""
    session, write = provider_session(call, _RECORDS), WRITE.get()
    if session is None:
        return
    row = session.unmark(call, (yield))
    if row is None:
        return
    record = record_of(session.memory, row)
    if write is not None:
        replace(session, write, record)
    elif session.produces:  # the public delete reads before it deletes
        session.operation.scope = record.scope or session.operation.scope
        session.learn(record.text, Known(record.ref, record.text, Role.PREVIOUS))


def listing(call: Call) -> Step:
    """`list`: the rows of `get_all` and `delete_all`, which their own steps record."""
    session = provider_session(call, _RECORDS)
    if session is not None:
        session.unmark(call, (yield))


def keyword_search(call: Call) -> Step:
    """`keyword_search` (2.x): the records that share words with a query; None from a store that cannot search words."""
    session = provider_session(call, _RECORDS)
    if session is None:
        return
    found = session.unmark(call, (yield))
    if found is None:
        return
    operation = call.open(None, OpKind.RERANK, scope=session.scope, purpose="keyword_search")
    if session.query is not None:
        session.query.read_by(operation)
    session.read_all(operation, _records(session, found), Role.CANDIDATE)


def insert(call: Call) -> Step:
    """New records: of the create operation in progress, or (2.x) a batch with one create operation each."""
    session, write = provider_session(call, _RECORDS), WRITE.get()
    if session is None:
        return
    arguments = call.arguments()
    ids = [str(id) for id in cast(Sequence[object], arguments.get("ids") or [])]
    payloads = cast(Sequence[Mapping[str, Any]], arguments.get("payloads") or [])
    writes = [write or open_create(call, session, id, payload) for id, payload in zip(ids, payloads, strict=False)]
    if config().record_origin and len(writes) == len(payloads):
        origins = [write.operation.origin for write in writes]
        marked = [record_origins.marked(payload, origin) for payload, origin in zip(payloads, origins, strict=True)]
        record_origins.replace_argument(call, "payloads", marked)
    yield
    for id, payload, made in zip(ids, payloads, writes, strict=False):
        record_written(call, session, made, Action.ADD, _record(session, id, payload))


def update(call: Call) -> Step:
    """A record replaced in place. Outside an update operation (1.x refreshes session ids) its text is unchanged."""
    session, write = provider_session(call, _RECORDS), WRITE.get()
    if session is None:
        return
    arguments = call.arguments()
    id, payload = str(arguments.get("vector_id")), cast("Mapping[str, Any] | None", arguments.get("payload"))
    if write is None:
        if payload is not None and id in session.marks:  # the version is unchanged, so its mark is put back
            record_origins.replace_argument(call, "payload", record_origins.remarked(payload, session.marks[id][1]))
        return
    if payload is not None and config().record_origin:
        record_origins.replace_argument(call, "payload", record_origins.marked(payload, write.operation.origin))
    yield
    record_written(call, session, write, Action.UPDATE, _record(session, write.record_id, payload or {}))


def delete(call: Call) -> Step:
    """A deleted record: its tombstone."""
    session, write = provider_session(call, _RECORDS), WRITE.get()
    if session is not None and write is not None:
        yield
        record_written(call, session, write, Action.DELETE, Record(write.record_id, "", ""))


def reset(call: Call) -> Step:
    """The whole collection is emptied, by `reset` or by `delete_all` of 1.0: tombstones also for other owners."""
    session = provider_session(call, _RECORDS)
    if session is None:
        return
    yield
    record_deleted(call, call.patches.records.take(collection_of(session.memory)), session.operation.purpose)


def entity_boosts(call: Call) -> Step:
    """`_compute_entity_boosts` (2.x): the memories that entities of the query move up, and by how much."""
    session = SESSION.get()
    if session is None or session.memory is not call.instance:
        return
    operation = call.open(None, OpKind.RERANK, scope=session.scope, purpose="entity_boosts")
    if session.query is not None:
        session.query.read_by(operation)
    found = yield
    ranked = sorted(cast("Mapping[str, object]", found).items(), key=lambda item: -(number(item[1]) or 0.0))
    for id, boost in ranked:
        operation.read(memory_ref(id), role=Role.CANDIDATE, score=number(boost))


def embed(call: Call) -> Step:
    """One or several embedded texts; recorded when they are variables (entity names are not)."""
    session = provider_session(call, "embedding_model")
    if session is None:
        return
    arguments = call.arguments()
    given = arguments.get("texts", arguments.get("text"))
    texts = cast(list[object], given) if isinstance(given, list) else [given]
    embedded = [known for text in texts for known in session.variable_of(text)]
    if not embedded and session.turns and arguments.get("memory_action") == "search":
        embedded = [Known(turn.ref, turn.content, Role.MESSAGE, "") for turn in session.turns]
    if not embedded:
        return
    operation = call.open(None, OpKind.INDEX, scope=session.scope, purpose="embed", attributes=model_of(call.instance))
    for known in embedded:
        known.read_by(operation)
    yield


def score_and_rank(call: Call) -> Step:
    """`score_and_rank` (2.x): the scorers that took part depend on installed packages and on the store."""
    session = SESSION.get()
    if session is None:
        return
    arguments = call.arguments()
    optional = (("bm25", "bm25_scores"), ("entity", "entity_boosts"))
    scorers = ["semantic", *(name for name, argument in optional if arguments.get(argument))]
    session.operation.set(semconv.RETRIEVAL_SCORERS, scorers)
    yield


def rerank(call: Call) -> Step:
    """The hits of a search in a new order: candidates in the old order, hits in the returned order."""
    session = provider_session(call, "reranker")
    if session is None:
        return
    arguments = call.arguments()
    operation = call.open(None, OpKind.RERANK, scope=session.scope, purpose="rerank")
    query = arguments.get("query")
    operation.read(variable_ref(RefKind.QUERY, query), role=Role.QUERY, content=query)
    session.read_all(operation, _records(session, arguments.get("documents")), Role.CANDIDATE)
    reordered = yield
    session.read_all(operation, _records(session, reordered), Role.HIT)


def _records(session: Session, found: object) -> list[Record]:
    """The rows that a search of the store returned."""
    rows = cast(Sequence[Any], found if isinstance(found, list | tuple) else ())
    return [record_of(session.memory, row) for row in rows]


def _record(session: Session, id: str, payload: Mapping[str, Any]) -> Record:
    """A record that is being written."""
    return Record(id, payload.get("data", ""), owner_scope(collection_of(session.memory), payload))
