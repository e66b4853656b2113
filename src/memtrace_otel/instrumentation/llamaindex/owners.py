"""Whose memory it is: the store that an index, pipeline or retriever uses, and the session of a chat memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

_NAMES = ("collection_name", "index_name", "table_name", "_collection_name", "_index_name", "_table_name", "namespace")
_HOLDERS = ("_index", "_storage_context", "_retriever", "_vector_retriever", "_query_engine")


def store_name(store: Any) -> str:
    """Collection, index or table behind a store, '' for None; of a store without a name (on files, say) its class."""
    if store is None:
        return ""
    names = (getattr(store, name, None) for name in _NAMES)
    return next((name for name in names if isinstance(name, str) and name), type(store).__name__)


def store_behind(holder: Any) -> Any:
    """The store that an index, pipeline, retriever or query engine works on, None for one that combines others."""
    return next(_stores(holder, 3), None)


def store_of_new(index: type, context: Any) -> Any:
    """The store that a new index of this class will use; of one that is still to make it (`context`, its
    StorageContext, is None) the name of the store's class."""
    in_vectors = _is_vector_index(index)
    if context is None:
        return "SimpleVectorStore" if in_vectors else "SimpleDocumentStore"
    return context.vector_store if in_vectors else context.docstore


def chat_store_of(memory: Any) -> Any:
    """The chat store of a memory, None for anything else."""
    return getattr(memory, "sql_store", None) or getattr(memory, "chat_store", None)


def session_of(memory: Any) -> str:
    """Id of the conversation that a memory holds."""
    return str(getattr(memory, "session_id", None) or getattr(memory, "chat_store_key", None) or "")


def _stores(holder: Any, depth: int) -> Iterator[Any]:
    # Every index has a vector store; one that is no vector index leaves it empty.
    kept_in_vectors = not hasattr(holder, "index_struct") or _is_vector_index(cast("type[object]", type(holder)))
    names = ("_vector_store", "vector_store", "_docstore", "docstore") if kept_in_vectors else ("_docstore",)
    yield from (store for name in names if (store := getattr(holder, name, None)) is not None)
    for name in _HOLDERS if depth else ():
        inner = getattr(holder, name, None)
        if inner is not None:
            yield from _stores(inner, depth - 1)


def _is_vector_index(index: type[object]) -> bool:
    return any(base.__name__ == "VectorStoreIndex" for base in index.__mro__)
