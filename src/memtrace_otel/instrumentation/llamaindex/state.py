"""State of the LlamaIndex instrumentor: stored chunks and documents, chat messages, the scopes of stores."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar, cast

import wrapt
from opentelemetry.trace import Tracer

from memtrace_otel.capture import scope_id
from memtrace_otel.capture.finalizers import report_waiting
from memtrace_otel.capture.fork import new_lock_after_fork
from memtrace_otel.instrumentation import steps
from memtrace_otel.instrumentation.base import Patches
from memtrace_otel.instrumentation.llamaindex.messages import Messages
from memtrace_otel.instrumentation.llamaindex.nodes import Piece
from memtrace_otel.instrumentation.steps import StepFunction
from memtrace_otel.instrumentation.store_location import ObjectNames, Places

T = TypeVar("T")
BATCH = 100
"""Most records of one operation: with contents, more would not fit the parts of a span."""
_RECORDS = 50_000
_NAMES = ("collection_name", "index_name", "table_name", "_collection_name", "_index_name", "_table_name", "namespace")
_HOLDERS = ("_index", "_storage_context", "_retriever", "_vector_retriever", "_query_engine")


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored version: its ref, the fingerprint of its content and the id of its document."""

    ref: str
    fingerprint: str
    document: str


class Ledger:
    """The newest 50,000 chunks and documents that this process has stored, by owner."""

    def __init__(self) -> None:
        self._stored: OrderedDict[tuple[str, str], Stored] = OrderedDict()
        self._scopes: dict[str, str] = {}
        self._chunks: dict[tuple[str, str], dict[str, None]] = {}
        self._lock = threading.RLock()
        new_lock_after_fork(self)

    def find(self, scope: str, ref: str) -> Stored | None:
        """The version stored for this owner."""
        return self._stored.get((scope, ref))

    def scope_of(self, ref: str) -> str:
        """The owner of the newest stored version of a record; '' when unknown."""
        return self._scopes.get(ref, "")

    def holds(self, piece: Piece) -> bool:
        """Whether the same content is stored under the same id, for any owner. A copy is not a new version."""
        stored = self._stored.get((self.scope_of(piece.ref), piece.ref))
        return stored is not None and stored.fingerprint == piece.fingerprint

    def put(self, scope: str, piece: Piece) -> None:
        """Remember a stored version."""
        with self._lock:
            self._forget(scope, piece.ref)  # the old version may have been cut from another document
            self._stored[scope, piece.ref] = Stored(piece.ref, piece.fingerprint, piece.document)
            self._scopes[piece.ref] = scope
            self._chunks.setdefault((scope, piece.document), {})[piece.ref] = None
            while len(self._stored) > _RECORDS:
                self._forget(*next(iter(self._stored)))

    def remove(self, scope: str, ref: str) -> Stored | None:
        """Forget a deleted record; returns the version that was stored."""
        with self._lock:
            return self._forget(scope, ref)

    def forget_contents(self, scope: str) -> None:
        """Forget the fingerprints of an owner, whose records may be deleted: the next stored content is a new
        version."""
        with self._lock:
            for stored in self.all_of(scope):
                self._stored[scope, stored.ref] = replace(stored, fingerprint="")

    def chunks_of(self, scope: str, document: str) -> list[Stored]:
        """The stored chunks of a document."""
        with self._lock:
            return [self._stored[scope, ref] for ref in self._chunks.get((scope, document), ())]

    def all_of(self, scope: str) -> list[Stored]:
        """Everything stored for an owner."""
        with self._lock:
            return [stored for (owner, _), stored in self._stored.items() if owner == scope]

    def _forget(self, scope: str, ref: str) -> Stored | None:
        stored = self._stored.pop((scope, ref), None)
        if stored is not None:
            if self._scopes.get(ref) == scope:
                del self._scopes[ref]
            siblings = self._chunks.get((scope, stored.document), {})
            siblings.pop(ref, None)
            if not siblings:
                self._chunks.pop((scope, stored.document), None)
        return stored


class LlamaIndexPatches(Patches):
    """The wrappers of one `instrument()` and the state of this process."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__(tracer, "llamaindex")
        self.ledger, self.messages = Ledger(), Messages()
        self._nameless, self._places = ObjectNames(), Places()
        self._scope = lru_cache(maxsize=1024)(scope_id)

    def scope_of(self, store: Any, new: str = "") -> str:
        """Scope of the contents of a store: its name and location; '' for None.

        A store without a name has a scope of its own; `new` is the name of a new store.
        """
        if store is None:
            return ""
        name = store_name(store)
        if name != type(store).__name__:
            return self._scope(name, app=self._places.of(store) or None)
        return self.scope_of_nameless(name, self._nameless.name(store, new))

    def scope_of_nameless(self, kind: str, name: str) -> str:
        """Scope of a store of this class without a name, with this name."""
        return self._scope(kind, run=name or None)

    def scope_of_chat(self, memory: Any) -> str:
        """Scope of a chat memory: table, session and location of its chat store; '' for None.

        A memory without a chat store has a scope of its own.
        """
        store = chat_store_of(memory)
        if store is None:
            return self.scope_of(memory)
        return self._scope(store_name(store), run=session_of(memory), app=self._places.of(store) or None)

    def wrap_inside(self, owner: type, steps: Mapping[str, StepFunction]) -> None:
        """Wrap methods inside their decorators, so the span that another instrumentation makes for the call is current
        in the step, which enriches that span."""

        def within(function: Any, step: StepFunction) -> Any:
            decorator = getattr(function, "_self_wrapper", None)
            if decorator is None:
                return self.around(function, step)
            return wrapt.FunctionWrapper(within(function.__wrapped__, step), decorator)

        for name, step in steps.items():
            self.replace(owner, name, within(vars(owner)[name], step))

    def remove(self) -> None:
        """Restore the originals and report the unread streams."""
        super().remove()
        report_waiting()


Call = steps.Call[LlamaIndexPatches]


def purpose(call: Call) -> str:
    """`memtrace.op.purpose`: class of the object in use, and method."""
    owner = call.instance if isinstance(call.instance, type) else type(call.instance)
    return f"{owner.__name__}.{call.wrapped.__name__}"


def batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Cut items into the records of one operation each; no items give one empty batch."""
    for start in range(0, max(1, len(items)), BATCH):
        yield items[start : start + BATCH]


# --- owners ----------------------------------------------------------------------------------------------------------
def store_name(store: Any) -> str:
    """Collection, index or table of a store, else the name of its class; '' for None."""
    if store is None:
        return ""
    names = (getattr(store, name, None) for name in _NAMES)
    return next((name for name in names if isinstance(name, str) and name), type(store).__name__)


def store_behind(holder: Any) -> Any:
    """The store that an index, pipeline, retriever or query engine uses; None for a combination of several."""
    return next(_stores(holder, 3), None)


def store_of_new(index: type, context: Any) -> Any:
    """The store that a new index of this class will use; without a StorageContext the class name of that store."""
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
    # Every index has a vector store; an index that is not a vector index leaves its vector store empty.
    kept_in_vectors = not hasattr(holder, "index_struct") or _is_vector_index(cast("type[object]", type(holder)))
    names = ("_vector_store", "vector_store", "_docstore", "docstore") if kept_in_vectors else ("_docstore",)
    yield from (store for name in names if (store := getattr(holder, name, None)) is not None)
    for name in _HOLDERS if depth else ():
        inner = getattr(holder, name, None)
        if inner is not None:
            yield from _stores(inner, depth - 1)


def _is_vector_index(index: type[object]) -> bool:
    return any(base.__name__ == "VectorStoreIndex" for base in index.__mro__)
