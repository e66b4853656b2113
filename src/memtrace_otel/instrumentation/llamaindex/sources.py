"""What a stored node was made of: the chunk that a parser cut, the document it names, or the messages it holds."""

from __future__ import annotations

from contextvars import ContextVar

from memtrace_otel.capture import Operation, origins
from memtrace_otel.instrumentation.llamaindex.ingestion import INGESTION
from memtrace_otel.instrumentation.llamaindex.messages import Message
from memtrace_otel.instrumentation.llamaindex.nodes import Piece, document_ref
from memtrace_otel.model import ref_kind
from memtrace_otel.semconv import RefKind, Role

MESSAGES: ContextVar[tuple[Message, ...]] = ContextVar("memtrace_llamaindex_messages", default=())
"""Messages that a memory block is about to store as one node."""


def read_sources(operation: Operation, piece: Piece) -> list[int]:
    """Record what feeds the version of a node or document that `operation` stores; returns the input indices.

    A node that neither a parser of this process made nor names a document, nor holds messages, was made by the
    application: it is its own source, a document of the same id.
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
