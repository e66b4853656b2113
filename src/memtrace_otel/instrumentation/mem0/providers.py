"""The providers behind a Memory: vector store, embedder, reranker, history table.

Only calls on the providers of the Memory under way count: Mem0's telemetry store and its entity collection are others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from opentelemetry import trace

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, variable_ref
from memtrace_otel.instrumentation.mem0.calls import Call
from memtrace_otel.instrumentation.mem0.session import SESSION, WRITE, Known, Session, provider_session
from memtrace_otel.instrumentation.mem0.variables import Record, memory_ref, model_of, owner_scope, record_of
from memtrace_otel.instrumentation.mem0.writes import open_create, replace, written
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.semconv import Action, OpKind, RefKind, Role


def store_search(call: Call) -> Step:
    """A similarity search: the candidates of a public search, or the neighbours that an `add` looks up.

    Neighbours are asked for by messages or facts, not by a question, so no memory ever descends from a query.
    """
    session = provider_session(call, "vector_store")
    if session is None:
        return
    query = call.arguments().get("query")
    if session.neighbours is None:
        found = yield
        session.candidates += _records(session, found)
        return
    operation = call.open(None, OpKind.RETRIEVE, scope=session.scope)
    for known in session.knows(query) or [Known(turn.ref, turn.content, origin="") for turn in session.turns]:
        known.read_by(operation, Role.QUERY)
    found = yield
    session.neighbours[str(query)] = _records(session, found)
    _read_all(operation, Role.HIT, session.neighbours[str(query)])


def store_get(call: Call) -> Step:
    """A read by id: inside an update or a delete it is the true previous version."""
    session, write = provider_session(call, "vector_store"), WRITE.get()
    if session is None:
        return
    row = yield
    if row is None:
        return
    record = record_of(session.memory, row)
    if write is not None:
        replace(write, record)
    elif session.produces and record.scope:
        session.operation.scope = record.scope  # public delete reads before it deletes


def store_insert(call: Call) -> Step:
    """New records: of the create operation under way, or (2.x) a batch with one create operation each."""
    session, write = provider_session(call, "vector_store"), WRITE.get()
    if session is None:
        return
    arguments = call.arguments()
    ids = [str(id) for id in cast(Sequence[object], arguments.get("ids") or [])]
    payloads = cast(Sequence[Mapping[str, Any]], arguments.get("payloads") or [])
    rows = [
        (id, Record(id, payload.get("data", ""), owner_scope(session.memory, payload)), payload)
        for id, payload in zip(ids, payloads, strict=False)
    ]
    if write is not None:
        owners = [(write.operation, write.sources) for _ in rows]
    else:
        owners = [open_create(call, session, id, payload) for id, _, payload in rows]
    yield
    for (_, record, _), (operation, sources) in zip(rows, owners, strict=True):
        written(call, session, operation, sources, Action.ADD, record)


def store_update(call: Call) -> Step:
    """A record replaced in place. Outside an update operation (1.x refreshing session ids) its text stays as it is."""
    session, write = provider_session(call, "vector_store"), WRITE.get()
    if session is None or write is None:
        return
    payload = cast(Mapping[str, Any], call.arguments().get("payload") or {})
    yield
    record = Record(write.record_id, payload.get("data", ""), owner_scope(session.memory, payload))
    written(call, session, write.operation, write.sources, Action.UPDATE, record)


def store_delete(call: Call) -> Step:
    """A record gone: its tombstone."""
    session, write = provider_session(call, "vector_store"), WRITE.get()
    if session is None or write is None:
        return
    yield
    written(call, session, write.operation, write.sources, Action.DELETE, Record(write.record_id, "", ""))


def embed(call: Call) -> Step:
    """One or several texts embedded; recorded when they are variables of ours (entity names are not)."""
    session = provider_session(call, "embedding_model")
    if session is None:
        return
    arguments = call.arguments()
    given = arguments.get("texts", arguments.get("text"))
    texts = cast(list[object], given) if isinstance(given, list) else [given]
    embedded = [known for text in texts for known in session.knows(text)]
    if not embedded and session.turns and arguments.get("memory_action") == "search":
        embedded = [Known(turn.ref, turn.content, Role.MESSAGE, "") for turn in session.turns]
    if not embedded:
        return
    operation = call.open(None, OpKind.INDEX, scope=session.scope, attributes=model_of(call.instance))
    for known in embedded:
        known.read_by(operation)
    yield


def score_and_rank(call: Call) -> Step:
    """`score_and_rank` (2.x): which scorers took part depends on what is installed and what the store can do."""
    session = SESSION.get()
    if session is None:
        return
    arguments = call.arguments()
    optional = (("bm25", "bm25_scores"), ("entity", "entity_boosts"))
    scorers = ["semantic", *(name for name, argument in optional if arguments.get(argument))]
    session.operation.set(semconv.RETRIEVAL_SCORERS, scorers)
    yield


def rerank(call: Call) -> Step:
    """The hits of a search in a new order: candidates as they came, hits as they are returned."""
    session = provider_session(call, "reranker")
    if session is None:
        return
    arguments = call.arguments()
    operation = call.open(None, OpKind.RERANK, scope=session.scope)
    query = arguments.get("query")
    operation.read(variable_ref(RefKind.QUERY, query), role=Role.QUERY, content=query)
    _read_all(operation, Role.CANDIDATE, _records(session, arguments.get("documents")))
    reordered = yield
    _read_all(operation, Role.HIT, _records(session, reordered))


def add_history(call: Call) -> Step:
    """Rows of the history table: an event on the span of the write they belong to."""
    session = provider_session(call, "db")
    if session is None:
        return
    arguments = call.arguments()
    rows = cast("list[Mapping[str, Any]]", arguments.get("records") or [arguments])
    yield
    attributes = {
        semconv.OUTPUTS: [memory_ref(row.get("memory_id")) for row in rows],
        semconv.OUTPUTS_ACTIONS: [str(row.get("event")) for row in rows],
    }
    trace.get_current_span().add_event(semconv.HISTORY_EVENT, attributes)


def _records(session: Session, found: object) -> list[Record]:
    rows = cast(Sequence[Any], found if isinstance(found, list | tuple) else ())
    return [record_of(session.memory, row) for row in rows]


def _read_all(operation: Operation, role: Role, records: list[Record]) -> None:
    for record in records:
        operation.read(record.ref, role=role, content=record.text, score=record.score, scope=record.scope or None)
