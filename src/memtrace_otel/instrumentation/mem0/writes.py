"""Create, update and delete of stored records: the operation that writes the version, and the sources of the version.

The inner methods of Mem0 name the record and the text to write. A version is recorded after the vector store has taken
the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from memtrace_otel import semconv
from memtrace_otel.capture import Operation
from memtrace_otel.instrumentation.mem0.state import (
    WRITE,
    Call,
    Known,
    KnownRecord,
    Session,
    Write,
    open_session,
    session_of,
)
from memtrace_otel.instrumentation.mem0.values import Record, collection_of, memory_ref, owner_scope, record_of
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.semconv import Action, OpKind, Role


def create_memory(call: Call) -> Step:
    """`_create_memory`: one record from a fact, or from a message that is stored unchanged."""
    arguments = call.arguments()
    text, session = arguments.get("data"), session_of(call.instance)
    if session is not None and session.produces:
        call.carry(WRITE, session.write_of("", text))
        yield
        return
    metadata = cast(Mapping[str, Any], arguments.get("metadata") or {})
    scope = owner_scope(collection_of(call.instance), metadata)
    write = _begin(call, session, semconv.CREATE_MEMORY, OpKind.CREATE, scope, "", text)
    id = yield
    write.operation.set(semconv.GEN_AI_MEMORY_RECORD_ID, str(id))


def update_memory(call: Call) -> Step:
    """`_update_memory`: a new version of a record. The public `update` is its own producer."""
    arguments = call.arguments()
    id, text, session = str(arguments.get("memory_id")), arguments.get("data"), session_of(call.instance)
    if session is not None and session.produces:
        call.carry(WRITE, session.write_of(id, text))
    else:
        _begin(call, session, semconv.UPDATE_MEMORY, OpKind.UPDATE, session.scope if session else "", id, text)
    yield


def delete_memory(call: Call) -> Step:
    """`_delete_memory`: the tombstone of a record. The public `delete` is its own producer."""
    arguments = call.arguments()
    id, existing, session = str(arguments.get("memory_id")), arguments.get("existing_memory"), session_of(call.instance)
    if session is not None and session.produces:
        write = Write(session.operation, id)
        call.carry(WRITE, write)
    else:
        scope = session.scope if session else ""
        write = _begin(call, session, semconv.DELETE_MEMORY, OpKind.DELETE, scope, id, None)
        session = session_of(call.instance)
    if session is not None and existing is not None:
        replace(session, write, record_of(call.instance, existing))
    yield
    if session is not None:
        session.deleted += 1


def _begin(
    call: Call, session: Session | None, name: str, kind: OpKind, scope: str, record_id: str, text: object
) -> Write:
    """Open the operation of a write; its source is the decision that asked for the write, else the text's variable."""
    operation = _open(call, name, kind, scope, record_id, call.instance)
    session = session or open_session(call, operation)
    event = {OpKind.CREATE: Action.ADD, OpKind.UPDATE: Action.UPDATE}.get(kind, Action.DELETE)
    fact = session.fact_behind(event, record_id=record_id, text=text)
    write = Write(operation, record_id, _read(operation, [fact] if fact else session.variable_of(text)))
    call.carry(WRITE, write)
    return write


def replace(session: Session, write: Write, record: Record) -> None:
    """Record the version that a write replaces; the payload also names the owner."""
    if write.replaced or record.id != write.record_id:
        return
    write.replaced = True
    write.operation.scope = record.scope or write.operation.scope
    write.sources.append(session.read(write.operation, record, Role.PREVIOUS))


def record_written(call: Call, session: Session, write: Write, action: str, record: Record) -> None:
    """Record that the store took a version of `record`."""
    operation, is_there = write.operation, action != Action.DELETE
    if record.scope and not operation.scope:
        operation.scope = record.scope
    known = KnownRecord(collection_of(session.memory), operation.scope, record.id)
    (call.patches.records.saw if is_there else call.patches.records.lost)(known)
    session.marks.pop(record.id, None)
    operation.wrote(
        record.ref,
        action=action,
        content=record.text,
        sources=write.sources,
        event_time=session.event_time if is_there else "",
    )


def open_create(call: Call, session: Session, id: str, payload: Mapping[str, Any]) -> Write:
    """Open the create operation of one record of a batch (2.x) beside its siblings."""
    scope = owner_scope(collection_of(session.memory), payload)
    operation = _open(call, semconv.CREATE_MEMORY, OpKind.CREATE, scope, id, session.memory, current=False)
    return Write(operation, id, _read(operation, session.variable_of(payload.get("data"))))


def record_deleted(call: Call, deleted: Iterable[KnownRecord], purpose: str) -> None:
    """Record the tombstones of records that were deleted together, one operation per owner."""
    by_scope: dict[str, list[KnownRecord]] = {}
    for record in deleted:
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


def _open(call: Call, name: str, kind: OpKind, scope: str, id: str, memory: Any, *, current: bool = True) -> Operation:
    attributes = {semconv.GEN_AI_MEMORY_STORE_ID: collection_of(memory)}
    if id:
        attributes[semconv.GEN_AI_MEMORY_RECORD_ID] = id
    return call.open(name, kind, scope=scope, attributes=attributes, current=current)


def _read(operation: Operation, variables: list[Known]) -> list[int]:
    return [known.read_by(operation) for known in variables]
