"""Vector stores as memories: every chunk added, replaced or deleted is a version of a stored record.

The methods of a store call each other, and a coroutine may run the plain method in a worker thread. The outermost call
is the operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

from opentelemetry.util.types import AttributeValue

from memtrace_otel import semconv
from memtrace_otel.capture import Operation
from memtrace_otel.instrumentation.langchain.documents import (
    Known,
    Text,
    chunk_of_store,
    owner_of,
    read_all,
    store_name,
    texts_of,
)
from memtrace_otel.instrumentation.langchain.state import Call, purpose
from memtrace_otel.instrumentation.steps import RECORDED, Step
from memtrace_otel.semconv import Incomplete, OpKind


@dataclass(slots=True)
class Write:
    """A running change of a store. `store` is None while `from_documents` makes the store; `done`: a nested `add` has
    recorded the change."""

    store: Any
    done: bool = False


WRITE: ContextVar[Write | None] = ContextVar("memtrace_langchain_write", default=None)


def add(call: Call) -> Step:
    """`add_documents`, `add_texts`: documents or chunks in, one stored version per text out."""
    if _inside(call):
        return
    around, arguments = WRITE.get(), call.arguments()
    if around is not None and around.store is None:
        around.done = True
    texts = texts_of(arguments)
    given = _ids(arguments.get("ids"), texts)
    call.carry(WRITE, Write(call.instance))
    operation = _open_add(call, call.instance, given)
    returned = yield
    _stored(call, operation, texts, _ids(returned, None) or given)


def make(call: Call) -> Step:
    """`from_documents`, `from_texts`: recorded by the nested `add`; here for stores that call no `add`."""
    if WRITE.get() is not None or RECORDED.get():
        return
    write = Write(None)
    call.carry(WRITE, write)
    arguments = call.arguments()
    texts = texts_of(arguments)
    store = yield
    if not write.done and texts and store is not None:
        ids = _ids(arguments.get("ids"), texts)
        _stored(call, _open_add(call, store, ids), texts, ids)


def update(call: Call) -> Step:
    """`update_document(s)`: new versions of records, named by their ids."""
    if _inside(call):
        return
    arguments = call.arguments()
    ids = _ids(arguments.get("ids") or [arguments.get("document_id")], None)
    one = arguments.get("document")
    texts = texts_of({"documents": [one]} if one is not None else arguments)
    call.carry(WRITE, Write(call.instance))
    operation = call.open(
        semconv.UPDATE_MEMORY,
        OpKind.UPDATE,
        scope=call.patches.scope_of(call.instance),
        purpose=purpose(call),
        attributes=named(call),
    )
    yield
    _stored(call, operation, texts, ids, replaces=True)


def delete(call: Call) -> Step:
    """`delete`: the last version of each record in, its tombstone out."""
    if _inside(call):
        return
    call.carry(WRITE, Write(call.instance))
    scope = call.patches.scope_of(call.instance)
    operation = call.open(
        semconv.DELETE_MEMORY, OpKind.DELETE, scope=scope, purpose=purpose(call), attributes=named(call)
    )
    ids = _ids(call.arguments().get("ids"), None)
    yield
    if not ids:  # a deletion by filter names no records
        operation.mark(Incomplete.UNKNOWN_RECORD)
    for id in dict.fromkeys(ids):
        call.patches.records.delete(operation, chunk_of_store(id))
    _count(operation, ids)


def delete_store(call: Call) -> Step:
    """`delete_collection`, `reset_collection`: tombstones for all known records of the store."""
    if _inside(call):
        return
    scope = call.patches.scope_of(call.instance)
    call.carry(WRITE, Write(call.instance))
    operation = call.open(
        semconv.DELETE_MEMORY_STORE, OpKind.DELETE, scope=scope, purpose=purpose(call), attributes=named(call)
    )
    yield
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, call.patches.records.delete_all(operation))


def named(call: Call, store: Any = None) -> dict[str, AttributeValue]:
    """`gen_ai.memory.store.id` of a store."""
    return {semconv.GEN_AI_MEMORY_STORE_ID: store_name(call.instance if store is None else store)}


def _inside(call: Call) -> bool:
    """Whether a recorded write is around this call."""
    around = WRITE.get()
    return RECORDED.get() or (around is not None and around.store is call.instance)


def _open_add(call: Call, store: Any, ids: Sequence[str]) -> Operation:
    scope = call.patches.scope_of(store)
    known = [call.patches.records.holds(scope, chunk_of_store(id)) for id in ids]
    name, kind = (semconv.UPSERT_MEMORY if any(known) else semconv.CREATE_MEMORY), OpKind.CREATE
    if known and all(known):
        kind = OpKind.UPDATE
    return call.open(name, kind, scope=scope, purpose=purpose(call), attributes=named(call, store))


def _stored(
    call: Call, operation: Operation, texts: list[Text] | None, ids: Sequence[str], *, replaces: bool = False
) -> None:
    """Record the stored versions, one per text; two texts under one id count once."""
    if texts is None or (ids and len(ids) != len(texts)):
        operation.mark(Incomplete.UNSERIALISABLE)  # an iterator, which only the store has read
        texts = [Text("") for _ in ids]
    if owner := owner_of(texts):
        operation.set(semconv.RECORD_OWNER, owner)
    documents, pieces = call.patches.documents, call.patches.pieces
    sources = read_all(operation, texts, (pieces, documents), documents)
    refs = [chunk_of_store(id) for id in ids] or [text.chunk for text in texts]
    rows = {ref: (text, source) for ref, text, source in zip(refs, texts, sources, strict=True)}
    for ref, (text, source) in rows.items():
        call.patches.records.write(operation, ref, text.content, [source], replaces=replaces)
        stored = Known(ref, operation.origin, operation.scope)
        call.patches.stored.learn(operation, text, stored, as_object=False)
    _count(operation, list(rows))


def _ids(given: object, texts: Sequence[Text] | None) -> list[str]:
    """Ids given to a call, else those of its documents; [] if some ids are missing."""
    if isinstance(given, str):
        return [given]
    if isinstance(given, list | tuple) and given:
        items = cast(Sequence[object], given)
        return [str(id) for id in items] if all(isinstance(id, str | int) for id in items) else []
    ids = [text.id for text in texts or ()]
    return ids if all(ids) else []


def _count(operation: Operation, ids: Sequence[str]) -> None:
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(ids))
    if len(ids) == 1:
        operation.set(semconv.GEN_AI_MEMORY_RECORD_ID, ids[0].removeprefix("chunk:"))
