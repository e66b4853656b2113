"""Searches of vector stores and retrievers as `retrieval` spans, rerankers as their steps.

The outermost search or retriever is the retrieval. The results of nested searches are its candidates; the returned ones
are the hits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, cast

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, origins, variable_ref
from memtrace_otel.capture.adoption import AdoptingTracer, announced_retrieval, retrieval_of_another
from memtrace_otel.capture.layout import number
from memtrace_otel.instrumentation.langchain.documents import Known, Text, chunk_of_store, store_name, text_of
from memtrace_otel.instrumentation.langchain.runs import span_of_run
from memtrace_otel.instrumentation.langchain.state import Call, first, purpose
from memtrace_otel.instrumentation.langchain.stores import WRITE
from memtrace_otel.instrumentation.steps import RECORDED, Step, record_filters
from memtrace_otel.semconv import Action, OpKind, RefKind, Role

_CANDIDATES = 256
_SCORES = ("relevance_score", "score", "_score")


@dataclass(frozen=True, slots=True)
class Found:
    """A document that a search returned: its stored version, text and score."""

    known: Known
    text: Text
    score: float | None = None


@dataclass(slots=True)
class Retrieval:
    """A running retrieval. `candidates` are the results of nested searches, by ref; `last` is the newest result.
    `asked` are the queries, that of the retrieval itself first."""

    operation: Operation
    asked: dict[str, None]
    candidates: dict[str, Found] = field(default_factory=dict[str, Found])
    last: object = None
    _documents: dict[int, Found] = field(default_factory=dict[int, Found])

    def ask(self, query: object) -> None:
        """Note the query of a nested search: a model may have rewritten the question."""
        if isinstance(query, str):
            self.asked[query] = None

    def consider(self, found: Sequence[Found]) -> None:
        """Note the results of a search; the score of the outer search counts."""
        for item in found:
            known = self.candidates.get(item.known.ref)
            if (known is None and len(self.candidates) < _CANDIDATES) or (known and item.score is not None):
                self.candidates[item.known.ref] = item
                self._documents[id(item.text.document)] = item

    def seen(self, document: object) -> Found | None:
        """The result of a nested search that is this object."""
        found = self._documents.get(id(document))
        return found if found is not None and found.text.document is document else None

    def version(self, text: Text) -> Known | None:
        """The stored version behind a copy of a nested result."""
        found = list(self.candidates.values())
        same = [item for item in found if text.id and item.text.id == text.id]
        if not same and not text.id:
            same = [item for item in found if item.text.content == text.content]
            same = [item for item in same if item.text.metadata == text.metadata] or same
        return same[0].known if same else None


RETRIEVAL: ContextVar[Retrieval | None] = ContextVar("memtrace_langchain_retrieval", default=None)


def search(call: Call) -> Step:
    """`similarity_search` and similar methods, `get_by_ids`: a retrieval, a nested search, or a step of a write to the
    same store."""
    if RECORDED.get():
        return
    around, write = RETRIEVAL.get(), WRITE.get()
    if around is not None:
        around.ask(first(call, "query"))
        _limit(around.operation, call.arguments())
        returned = yield
        if returned is not around.last:  # not the result of the nested search
            around.last = returned
            around.consider(_found_in(call, around.operation, returned, call.patches.scope_of(call.instance)))
        return
    query = first(call, "query")
    is_step = write is not None and write.store is call.instance
    retrieval = _begin(call, query, scope=call.patches.scope_of(call.instance), is_step=is_step)
    _limit(retrieval.operation, call.arguments())
    asked = _ask(retrieval.operation, query)
    returned = yield
    _finish(call, retrieval, asked, _found_in(call, retrieval.operation, returned, retrieval.operation.scope))


def _limit(operation: Operation, arguments: Mapping[str, Any]) -> None:
    """Record what a search of a store leaves out: more than k records, low scores, other metadata."""
    if isinstance(k := arguments.get("k"), int):
        operation.set(semconv.GEN_AI_RETRIEVAL_TOP_K, k)
    if isinstance(threshold := arguments.get("score_threshold"), float):
        operation.set(semconv.RETRIEVAL_THRESHOLD, threshold)
    record_filters(operation, arguments.get("filter"))


def retrieve(call: Call) -> Step:
    """`_get_relevant_documents` of a retriever: query in, documents and their context out."""
    around = RETRIEVAL.get()
    query = call.args[0] if call.args else call.arguments().get("query", call.arguments().get("input"))
    if around is not None:
        around.ask(query)
        returned = yield
        around.consider(_found_in(call, around.operation, returned, ""))
        return
    call.carry(announced_retrieval, span_of_run(call.arguments().get("run_manager")))
    retrieval = _begin(call, query, scope="")
    asked = _ask(retrieval.operation, query)
    returned = yield
    _finish(call, retrieval, asked, _found_in(call, retrieval.operation, returned, ""))


def invoke(call: Call) -> Step:
    """`invoke` of a retriever that overrides the method (an ensemble calls no `_get_relevant_documents`)."""
    if not call.wrapped.__qualname__.startswith("BaseRetriever."):
        yield from retrieve(call)


def compress(call: Call) -> Step:
    """`compress_documents`: a reranker orders and drops candidates, an extractor shortens them."""
    arguments = call.arguments()
    around = RETRIEVAL.get()
    operation = call.open(None, OpKind.RERANK, scope=around.operation.scope if around else "", purpose=purpose(call))
    asked = _ask(operation, arguments.get("query"))
    given = _found_in(call, operation, arguments.get("documents"), "")
    operation.scope = operation.scope or _owner(given)
    places = {item.known.ref: _read(operation, Role.CANDIDATE, item) for item in given}
    returned = yield
    for item in _found_in(call, operation, returned, ""):
        if item.known.ref in places:
            _read(operation, Role.HIT, item)
            continue
        fed_by = [asked, *(places[one.known.ref] for one in _cut_from(item.text, given))]
        ref = variable_ref(RefKind.FACT, item.text.content)  # a text that no store holds
        operation.wrote(ref, action=Action.DERIVE, content=item.text.content, sources=fed_by)
        call.patches.pieces.learn(operation, item.text, Known(ref, operation.origin))


def _owner(found: Iterable[Found]) -> str:
    """The common scope, '' for several scopes."""
    scopes = {item.known.scope for item in found if item.known.scope}
    return scopes.pop() if len(scopes) == 1 else ""


def _cut_from(extract: Text, given: Sequence[Found]) -> list[Found]:
    """The documents with the metadata of an extract; only those that hold its text, if any do."""
    alike = [one for one in given if one.text.metadata == extract.metadata]
    return [one for one in alike if extract.content in one.text.content] or alike


def _begin(call: Call, query: object, *, scope: str, is_step: bool = False) -> Retrieval:
    attributes = {semconv.GEN_AI_DATA_SOURCE_ID: store_name(call.instance)} if scope else {}
    recorded = retrieval_of_another()
    operation = Operation(
        None if is_step else semconv.RETRIEVAL,
        kind=OpKind.RETRIEVE,
        system=call.patches.system,
        scope=scope,
        purpose=purpose(call),
        tracer=AdoptingTracer(call.patches.tracer, recorded) if recorded else call.patches.tracer,
        attributes={semconv.CODE_FUNCTION_NAME: call.name, **attributes},
    )
    call.begin(operation)
    if operation.captures_content and isinstance(query, str):
        operation.set(semconv.GEN_AI_RETRIEVAL_QUERY_TEXT, query)
    retrieval = Retrieval(operation, {})
    retrieval.ask(query)
    call.carry(RETRIEVAL, retrieval)
    return retrieval


def _ask(operation: Operation, query: object) -> int:
    if not isinstance(query, str):  # a search by vector or by ids
        return -1
    return operation.read(variable_ref(RefKind.QUERY, query), role=Role.QUERY, content=query)


def _finish(call: Call, retrieval: Retrieval, asked: int, hits: Sequence[Found]) -> None:
    operation = retrieval.operation
    retrieval.consider(hits)
    hits = [hit if hit.score is not None else retrieval.candidates.get(hit.known.ref, hit) for hit in hits]
    operation.scope = _owner(hits) or _owner(retrieval.candidates.values()) or operation.scope
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(hits))
    others = list(retrieval.asked)[asked >= 0 :]  # no role `query`: prompts repeat the question itself
    rewritten = [operation.read(variable_ref(RefKind.QUERY, words), content=words) for words in others]
    read = [_read(operation, Role.HIT, hit) for hit in hits]
    operation.context(sources=[asked, *rewritten, *read])
    returned = {hit.known.ref for hit in hits}
    for ref, candidate in retrieval.candidates.items():
        if ref not in returned:
            _read(operation, Role.CANDIDATE, candidate)


def _read(operation: Operation, role: str, found: Found) -> int:
    return found.known.read_by(operation, found.text.content, role, found.score)


def _found_in(call: Call, reader: Operation, returned: object, scope: str) -> list[Found]:
    """The documents of a result (alone or in pairs with scores), each with its version."""
    around = RETRIEVAL.get()
    found: list[Found] = []
    for item in cast(Sequence[Any], returned if isinstance(returned, list | tuple) else ()):
        document, score = cast(tuple[Any, Any], item[:2]) if isinstance(item, tuple) else (item, None)
        seen = around.seen(document) if around else None
        if seen is not None:
            found.append(seen if score is None else Found(seen.known, seen.text, number(score)))
            continue
        text = text_of(document)
        if text is not None:
            given = next((text.metadata[key] for key in _SCORES if text.metadata.get(key) is not None), None)
            found.append(Found(_version(call, reader, text, scope), text, number(given if score is None else score)))
    return found


def _version(call: Call, reader: Operation, text: Text, scope: str) -> Known:
    """The stored version behind a document. Outside its store (`scope` '') the nested searches know the version."""
    patches, around = call.patches, RETRIEVAL.get()
    ref = chunk_of_store(text.id) if text.id else ""
    if not scope:
        known = patches.pieces.find_object(text) or patches.documents.find_object(text)
        known = known or (around.version(text) if around else None)
        tables = (patches.stored, patches.pieces, patches.documents)
        copies = (table.find(text, reader, anywhere=True) for table in tables)
        return known or next(filter(None, copies), None) or Known(ref or text.chunk, None)
    if ref and origins().find(scope, ref):
        return Known(ref, None, scope)
    known = patches.stored.find_in_store(text, scope)
    if known is not None and (not ref or known.ref == text.nameless):  # stored under an unknown id
        return known
    return Known(ref or text.chunk, None, scope)
