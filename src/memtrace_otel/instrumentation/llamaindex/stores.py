"""Writes of vector stores and document stores: every stored and deleted chunk or document.

Equal content under the same id in a second store (LlamaIndex keeps nodes in a document store beside the vector store)
is a copy, not a new version.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from opentelemetry.util.types import AttributeValue

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, origins
from memtrace_otel.instrumentation.llamaindex.ingestion import INGESTION, read_sources
from memtrace_otel.instrumentation.llamaindex.nodes import Piece, chunk_ref, document_ref, pieces
from memtrace_otel.instrumentation.llamaindex.state import BATCH, Call, Ledger, Stored, batches, purpose, store_name
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.model import ref_kind
from memtrace_otel.semconv import Action, Incomplete, OpKind, RefKind, Role


def add(call: Call) -> Step:
    """`add`, `async_add` of a vector store: one record per node."""
    if not call.enter("store"):
        return
    yield from _store_pieces(call, list(pieces(call.arguments().get("nodes"), fingerprints=True)))


def add_documents(call: Call) -> Step:
    """`add_documents`, `async_add_documents` of a document store: nodes that no other store holds.

    Whole documents that a pipeline stores to recognise them later are recorded by the pipeline.
    """
    if not call.enter("store"):
        return
    ingestion = INGESTION.get()
    given = [
        piece
        for piece in pieces(call.arguments().get("docs"), fingerprints=True)
        if not call.patches.ledger.holds(piece) and (ingestion is None or ingestion.document(piece.id) is None)
    ]
    if given:
        yield from _store_pieces(call, given)


def delete(call: Call) -> Step:
    """`delete`, `adelete` of a vector store, `delete_ref_doc` of a document store: all chunks of a document."""
    if not call.enter("store"):
        return
    document = str(call.arguments().get("ref_doc_id"))
    scope = call.patches.scope_of(call.instance)
    deleted = call.patches.ledger.chunks_of(scope, document)
    is_chunk = origins().find(scope, chunk_ref(document))  # early releases call this with the id of a node
    if not deleted and (is_chunk or not hasattr(call.instance, "stores_text")):
        return  # a document store holds copies
    operation = _open_delete(call, scope)
    yield
    _record_deleted(call, operation, deleted)
    ingestion = INGESTION.get()
    if ingestion is None or ingestion.document(document) is None:  # else a new version of the document follows
        ref = document_ref(document)
        operation.wrote(ref, action=Action.DELETE, sources=_read_previous(operation, scope, ref))


def delete_nodes(call: Call) -> Step:
    """`delete_nodes`, `adelete_nodes` of a vector store: records by id or by a filter."""
    if not call.enter("store"):
        return
    arguments = call.arguments()
    ids = cast("list[object] | None", arguments.get("node_ids"))
    yield from _delete_by_filter(call) if ids is None or arguments.get("filters") else _delete_by_id(call, ids)


def clear(call: Call) -> Step:
    """`clear`, `aclear` of a vector store."""
    if not call.enter("store"):
        return
    scope = call.patches.scope_of(call.instance)
    operation = call.open(
        semconv.DELETE_MEMORY_STORE, OpKind.DELETE, scope=scope, purpose=purpose(call), attributes=_store(call)
    )
    yield
    _record_deleted(call, operation, call.patches.ledger.all_of(scope))


def _store_pieces(call: Call, given: list[Piece]) -> Step:
    ingestion = INGESTION.get()
    if ingestion is not None:
        ingestion.name_store(call.instance)
    writes = [Write(call, batch, current=len(given) <= BATCH) for batch in batches(given)]
    yield
    for write in writes:
        write.finish()


class Write:
    """One write of nodes to a store: sources are recorded before the call, versions after the call."""

    def __init__(self, call: Call, given: Sequence[Piece], *, current: bool) -> None:
        self._ledger, self._scope = call.patches.ledger, call.patches.scope_of(call.instance)
        self._known = {piece.ref: stored for piece in given if (stored := self._ledger.find(self._scope, piece.ref))}
        name, kind = (semconv.UPSERT_MEMORY, OpKind.UPDATE) if self._known else (semconv.CREATE_MEMORY, OpKind.CREATE)
        attributes = _store(call, [piece.id for piece in given])
        self._operation = call.open(
            name, kind, scope=self._scope, purpose=purpose(call), attributes=attributes, current=current
        )
        self._pieces = [(piece, self._sources(piece)) for piece in given]

    def finish(self) -> None:
        """Record the stored versions."""
        for piece, sources in self._pieces:
            stored = self._known.get(piece.ref)
            same = stored is not None and stored.fingerprint == piece.fingerprint
            action = Action.NONE if same else Action.UPDATE if stored else Action.ADD
            self._operation.wrote(piece.ref, action=action, content=piece.text, sources=sources)
            self._ledger.put(self._scope, piece)

    def _sources(self, piece: Piece) -> list[int]:
        sources = read_sources(self._operation, piece)
        if piece.ref in self._known:
            sources += _read_previous(self._operation, self._scope, piece.ref)
        return sources


def _delete_by_id(call: Call, ids: Iterable[object]) -> Step:
    """Tombstones for records that this process has stored. A store with a name may hold records of another process, so
    each id gets a tombstone."""
    scope, ledger = call.patches.scope_of(call.instance), call.patches.ledger
    refs = [_ref_of(ledger, scope, id) for id in map(str, ids)]
    has_name = store_name(call.instance) != type(call.instance).__name__
    known = {ref: ledger.find(scope, ref) for ref in refs}
    deleted = [stored or Stored(ref, "", "") for ref, stored in known.items() if stored or has_name]
    operation = _open_delete(call, scope)
    yield
    if len(deleted) < len(refs):
        operation.mark(Incomplete.UNKNOWN_RECORD)
    _record_deleted(call, operation, deleted)


def _delete_by_filter(call: Call) -> Step:
    """A store does not return the ids that a filter deleted, so the next write of any id is a new version."""
    scope = call.patches.scope_of(call.instance)
    _open_delete(call, scope).mark(Incomplete.UNKNOWN_RECORD)
    call.patches.ledger.forget_contents(scope)  # also when the call fails: the store may have deleted records
    yield


def _ref_of(ledger: Ledger, scope: str, id: str) -> str:
    return document_ref(id) if ledger.find(scope, document_ref(id)) else chunk_ref(id)


def _open_delete(call: Call, scope: str) -> Operation:
    return call.open(semconv.DELETE_MEMORY, OpKind.DELETE, scope=scope, purpose=purpose(call), attributes=_store(call))


def _record_deleted(call: Call, operation: Operation, deleted: list[Stored]) -> None:
    """Record the tombstones."""
    scope = operation.scope
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(deleted))
    for number, batch in enumerate(batches(deleted)):
        if number:
            operation = call.open(None, OpKind.DELETE, scope=scope, purpose=purpose(call), current=False)
        for stored in batch:
            sources = _read_previous(operation, scope, stored.ref)
            operation.wrote(stored.ref, action=Action.DELETE, sources=sources)
            call.patches.ledger.remove(scope, stored.ref)


def _read_previous(operation: Operation, scope: str, ref: str) -> list[int]:
    origin = origins().find(scope, ref)
    if not origin and ref_kind(ref) == RefKind.DOCUMENT:
        return []
    return [operation.read(ref, role=Role.PREVIOUS, origin=origin or None)]


def _store(call: Call, ids: list[str] | None = None) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {semconv.GEN_AI_MEMORY_STORE_ID: store_name(call.instance)}
    if ids is not None:
        attributes[semconv.GEN_AI_MEMORY_RECORD_COUNT] = len(ids)
        if len(ids) == 1:
            attributes[semconv.GEN_AI_MEMORY_RECORD_ID] = ids[0]
    return attributes
