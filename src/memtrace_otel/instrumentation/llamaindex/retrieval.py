"""Searches and rerankers: the query and the hits in rank order in, the context of the hits out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, cast

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, current_operation, origins
from memtrace_otel.capture.adoption import AdoptingTracer, retrieval_of_another
from memtrace_otel.instrumentation.llamaindex.nodes import Piece, chunk_ref, pieces, query_ref, query_text
from memtrace_otel.instrumentation.llamaindex.state import Call, purpose, store_behind, store_name
from memtrace_otel.instrumentation.steps import Step, record_filters
from memtrace_otel.semconv import OpKind, Role

_KEPT = 32


@dataclass(frozen=True, slots=True)
class Version:
    """A stored node that was found: its owner and its writer ('' when unknown)."""

    piece: Piece
    scope: str
    origin: str


@dataclass(frozen=True, slots=True)
class Served:
    """The result of a search or reranker: its context, its query, its hits by ref."""

    context: str
    origin: str
    query: str
    hits: Mapping[str, Version] = field(compare=False)


_served: ContextVar[tuple[Served, ...]] = ContextVar("memtrace_llamaindex_served", default=())
INNER: ContextVar[list[Served] | None] = ContextVar("memtrace_llamaindex_inner", default=None)
"""Collects the searches that are steps of another retrieval."""
SEARCHES: ContextVar[tuple[deque[Served], ...]] = ContextVar("memtrace_llamaindex_searches", default=())
"""Collect the searches of an agent's turn, and those of the called tool."""
_searching: ContextVar[bool] = ContextVar("memtrace_llamaindex_searching", default=False)


def retrieve(call: Call) -> Step:
    """`retrieve`, `aretrieve`: the outermost call is the retrieval of the turn, inner retrievers are its steps.

    Rewritten queries of the steps (of a fusion retriever) are inputs as well. Hits of the steps that the call does not
    return are candidates.
    """
    if not call.enter("retrieve"):
        return
    query = query_text(call.arguments().get("str_or_query_bundle"))
    inner, store = _searching.get(), store_behind(call.instance)
    around, steps = INNER.get(), list[Served]()
    operation = _open(call, inner, store)
    call.carry(_searching, True)
    call.carry(INNER, steps)
    asked = [_ask(operation, query)]
    _limit(operation, call.instance, "_filters")
    found = yield
    hits = list(pieces(found))
    others = dict.fromkeys(step.query for step in steps if step.query not in ("", query))
    # The role is not `query`: prompts contain the original question.
    asked += [operation.read(query_ref(words), content=words) for words in others]
    _return(call, operation, query, asked, hits, inner=inner, around=around)
    returned = {hit.ref for hit in hits}
    for ref, left_out in {ref: hit for step in steps for ref, hit in step.hits.items()}.items():
        if ref not in returned:
            read_version(operation, left_out, Role.CANDIDATE)


def _limit(operation: Operation, search: object, filters: str) -> None:
    """Record what a search leaves out: more than k nodes, other metadata."""
    if isinstance(top_k := getattr(search, "similarity_top_k", None), int):
        operation.set(semconv.GEN_AI_RETRIEVAL_TOP_K, top_k)
    given = getattr(getattr(search, filters, None), "filters", None)
    conditions = cast("list[Any]", given if isinstance(given, list) else [])
    record_filters(operation, {str(one.key): one.value for one in conditions if hasattr(one, "key")})


def query_store(call: Call) -> Step:
    """`query`, `aquery` of a vector store, called by the application or by a memory block."""
    if _searching.get() or not call.enter("query"):
        return
    asked = call.arguments().get("query")
    query = query_text(asked)
    around = current_operation()
    inner = around is not None and around.kind == OpKind.RETRIEVE
    operation = _open(call, inner, call.instance)
    sources = [_ask(operation, query)] if query else []
    _limit(operation, asked, "filters")
    found = yield
    ids = cast("list[str]", found.ids or [])
    hits = list(pieces(list(found.nodes or []))) or [Piece(chunk_ref(id), id, "") for id in ids]
    scores = list(found.similarities or [None] * len(hits))
    ranked = [replace(hit, score=score) for hit, score in zip(hits, scores, strict=False)]
    _return(call, operation, query, sources, ranked, inner=inner, around=INNER.get())


def rerank(call: Call) -> Step:
    """`postprocess_nodes`, `apostprocess_nodes`: given nodes are candidates, returned nodes are hits."""
    if not call.enter("rerank"):
        return
    arguments = call.arguments()
    query = query_text(arguments.get("query_bundle")) or query_text(arguments.get("query_str"))
    given = list(pieces(arguments.get("nodes")))
    lists = served_for(given, query)
    candidates = [version_of(call, piece, lists) for piece in given]
    operation = call.open(None, OpKind.RERANK, scope=owner(candidates), purpose=purpose(call))
    sources = [_ask(operation, query)] if query else []
    for served in dict.fromkeys(lists.values()):
        operation.read(served.context, role=Role.CONTEXT, origin=served.origin)
    for candidate in candidates:
        read_version(operation, candidate, Role.CANDIDATE)
    ranked = yield
    _return(call, operation, query, sources, list(pieces(ranked)), lists=lists)


def served_for(given: list[Piece], query: str) -> dict[str, Served]:
    """The newest result in this execution context that contains each node, by ref. A result of the same query goes
    first."""
    newest_first = _served.get()[::-1]
    served = sorted(newest_first, key=lambda one: one.query != query)
    found = {piece.ref: next((one for one in served if piece.ref in one.hits), None) for piece in given}
    return {ref: one for ref, one in found.items() if one is not None}


def served_here() -> tuple[Served, ...]:
    """The newest results of this execution context, oldest first."""
    return _served.get()


def version_of(call: Call, piece: Piece, served: Mapping[str, Served], looked_in: str = "") -> Version:
    """The version of a node in its search result, else in the store of this scope, else of its last writer."""
    if piece.ref in served:
        return replace(served[piece.ref].hits[piece.ref], piece=piece)
    ledger = call.patches.ledger
    scope = looked_in if ledger.find(looked_in, piece.ref) else ledger.scope_of(piece.ref) or looked_in
    return Version(piece, scope, origins().find(scope, piece.ref))


def read_version(operation: Operation, seen: Version, role: str) -> int:
    """Record a stored node as an input; an answer records no scores."""
    piece, origin = seen.piece, seen.origin or None
    score = None if operation.kind == OpKind.RESPOND else piece.score
    return operation.read(piece.ref, role=role, content=piece.text, score=score, scope=seen.scope, origin=origin)


def owner(seen: Iterable[Version]) -> str:
    """The owner of all these nodes; '' for several owners or an unknown owner."""
    scopes = {version.scope for version in seen}
    return scopes.pop() if len(scopes) == 1 else ""


def _open(call: Call, inner: bool, store: Any) -> Operation:
    attributes = {semconv.GEN_AI_MEMORY_STORE_ID: store_name(store)} if store is not None else {}
    # OpenInference uses the name that LlamaIndex gives to the call.
    recorded = None if inner else retrieval_of_another(purpose(call))
    operation = Operation(
        None if inner else semconv.RETRIEVAL,
        kind=OpKind.RETRIEVE,
        system=call.patches.system,
        scope=call.patches.scope_of(store),
        purpose=purpose(call),
        tracer=AdoptingTracer(call.patches.tracer, recorded) if recorded else call.patches.tracer,
        attributes={semconv.CODE_FUNCTION_NAME: call.name, **attributes},
    )
    call.begin(operation)
    return operation


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
    around: list[Served] | None = None,
    lists: Mapping[str, Served] = MappingProxyType({}),
) -> None:
    """Record the hits and the context that they make together."""
    seen = [version_of(call, hit, lists, operation.scope) for hit in hits]
    operation.scope = owner(seen) or operation.scope
    sources += [read_version(operation, hit, Role.HIT) for hit in seen]
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(hits))
    context = operation.context(sources=sources)
    if context:
        made = Served(context, operation.origin, query, {hit.piece.ref: hit for hit in seen})
        if not inner:
            _served.set((*_served.get()[1 - _KEPT :], made))
            for searches in SEARCHES.get():
                searches.append(made)
        elif around is not None:
            around.append(made)
