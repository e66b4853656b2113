"""The vector store behind a Memory: what Mem0 reads from it and writes to it.

Only calls on the stores of the Memory under way count, that of its records and that of its entities: Mem0's telemetry
store is another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from memtrace_otel.capture import config
from memtrace_otel.instrumentation.mem0 import entities, record_origins
from memtrace_otel.instrumentation.mem0.calls import Call
from memtrace_otel.instrumentation.mem0.session import WRITE, Known, Session, provider_session
from memtrace_otel.instrumentation.mem0.variables import Record, owner_scope, record_of
from memtrace_otel.instrumentation.mem0.writes import open_create, replace, written
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.semconv import Action, OpKind, Role


def search(call: Call) -> Step:
    """A similarity search: the candidates of a public search, or the neighbours that an `add` looks up.

    Neighbours are asked for by messages or facts, not by a question, so no memory ever descends from a query.
    """
    session = provider_session(call, "vector_store")
    if session is None:
        return
    query = call.arguments().get("query")
    if session.neighbours is None:
        found = session.unmark(call, (yield))
        session.candidates += records(session, found)
        return
    operation = call.open(None, OpKind.RETRIEVE, scope=session.scope, purpose="existing_memories")
    for known in session.knows(query) or [Known(turn.ref, turn.content, origin="") for turn in session.turns]:
        known.read_by(operation, Role.QUERY)
    found = session.unmark(call, (yield))
    session.neighbours[str(query)] = records(session, found)
    session.read_all(operation, session.neighbours[str(query)], Role.HIT)


def get(call: Call) -> Step:
    """A read by id: inside an update or a delete it is the true previous version."""
    session, write = provider_session(call, "vector_store"), WRITE.get()
    if session is None:
        return
    row = session.unmark(call, (yield))
    if row is None:
        return
    record = record_of(session.memory, row)
    if write is not None:
        replace(session, write, record)
    elif session.produces:  # public delete reads before it deletes
        session.operation.scope = record.scope or session.operation.scope
        session.learn(record.text, Known(record.ref, record.text, Role.PREVIOUS))


def listing(call: Call) -> Step:
    """`list`: the rows of `get_all` and `delete_all`, which the steps of those record."""
    session = provider_session(call, "vector_store")
    if session is None:
        return
    session.unmark(call, (yield))


def insert(call: Call) -> Step:
    """New records: of the create operation under way, or (2.x) a batch with one create operation each."""
    session, write = provider_session(call, "vector_store"), WRITE.get()
    if session is None:
        yield from _of_entities(call, entities.insert)
        return
    arguments = call.arguments()
    ids = [str(id) for id in cast(Sequence[object], arguments.get("ids") or [])]
    payloads = cast(Sequence[Mapping[str, Any]], arguments.get("payloads") or [])
    rows = [
        (Record(id, payload.get("data", ""), owner_scope(session.memory, payload)), payload)
        for id, payload in zip(ids, payloads, strict=False)
    ]
    if write is not None:
        owners = [(write.operation, write.sources) for _ in rows]
    else:
        owners = [open_create(call, session, record.id, payload) for record, payload in rows]
    if config().record_origin and len(rows) == len(payloads):
        marked = [
            record_origins.marked(payload, operation.origin) if operation.origin else payload
            for payload, (operation, _) in zip(payloads, owners, strict=True)
        ]
        record_origins.replace_argument(call, "payloads", marked)
    yield
    for (record, _), (operation, sources) in zip(rows, owners, strict=True):
        written(call, session, operation, sources, Action.ADD, record)


def update(call: Call) -> Step:
    """A record replaced in place. Outside an update operation (1.x refreshing session ids) its text stays as it is."""
    session, write = provider_session(call, "vector_store"), WRITE.get()
    if session is None:
        yield from _of_entities(call, entities.update)
        return
    arguments = call.arguments()
    payload = cast("Mapping[str, Any] | None", arguments.get("payload"))
    if write is None:
        _keep_mark(call, session, str(arguments.get("vector_id")), payload)
        return
    if payload is not None and config().record_origin and write.operation.origin:
        record_origins.replace_argument(call, "payload", record_origins.marked(payload, write.operation.origin))
    yield
    payload = payload or {}
    record = Record(write.record_id, payload.get("data", ""), owner_scope(session.memory, payload))
    written(call, session, write.operation, write.sources, Action.UPDATE, record)


def delete(call: Call) -> Step:
    """A record gone: its tombstone."""
    session, write = provider_session(call, "vector_store"), WRITE.get()
    if session is None:
        yield from _of_entities(call, entities.delete)
    if session is None or write is None:
        return
    yield
    written(call, session, write.operation, write.sources, Action.DELETE, Record(write.record_id, "", ""))


def keyword_search(call: Call) -> Step:
    """`keyword_search` (2.x): what the words of a query find; a store that cannot search words returns None."""
    session = provider_session(call, "vector_store")
    if session is None:
        return
    found = session.unmark(call, (yield))
    if found is None:
        return
    operation = call.open(None, OpKind.RERANK, scope=session.scope, purpose="keyword_search")
    if session.query is not None:
        session.query.read_by(operation)
    session.read_all(operation, records(session, found), Role.CANDIDATE)


def records(session: Session, found: object) -> list[Record]:
    """The rows that a search of the store returned."""
    rows = cast(Sequence[Any], found if isinstance(found, list | tuple) else ())
    return [record_of(session.memory, row) for row in rows]


def _of_entities(call: Call, step: Callable[[Call, Session], Step]) -> Step:
    session = entities.entity_session(call)
    if session is not None:
        yield from step(call, session)


def _keep_mark(call: Call, session: Session, id: str, payload: Mapping[str, Any] | None) -> None:
    """The payload was read without its mark; the version it belongs to stays, so the mark goes back."""
    if payload is not None and id in session.marks:
        record_origins.replace_argument(call, "payload", record_origins.remarked(payload, session.marks[id][1]))
