"""Document loaders: where documents come from. Lazy ones are watched while the program consumes them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import AsyncGeneratorType, GeneratorType
from typing import Any, cast

from memtrace_otel.capture import Operation, guard
from memtrace_otel.instrumentation.langchain.calls import Call, purpose
from memtrace_otel.instrumentation.langchain.documents import Known, text_of
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.semconv import OpKind

_LOADING: ContextVar[bool] = ContextVar("memtrace_langchain_loading", default=False)
"""Set while a loader works: what the loaders that it uses hand to it is not loaded twice."""


def load(call: Call) -> Step:
    """`load`, `aload`: the documents of a list, as one operation."""
    if _LOADING.get():
        return
    call.carry(_LOADING, True)
    operation = call.open(None, OpKind.INGEST, scope="", purpose=purpose(call))
    documents = yield
    _loaded(call, operation, cast(Sequence[object], documents))


def lazy_load(call: Call) -> Step:
    """`lazy_load`, `alazy_load`: one operation per document, so that none is kept longer than the program keeps it."""
    if _LOADING.get():
        return
    documents = yield
    if isinstance(documents, GeneratorType):
        call.hand_out(_watched(call, cast(Generator[Any, Any, Any], documents)))
    elif isinstance(documents, AsyncGeneratorType):
        call.hand_out(_watched_async(call, cast(AsyncGenerator[Any, Any], documents)))


def _watched(call: Call, documents: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    try:
        while True:
            with _loading():
                try:
                    document = next(documents)
                except StopIteration as end:
                    return end.value
            with guard("langchain.lazy_load"):
                _seen(call, document)
            yield document
    finally:
        documents.close()


async def _watched_async(call: Call, documents: AsyncGenerator[Any, Any]) -> AsyncGenerator[Any, Any]:
    try:
        while True:
            with _loading():
                try:
                    document = await anext(documents)
                except StopAsyncIteration:
                    return
            with guard("langchain.lazy_load"):
                _seen(call, document)
            yield document
    finally:
        await documents.aclose()


@contextmanager
def _loading() -> Generator[None]:
    token = _LOADING.set(True)
    try:
        yield
    finally:
        _LOADING.reset(token)


def _seen(call: Call, document: object) -> None:
    patches = call.patches
    if patches.active:
        with Operation(kind=OpKind.INGEST, system=patches.system, purpose=purpose(call), tracer=patches.tracer) as made:
            _loaded(call, made, [document])


def _loaded(call: Call, operation: Operation, documents: Sequence[object]) -> None:
    seen: dict[str, int] = {}
    for document in documents:
        text = text_of(document)
        if text is None:
            continue
        ref = text.document_ref
        seen[ref] = seen.get(ref, 0) + 1
        if seen[ref] > 1:  # parts of one source that nothing else tells apart
            ref = f"{ref}.{seen[ref]}"
        operation.wrote(ref, content=text.content)
        call.patches.documents.learn(operation, text, Known(ref, operation.origin))
