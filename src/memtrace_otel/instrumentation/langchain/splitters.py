"""Text splitters: documents in, chunks out, each chunk with its document as source.

`split_documents` calls `create_documents`, which calls `split_text`, also of other splitters. The outermost call is the
operation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any, cast

from memtrace_otel.capture import as_text
from memtrace_otel.instrumentation.langchain.documents import Known, Text, read_all, text_of, texts_of
from memtrace_otel.instrumentation.langchain.state import Call, purpose
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.semconv import OpKind

_SPLITTING: ContextVar[list[Text] | None] = ContextVar("memtrace_langchain_splitting", default=None)
"""The texts of the outermost call, filled by the first call that gets a list."""


def split(call: Call) -> Step:
    """`split_documents`, `create_documents`, `split_text`: one output per chunk."""
    outer = _SPLITTING.get()
    if outer is not None:
        if not outer and call.wrapped.__name__ != "split_text":  # the outermost call was given an iterator
            outer += _given(call.arguments()) or []
        return
    given = _given(call.arguments()) or []
    call.carry(_SPLITTING, given)
    operation = call.open(None, OpKind.SEGMENT, scope="", purpose=purpose(call))
    returned = yield
    documents, pieces = call.patches.documents, call.patches.pieces
    read = read_all(operation, given, (documents, pieces), documents)
    chunks = [text_of(item) or Text("") for item in cast(Sequence[object], returned)]
    for chunk, ref, place in zip(chunks, _refs(chunks), _documents_of(chunks, given), strict=True):
        operation.wrote(ref, content=chunk.content, sources=None if place is None else [read[place]])
        pieces.learn(operation, chunk, Known(ref, operation.origin))


def _given(arguments: Mapping[str, Any]) -> list[Text] | None:
    """The documents or texts to split; JSON data as text."""
    data = [arguments["json_data"]] if "json_data" in arguments else arguments.get("texts")
    if isinstance(data, list | tuple):
        arguments = {**arguments, "texts": [as_text(item)[0] for item in cast(Sequence[object], data)]}
    return texts_of(arguments)


def _refs(chunks: Sequence[Text]) -> list[str]:
    """The refs of chunks; equal chunks of one document are numbered."""
    seen: dict[str, int] = {}
    refs: list[str] = []
    for chunk in chunks:
        ref = chunk.chunk
        seen[ref] = seen.get(ref, 0) + 1
        refs.append(ref if seen[ref] == 1 else f"{ref}.{seen[ref]}")
    return refs


def _documents_of(chunks: Sequence[Text], documents: Sequence[Text]) -> list[int | None]:
    """Position of the document behind each chunk, in the order of the documents. None (all documents) from the first
    chunk that no document holds, since the splitter has changed the texts."""
    if len(documents) == 1:
        return [0] * len(chunks)
    texts = [_words(document.content) for document in documents]
    found: list[int | None] = []
    at = start = 0
    for chunk in chunks:
        text, metadata = _words(chunk.content), chunk.metadata
        while at < len(documents):
            place = texts[at].find(text, start)
            if place >= 0 and all(metadata.get(key) == value for key, value in documents[at].metadata.items()):
                start = place
                break
            at, start = at + 1, 0
        if at == len(documents):
            break
        found.append(at)
    return [*found, *[None] * (len(chunks) - len(found))]


def _words(text: str) -> str:
    return " ".join(text.split())
