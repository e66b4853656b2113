"""Nodes, documents and messages of LlamaIndex as variables of the wire contract."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from memtrace_otel.capture import variable_ref
from memtrace_otel.capture.layout import number
from memtrace_otel.model import make_ref
from memtrace_otel.semconv import RefKind


@dataclass(frozen=True, slots=True)
class Piece:
    """A node or document of LlamaIndex. `fingerprint` covers text and metadata; '' when not requested.

    `document` is the id of the document that a node names, else ''.
    """

    ref: str
    id: str
    text: str
    fingerprint: str = ""
    document: str = ""
    score: float | None = None


def pieces(nodes: object, *, fingerprints: bool = False) -> Iterator[Piece]:
    """The nodes, scored nodes or documents of a list. Other iterables give none, because iteration may consume them."""
    for item in cast(list[Any], nodes) if isinstance(nodes, list | tuple) else []:
        node = getattr(item, "node", item)
        id = getattr(node, "node_id", None)
        if isinstance(id, str):
            yield Piece(
                document_ref(id) if is_document(cast("type[object]", type(node))) else chunk_ref(id),
                id,
                text_of(node),
                str(node.hash) if fingerprints else "",
                str(getattr(node, "ref_doc_id", None) or ""),
                number(getattr(item, "score", None)),
            )


@lru_cache(maxsize=256)
def is_document(kind: type[object]) -> bool:
    """Whether objects of this class are whole documents."""
    schema = "llama_index.core.schema"
    return any(base.__name__ == "Document" and base.__module__ == schema for base in kind.__mro__)


def document_ref(id: str) -> str:
    """Ref of the document with this id."""
    return make_ref(RefKind.DOCUMENT, id)


def chunk_ref(id: str) -> str:
    """Ref of the node with this id."""
    return make_ref(RefKind.CHUNK, id)


def text_of(node: Any) -> str:
    """The text of a node without its metadata."""
    return str(node.get_content())


def query_text(query: object) -> str:
    """The text of a query: a string or a `QueryBundle`."""
    return query if isinstance(query, str) else str(getattr(query, "query_str", "") or "")


def query_ref(text: str) -> str:
    """Ref of a question."""
    return variable_ref(RefKind.QUERY, text)


def message_text(message: Any) -> str:
    """The text of a `ChatMessage`, else ''."""
    content = getattr(message, "content", None)
    return content if isinstance(content, str) else ""


def message_ref(text: str) -> str:
    """Ref of the text of a message: LlamaIndex gives messages no ids."""
    return variable_ref(RefKind.MESSAGE, text)
