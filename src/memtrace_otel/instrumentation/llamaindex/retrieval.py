"""Searches: the query and every hit in rank order in, the context they make out; and what re-ranks the hits."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import cast

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, current_operation
from memtrace_otel.instrumentation.llamaindex.calls import Call, purpose
from memtrace_otel.instrumentation.llamaindex.nodes import Piece, chunk_ref, pieces, query_ref, query_text
from memtrace_otel.instrumentation.llamaindex.owners import scope_of, store_behind, store_name
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.model import make_ref, split_origin
from memtrace_otel.semconv import OpKind, RefKind, Role

_KEPT = 32


@dataclass(frozen=True, slots=True)
class Served:
    """A list of nodes that a search or a re-ranking returned: the context it made, the query, the refs."""

    context: str
    origin: str
    query: str
    refs: frozenset[str]


_served: ContextVar[tuple[Served, ...]] = ContextVar("memtrace_llamaindex_served", default=())
INNER: ContextVar[list[Served] | None] = ContextVar("memtrace_llamaindex_inner", default=None)
"""Takes the searches that are steps of a wider reading."""
_searching: ContextVar[bool] = ContextVar("memtrace_llamaindex_searching", default=False)


def retrieve(call: Call) -> Step:
    """`retrieve`, `aretrieve`: the outermost is the turn's retrieval, one that another retriever calls is its step."""
    if not call.enter("retrieve"):
        return
    query = query_text(call.arguments().get("str_or_query_bundle"))
    inner, store = _searching.get(), store_behind(call.instance)
    operation = _open(call, inner, store)
    call.carry(_searching, True)
    asked = _ask(operation, query)
    top_k = getattr(call.instance, "similarity_top_k", None)
    if isinstance(top_k, int):
        operation.set(semconv.GEN_AI_RETRIEVAL_TOP_K, top_k)
    found = yield
    _return(call, operation, query, [asked], list(pieces(found)), inner=inner)


def query_store(call: Call) -> Step:
    """`query`, `aquery` of a vector store that is asked directly, by the application or by a memory block."""
    if _searching.get() or not call.enter("query"):
        return
    asked = call.arguments().get("query")
    query = query_text(asked)
    around = current_operation()
    inner = around is not None and around.kind == OpKind.RETRIEVE
    operation = _open(call, inner, store_name(call.instance))
    sources = [_ask(operation, query)] if query else []
    found = yield
    ids = cast("list[str]", found.ids or [])
    hits = list(pieces(list(found.nodes or []))) or [Piece(chunk_ref(id), id, "") for id in ids]
    scores = list(found.similarities or [None] * len(hits))
    ranked = [replace(hit, score=score) for hit, score in zip(hits, scores, strict=False)]
    _return(call, operation, query, sources, ranked, inner=inner)


def rerank(call: Call) -> Step:
    """`postprocess_nodes`, `apostprocess_nodes`: given nodes are candidates, the returned ones hits in new order."""
    if not call.enter("rerank"):
        return
    arguments = call.arguments()
    query = query_text(arguments.get("query_bundle")) or query_text(arguments.get("query_str"))
    given = list(pieces(arguments.get("nodes")))
    operation = call.open(None, OpKind.RERANK, scope=owner(call, given), purpose=purpose(call))
    sources = [_ask(operation, query)] if query else []
    for served in served_for(given, query):
        operation.read(served.context, role=Role.CONTEXT, origin=served.origin)
    for piece in given:
        read_piece(call, operation, piece, Role.CANDIDATE)
    ranked = yield
    _return(call, operation, query, sources, list(pieces(ranked)))


def served_for(given: list[Piece], query: str) -> list[Served]:
    """The lists that nodes were taken from: of each node the newest one, if possible one of the same query."""
    newest_first = _served.get()[::-1]
    served = sorted(newest_first, key=lambda one: one.query != query)
    found = (next((one for one in served if piece.ref in one.refs), None) for piece in given)
    return list(dict.fromkeys(one for one in found if one is not None))


def read_piece(call: Call, operation: Operation, piece: Piece, role: str, scope: str = "") -> int:
    """Record that a stored node was seen; `scope` is where it was looked for, if its writer is not known here."""
    scope = call.patches.ledger.scope_of(piece.ref) or scope or operation.scope
    return operation.read(piece.ref, role=role, content=piece.text, score=piece.score, scope=scope)


def owner(call: Call, given: list[Piece]) -> str:
    """The one owner of all these nodes, '' for several or unknown ones."""
    scopes = {call.patches.ledger.scope_of(piece.ref) for piece in given}
    return scopes.pop() if len(scopes) == 1 else ""


def _open(call: Call, inner: bool, store: str) -> Operation:
    attributes = {semconv.GEN_AI_MEMORY_STORE_ID: store} if store else {}
    return call.open(
        None if inner else semconv.RETRIEVAL,
        OpKind.RETRIEVE,
        scope=scope_of(store),
        purpose=purpose(call),
        attributes=attributes,
    )


def _ask(operation: Operation, query: str) -> int:
    return operation.read(query_ref(query), role=Role.QUERY, content=query)


def _return(
    call: Call,
    operation: Operation,
    query: str,
    sources: list[int],
    hits: list[Piece],
    *,
    inner: bool = False,
) -> None:
    """Record the hits and the context that they make together."""
    looked_in = operation.scope
    operation.scope = owner(call, hits) or operation.scope
    sources += [read_piece(call, operation, hit, Role.HIT, looked_in) for hit in hits]
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(hits))
    if operation.origin:
        context = make_ref(RefKind.CONTEXT, split_origin(operation.origin)[1])
        text = "\n".join(hit.text for hit in hits)
        operation.wrote(context, role=Role.CONTEXT, content=text, sources=sources)
        made = Served(context, operation.origin, query, frozenset(hit.ref for hit in hits))
        if not inner:
            _served.set((*_served.get()[1 - _KEPT :], made))
        elif (searches := INNER.get()) is not None:
            searches.append(made)
