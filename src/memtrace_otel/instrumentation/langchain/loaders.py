"""Document loaders: an `ingest` operation per list of documents, or per document of a lazy loader."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import cast

from memtrace_otel.capture import Operation
from memtrace_otel.instrumentation.langchain.documents import Known, text_of
from memtrace_otel.instrumentation.langchain.state import Call, purpose
from memtrace_otel.instrumentation.langchain.streams import Observer, observed
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.semconv import OpKind

_LOADING: ContextVar[bool] = ContextVar("memtrace_langchain_loading", default=False)
"""Set while a loader runs: nested loaders are not recorded."""


def load(call: Call) -> Step:
    """`load`, `aload`: one operation for the whole list."""
    if _LOADING.get():
        return
    call.carry(_LOADING, True)
    operation = call.open(None, OpKind.INGEST, scope="", purpose=purpose(call))
    documents = yield
    _loaded(call, operation, cast(Sequence[object], documents))


def lazy_load(call: Call) -> Step:
    """`lazy_load`, `alazy_load`: one operation per document, so no document stays in memory."""
    if _LOADING.get():
        return
    documents = yield
    watched = observed(documents, _LazyLoad(call))
    if watched is not None:
        call.hand_out(watched)


class _LazyLoad(Observer):
    where = "langchain.lazy_load"

    def __init__(self, call: Call) -> None:
        self._call = call

    @contextmanager
    def waiting(self) -> Generator[None]:
        token = _LOADING.set(True)
        try:
            yield
        finally:
            _LOADING.reset(token)

    def see(self, item: object) -> None:
        patches = self._call.patches
        if patches.active:
            with Operation(
                kind=OpKind.INGEST, system=patches.system, purpose=purpose(self._call), tracer=patches.tracer
            ) as operation:
                _loaded(self._call, operation, [item])


def _loaded(call: Call, operation: Operation, documents: Sequence[object]) -> None:
    seen: dict[str, int] = {}
    for document in documents:
        text = text_of(document)
        if text is None:
            continue
        ref = text.document_ref
        seen[ref] = seen.get(ref, 0) + 1
        if seen[ref] > 1:  # several documents of one source
            ref = f"{ref}.{seen[ref]}"
        operation.wrote(ref, content=text.content)
        call.patches.documents.learn(operation, text, Known(ref, operation.origin))
