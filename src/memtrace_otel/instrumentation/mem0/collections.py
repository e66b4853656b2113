"""`create_memory_store`: a Memory whose vector collection did not exist before.

Known of Qdrant, which asks for the collections there are, and of FAISS, which creates when it finds no files. Chroma
gets or creates in one call and does not say which.
"""

from __future__ import annotations

from contextvars import ContextVar

from memtrace_otel import semconv
from memtrace_otel.capture import scope_id
from memtrace_otel.instrumentation.mem0.calls import Call
from memtrace_otel.instrumentation.mem0.variables import collection_of
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.semconv import OpKind

CREATED: ContextVar[list[str] | None] = ContextVar("memtrace_mem0_created", default=None)
LISTED: ContextVar[list[str] | None] = ContextVar("memtrace_mem0_listed", default=None)


def make_memory(call: Call) -> Step:
    """`Memory.__init__`: it makes other collections, too (statistics); only its own is the memory store."""
    created: list[str] = []
    call.carry(CREATED, created)
    yield
    name = collection_of(call.instance)
    if name in created:
        call.open(
            semconv.CREATE_MEMORY_STORE,
            OpKind.OTHER,
            scope=scope_id(name),
            attributes={semconv.GEN_AI_MEMORY_STORE_ID: name},
        )


def create_unless_listed(call: Call) -> Step:
    """`Qdrant.create_col`: creates the collection unless it is among the listed ones."""
    created, listed = CREATED.get(), list[str]()
    if created is None:
        return
    call.carry(LISTED, listed)
    yield
    name = str(call.instance.collection_name)
    if name not in listed:
        created.append(name)


def list_collections(call: Call) -> Step:
    """`Qdrant.list_cols`: the collections that were there."""
    listed = LISTED.get()
    if listed is None:
        return
    found = yield
    listed += [str(collection.name) for collection in found.collections]


def create(call: Call) -> Step:
    """`FAISS.create_col`: called when there are no files of the collection."""
    created = CREATED.get()
    if created is None:
        return
    yield
    created.append(str(call.arguments().get("name")))


POINTS = {
    "mem0.vector_stores.qdrant": {
        "Qdrant.create_col": create_unless_listed,
        "Qdrant.list_cols": list_collections,
    },
    "mem0.vector_stores.faiss": {"FAISS.create_col": create},
}
