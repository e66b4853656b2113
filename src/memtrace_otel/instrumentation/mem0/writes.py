"""Every create, update and delete of a stored record: which operation owns the new version, and what fed it.

The inner methods say what is about to be written and the vector store says that it was: a version is claimed only when
the store has taken it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from memtrace_otel import semconv
from memtrace_otel.capture import Operation
from memtrace_otel.instrumentation.mem0.calls import Call
from memtrace_otel.instrumentation.mem0.known_records import KnownRecord
from memtrace_otel.instrumentation.mem0.session import WRITE, Known, Session, Write, open_session, session_of
from memtrace_otel.instrumentation.mem0.variables import (
    Record,
    collection_of,
    memory_ref,
    owner_scope,
    place_of,
    record_of,
)
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.semconv import Action, OpKind, Role


def create_memory(call: Call) -> Step:
    """`_create_memory`: one record from a fact or, stored as it is, from a message."""
    arguments = call.arguments()
    text = arguments.get("data")
    session = session_of(call.instance)
    if session is not None and session.produces:
        call.carry(WRITE, session.writes("", text))
        yield
        return
    metadata = cast(Mapping[str, Any], arguments.get("metadata") or {})
    operation = _open(call, semconv.CREATE_MEMORY, OpKind.CREATE, owner_scope(call.instance, metadata), "")
    session = session or open_session(call, operation)
    fact = session.decided(Action.ADD, text=text)
    call.carry(WRITE, Write(operation, "", _read(operation, [fact] if fact else session.knows(text))))
    id = yield
    operation.set(semconv.GEN_AI_MEMORY_RECORD_ID, str(id))


def update_memory(call: Call) -> Step:
    """`_update_memory`: a new version of a record. The public `update` is its own producer."""
    arguments = call.arguments()
    id, text = str(arguments.get("memory_id")), arguments.get("data")
    session = session_of(call.instance)
    if session is not None and session.produces:
        call.carry(WRITE, session.writes(id, text))
        yield
        return
    operation = _open(call, semconv.UPDATE_MEMORY, OpKind.UPDATE, session.scope if session else "", id)
    session = session or open_session(call, operation)
    fact = session.decided(Action.UPDATE, record_id=id, text=text)
    call.carry(WRITE, Write(operation, id, _read(operation, [fact] if fact else session.knows(text))))
    yield


def delete_memory(call: Call) -> Step:
    """`_delete_memory`: the tombstone of a record. The public `delete` is its own producer."""
    arguments = call.arguments()
    id, existing = str(arguments.get("memory_id")), arguments.get("existing_memory")
    session = session_of(call.instance)
    if session is not None and session.produces:
        write = Write(session.operation, id)
    else:
        operation = _open(call, semconv.DELETE_MEMORY, OpKind.DELETE, session.scope if session else "", id)
        session = session or open_session(call, operation)
        fact = session.decided(Action.DELETE, record_id=id)
        write = Write(operation, id, _read(operation, [fact] if fact else []))
    call.carry(WRITE, write)
    if existing is not None:
        replace(session, write, record_of(call.instance, existing))
    yield
    session.deleted += 1


def replace(session: Session, write: Write, record: Record) -> None:
    """Record the version that a write replaces; its payload also tells whose memory it is."""
    if write.replaced or record.id != write.record_id:
        return
    write.replaced = True
    write.operation.scope = record.scope or write.operation.scope
    write.sources.append(session.read(write.operation, record, Role.PREVIOUS))


def written(
    call: Call, session: Session, operation: Operation, sources: list[int], action: str, record: Record
) -> None:
    """Record that the store took a version of `record`."""
    if record.scope and not operation.scope:
        operation.scope = record.scope
    known = KnownRecord(collection_of(session.memory), operation.scope, record.id, place_of(session.memory))
    call.patches.records.lost(known) if action == Action.DELETE else call.patches.records.saw(known)
    session.marks.pop(record.id, None)
    operation.wrote(
        memory_ref(record.id),
        action=action,
        content=record.text,
        sources=sources,
        event_time="" if action == Action.DELETE else session.event_time,
    )


def open_create(call: Call, session: Session, id: str, payload: Mapping[str, Any]) -> tuple[Operation, list[int]]:
    """Open the create operation of one record of a batch (2.x) beside its siblings; returns it and its sources."""
    operation = _open(
        call,
        semconv.CREATE_MEMORY,
        OpKind.CREATE,
        owner_scope(session.memory, payload),
        id,
        memory=session.memory,
        current=False,
    )
    return operation, _read(operation, session.knows(payload.get("data")))


def gone(call: Call, known: Iterable[KnownRecord], purpose: str) -> None:
    """Record the tombstones of records that went all at once, one operation per owner."""
    by_scope: dict[str, list[KnownRecord]] = {}
    for record in known:
        by_scope.setdefault(record.scope, []).append(record)
    for scope, records in by_scope.items():
        operation = call.open(
            semconv.DELETE_MEMORY,
            OpKind.DELETE,
            scope=scope,
            purpose=purpose,
            attributes={
                semconv.GEN_AI_MEMORY_STORE_ID: records[0].store,
                semconv.GEN_AI_MEMORY_RECORD_COUNT: len(records),
            },
            current=False,
        )
        for record in records:
            previous = operation.read(memory_ref(record.id), role=Role.PREVIOUS)
            operation.wrote(memory_ref(record.id), action=Action.DELETE, sources=[previous])


def _open(
    call: Call, name: str, kind: OpKind, scope: str, id: str, *, memory: Any = None, current: bool = True
) -> Operation:
    attributes = {semconv.GEN_AI_MEMORY_STORE_ID: collection_of(call.instance if memory is None else memory)}
    if id:
        attributes[semconv.GEN_AI_MEMORY_RECORD_ID] = id
    return call.open(name, kind, scope=scope, attributes=attributes, current=current)


def _read(operation: Operation, variables: list[Known]) -> list[int]:
    return [known.read_by(operation) for known in variables]
