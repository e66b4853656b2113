"""Ingestion of documents: the documents given to a pipeline or an index, and the chunks that parsers cut.

The first use of a document in an ingestion makes a new version. A document that the pipeline skips is unchanged (action
NONE), because the document store has the document.
"""

from __future__ import annotations

import secrets
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, cast

from opentelemetry import trace
from opentelemetry.util.types import AttributeValue

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, origins
from memtrace_otel.instrumentation.llamaindex.messages import Message
from memtrace_otel.instrumentation.llamaindex.nodes import Piece, document_ref, pieces
from memtrace_otel.instrumentation.llamaindex.state import (
    BATCH,
    Call,
    batches,
    purpose,
    store_behind,
    store_name,
    store_of_new,
)
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.model import ref_kind
from memtrace_otel.semconv import Action, OpKind, RefKind, Role


@dataclass(slots=True)
class Ingestion:
    """One run of a pipeline or one insert into an index, with the given documents by id.

    `awaited`: class and name of the store that a new index will create.
    """

    call: Call
    operation: Operation
    documents: dict[str, Piece]
    awaited: tuple[str, str] | None = None
    used: set[str] = field(default_factory=set[str])
    _written: int = 0

    def document(self, id: str) -> Piece | None:
        """The given document with this id, None for another id."""
        return self.documents.get(id)

    def use(self, id: str) -> str | None:
        """Origin of the version of a given document that this run stores; None for another document."""
        document = self.documents.get(id)
        if document is None:
            return None
        scope, ledger = self.operation.scope, self.call.patches.ledger
        if id not in self.used:
            self.used.add(id)
            stored = ledger.find(scope, document.ref)
            if stored is not None and stored.fingerprint == document.fingerprint:
                self._record_unchanged(document)
            else:
                self._write(document, origins().find(scope, document.ref))
                ledger.put(scope, document)
        return origins().find(scope, document.ref)

    def name_store(self, store: Any) -> None:
        """Give the store that the new index has created the scope of the documents."""
        if self.awaited is not None and self.awaited[0] == type(store).__name__:
            self.call.patches.scope_of(store, self.awaited[1])
            self.awaited = None

    def finish(self) -> None:
        """Record the given documents that were not used."""
        for id, document in self.documents.items():
            if id not in self.used:
                self._record_unchanged(document)

    def _record_unchanged(self, document: Piece) -> None:
        self._writer().wrote(document.ref, action=Action.NONE, content=document.text)

    def _write(self, document: Piece, previous: str) -> None:
        operation = self._writer()
        sources = [operation.read(document.ref, role=Role.PREVIOUS, origin=previous)] if previous else []
        action = Action.UPDATE if previous else Action.ADD
        operation.wrote(document.ref, action=action, content=document.text, sources=sources)

    def _writer(self) -> Operation:
        """The operation of the next document: after every `BATCH` documents another operation below the first."""
        first = self.call.operations[0]
        if self._written and self._written % BATCH == 0:
            self.operation = self.call.open(
                None,
                OpKind.INGEST,
                scope=first.scope,
                purpose=purpose(self.call),
                parent=trace.set_span_in_context(first.span),
                current=False,
            )
        self._written += 1
        return self.operation


INGESTION: ContextVar[Ingestion | None] = ContextVar("memtrace_llamaindex_ingestion", default=None)


def run(call: Call) -> Step:
    """`IngestionPipeline.run`, `arun`: the documents of the call and of the pipeline itself."""
    arguments = call.arguments()
    given = [*_list(arguments.get("documents")), *_list(arguments.get("nodes")), *_list(call.instance.documents)]
    yield from _ingest(call, store_behind(call.instance), given)


def from_documents(call: Call) -> Step:
    """`BaseIndex.from_documents`: a new index."""
    arguments = call.arguments()
    context = arguments.get("storage_context")
    yield from _ingest(call, store_of_new(call.instance, context), _list(arguments.get("documents")))


def insert(call: Call) -> Step:
    """`insert`, `update_ref_doc` of an index and their async twins: one document."""
    yield from _ingest(call, store_behind(call.instance), [call.arguments().get("document")])


def refresh(call: Call) -> Step:
    """`refresh_ref_docs`, `arefresh_ref_docs`: the changed documents."""
    yield from _ingest(call, store_behind(call.instance), _list(call.arguments().get("documents")))


def _ingest(call: Call, store: Any, given: list[Any]) -> Step:
    if INGESTION.get() is not None:  # `refresh` calls `insert`: the outermost call is recorded
        return
    documents = {
        piece.id: piece for piece in pieces(given, fingerprints=True) if ref_kind(piece.ref) == RefKind.DOCUMENT
    }
    attributes: dict[str, AttributeValue] = {semconv.GEN_AI_MEMORY_RECORD_COUNT: len(given)}
    awaited = (store, secrets.token_hex(8)) if isinstance(store, str) else None
    scope = call.patches.scope_of_nameless(*awaited) if awaited else call.patches.scope_of(store)
    if scope:
        attributes[semconv.GEN_AI_MEMORY_STORE_ID] = awaited[0] if awaited else store_name(store)
    operation = call.open(
        semconv.UPSERT_MEMORY, OpKind.INGEST, scope=scope, purpose=purpose(call), attributes=attributes
    )
    ingestion = Ingestion(call, operation, documents, awaited)
    call.carry(INGESTION, ingestion)
    yield
    ingestion.finish()


def segment(call: Call) -> Step:
    """`get_nodes_from_documents` of a node parser: each chunk comes from one document or one larger chunk."""
    if not call.enter("parser"):
        return
    given = {piece.id: piece for piece in pieces(call.arguments().get("documents"))}
    cut = Segmentation(call, given, current=True)
    for id in list(given)[:BATCH]:
        cut.read(id)
    nodes = yield
    made = [(node, piece) for node, piece in zip(nodes, pieces(nodes), strict=True) if piece.id not in given]
    for number, batch in enumerate(batches(made)):
        cut = Segmentation(call, given, current=False) if number else cut
        for node, piece in batch:
            cut.write(node, piece)


class Segmentation:
    """An operation that cuts documents, or larger chunks, into chunks."""

    def __init__(self, call: Call, given: dict[str, Piece], *, current: bool) -> None:
        self._given, self._places = given, dict[str, int]()
        self._operation = call.open(None, OpKind.SEGMENT, scope="", purpose=purpose(call), current=current)

    def read(self, id: str) -> int:
        """Input index of a given document."""
        if id not in self._places:
            piece, ingestion = self._given[id], INGESTION.get()
            origin = ingestion.use(id) if ingestion else None
            if origin is None:
                origin = "" if ref_kind(piece.ref) == RefKind.DOCUMENT else origins().find("", piece.ref)
            self._places[id] = self._operation.read(piece.ref, origin=origin, content=piece.text)
        return self._places[id]

    def write(self, node: Any, piece: Piece) -> None:
        """Record a chunk. The source is its parent chunk or document, else every given document."""
        above = next((id for id in _above(node, piece) if id in self._given), None)
        sources = [self.read(id) for id in ([above] if above is not None else self._given)]
        self._operation.wrote(piece.ref, content=piece.text, sources=sources)


def _above(node: Any, piece: Piece) -> list[str]:
    """Ids of the parent chunk and of the document of a node."""
    parent = getattr(node, "parent_node", None)
    return [*([parent.node_id] if parent is not None else []), piece.document]


def _list(values: Any) -> list[Any]:
    return list(cast(list[Any], values)) if isinstance(values, list | tuple) else []


MESSAGES: ContextVar[tuple[Message, ...]] = ContextVar("memtrace_llamaindex_messages", default=())
"""The messages that a memory block stores as one node."""


def read_sources(operation: Operation, piece: Piece) -> list[int]:
    """Record the sources of a node or document that `operation` stores; returns the input indices.

    The source is the chunk that a parser cut, else the named document, else the messages that the node holds. A node
    without any of them was made by the application: its source is a document of the same id.
    """
    cut = origins().find("", piece.ref)
    if cut:
        return [operation.read(piece.ref, origin=cut, content=piece.text)]
    if piece.document:
        ingestion = INGESTION.get()
        origin = ingestion.use(piece.document) if ingestion else None
        if origin is None:
            origin = origins().find(operation.scope, document_ref(piece.document))
        return [operation.read(document_ref(piece.document), origin=origin)]
    if ref_kind(piece.ref) == RefKind.DOCUMENT:
        return []
    if messages := MESSAGES.get():
        return [operation.read(one.ref, role=Role.MESSAGE, content=one.text) for one in messages]
    return [operation.read(document_ref(piece.id), origin="", content=piece.text)]
