"""`memorize`: new messages, the message buffer of a session, and the cut of messages into memcells."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, origins
from memtrace_otel.instrumentation.everos.state import SESSION, Call, Session, ask
from memtrace_otel.instrumentation.everos.values import (
    Cell,
    buffer_ref,
    ids_text,
    message_ref,
    space_of,
    value,
)
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.semconv import Action, OpKind, Role


@dataclass(slots=True)
class Intake:
    """One add or flush: its operations, the merged messages and the messages in the buffer before."""

    session_id: str
    operation: Operation
    boundary: Operation | None = None
    merged: Sequence[Any] = ()
    buffered: Sequence[Any] = ()


_INTAKE: ContextVar[Intake | None] = ContextVar("memtrace_everos_intake", default=None)


def memorize(call: Call) -> Step:
    """`memorize`: one add or flush."""
    arguments = call.arguments()
    payload = arguments.get("payload")
    space, session_id = space_of(payload), str(value(payload, "session_id") or "")
    scope = call.patches.scope_of_session(space, session_id, value(payload, "messages") or ())
    operation = call.open(
        semconv.UPSERT_MEMORY,
        OpKind.INGEST,
        scope=scope,
        purpose="flush" if arguments.get("is_final") else "add",
        attributes={semconv.GEN_AI_MEMORY_STORE_ID: space.store},
    )
    call.carry(SESSION, Session(space, scope))
    call.carry(_INTAKE, Intake(session_id, operation))
    yield


def ingest_process(call: Call) -> Step:
    """`ingest_process`: the raw messages get their ids."""
    intake = _INTAKE.get()
    if intake is None:
        return
    result = yield
    for message in result.messages:
        intake.operation.read(message_ref(message.message_id, message.text), role=Role.MESSAGE, content=message.text)


def prepare_cells(call: Call) -> Step:
    """`prepare_cells`: the model sees the buffered and the new messages and returns the ends of episodes."""
    session, intake = SESSION.get(), _INTAKE.get()
    if session is None or intake is None:
        return
    intake.boundary = call.open(None, OpKind.SEGMENT, scope=session.scope, purpose="evermemos.boundary_detection")
    ask(call, "boundary_detection")
    yield


def merge(call: Call) -> Step:
    """`_merge_dedupe_sort`: the messages of the boundary stage. In a flush only the buffer names the owner."""
    intake, session = _INTAKE.get(), SESSION.get()
    if intake is None or session is None:
        return
    intake.buffered = list(call.arguments().get("buffered") or ())
    merged = yield
    intake.merged = merged
    session.scope = intake.operation.scope = call.patches.scope_of_session(session.space, intake.session_id, merged)
    if intake.boundary is not None:
        intake.boundary.scope = session.scope
        for message in merged:
            ref = message_ref(message.message_id, message.text)
            intake.boundary.read(ref, role=Role.HISTORY, content=message.text)


def insert_memcells(call: Call) -> Step:
    """`insert_many` of the memcell ledger: the sources of a cell are its messages."""
    intake, session = _INTAKE.get(), SESSION.get()
    if intake is None or session is None:
        return
    operation = call.open(None, OpKind.CREATE, scope=session.scope, purpose="memory_system.finalize_memory_unit")
    texts = {message.message_id: message.text for message in intake.merged}
    made: list[tuple[Cell, str, list[int]]] = []
    for row in call.arguments().get("rows") or ():
        ids = cast(list[str], json.loads(row.message_ids_json))
        cell = Cell(str(row.memcell_id), session.scope, tuple(ids))
        call.patches.learn_cell(row.payload_json, cell)
        read = [
            operation.read(message_ref(id, texts.get(id)), role=Role.MESSAGE, content=texts.get(id, "")) for id in ids
        ]
        made.append((cell, row.timestamp.isoformat(), read))
    yield
    for cell, time, read in made:
        operation.wrote(cell.ref, action=Action.ADD, content=ids_text(cell.message_ids), sources=read, event_time=time)


def find_memcells(call: Call) -> Step:
    """`find_by_ids` of the memcell ledger: a strategy passes the found contents on without their ids."""
    rows = yield
    for row in rows:
        scope = call.patches.scope_of_session(space_of(row), str(row.session_id), _turns(row.payload_json))
        ids = cast(list[str], json.loads(row.message_ids_json))
        call.patches.learn_cell(row.payload_json, Cell(str(row.memcell_id), scope, tuple(ids)))


def replace_buffer(call: Call) -> Step:
    """`_replace_buffer`: the messages that wait for the next call; the state holds their ids."""
    session, intake = SESSION.get(), _INTAKE.get()
    if session is None or intake is None:
        return
    arguments = call.arguments()
    session_id, rows = str(arguments.get("session_id")), list(cast(Sequence[Any], arguments.get("rows") or ()))
    ref = buffer_ref(session_id)
    before = [message.message_id for message in intake.buffered]
    if not rows and not before and not origins().find(session.scope, ref):
        return  # an empty buffer stays empty
    operation = call.open(None, OpKind.UPDATE, scope=session.scope, purpose="memory_system.message_buffer_update")
    if before or origins().find(session.scope, ref):
        operation.read(ref, role=Role.PREVIOUS, content=ids_text(before))
    for message in rows:
        if message.message_id not in before:
            operation.read(message_ref(message.message_id, message.text), role=Role.MESSAGE, content=message.text)
    yield
    ids = [message.message_id for message in rows]
    operation.wrote(ref, action=Action.UPDATE if before else Action.ADD, content=ids_text(ids))


def quarantine(call: Call) -> Step:
    """`quarantine`: a buffer that the model could not cut is removed from the session."""
    session = SESSION.get()
    if session is None:
        return
    ref = buffer_ref(call.arguments().get("session_id"))
    operation = call.open(None, OpKind.UPDATE, scope=session.scope, purpose="quarantine")
    if origins().find(session.scope, ref):
        operation.read(ref, role=Role.PREVIOUS)
    moved = yield
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, int(moved))
    operation.wrote(ref, action=Action.UPDATE, content=ids_text(()))


def _turns(payload: str) -> Iterator[Any]:
    """The items of a stored memcell, parsed on demand."""
    yield from json.loads(payload).get("items") or ()
