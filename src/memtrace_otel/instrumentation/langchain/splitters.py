"""Text splitters: documents in, chunks out, each from its document.

`split_documents` calls `create_documents`, and that calls `split_text` once per document: the number of texts that each
of these calls returns tells which chunk came from which document. A splitter that another one uses is a part of that:
it may split the pieces of all documents again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, cast

from memtrace_otel.capture import as_text
from memtrace_otel.instrumentation.langchain.calls import Call, purpose
from memtrace_otel.instrumentation.langchain.documents import Known, Text, read_all, text_of, texts_of
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.semconv import OpKind


@dataclass(slots=True)
class Split:
    """A split under way: what is split, how many pieces each document gave so far, how many parts each text gave that
    another splitter has split for this one."""

    splitter: Any
    texts: list[Text] | None
    pieces: list[int] = field(default_factory=list[int])
    parts: list[int] = field(default_factory=list[int])
    within: bool = False

    def numbers(self) -> list[int]:
        """How many chunks each document gave."""
        if len(self.parts) != sum(self.pieces):
            return self.pieces
        parts = iter(self.parts)
        return [sum(islice(parts, number)) for number in self.pieces]


_SPLIT: ContextVar[Split | None] = ContextVar("memtrace_langchain_split", default=None)


def split(call: Call) -> Step:
    """`split_documents`, `create_documents`, `split_text`: one chunk per piece of text."""
    around, arguments = _SPLIT.get(), call.arguments()
    if around is not None:
        if around.within:
            return
        own = around.splitter is call.instance
        if own:
            around.texts = around.texts or _given(arguments)
        if call.wrapped.__name__ != "split_text":
            return
        around.within = True  # a splitter may call itself
        pieces = yield
        around.within = False
        (around.pieces if own else around.parts).append(len(pieces))
        return
    under_way = Split(call.instance, _given(arguments))
    call.carry(_SPLIT, under_way)
    operation = call.open(None, OpKind.SEGMENT, scope="", purpose=purpose(call))
    returned = yield
    given = under_way.texts or []
    documents, pieces = call.patches.documents, call.patches.pieces
    read = read_all(operation, given, (documents, pieces), documents)
    chunks = [text_of(item) or Text("") for item in cast(Sequence[object], returned)]
    sources = _sources(under_way.numbers(), read, len(chunks))
    for chunk, ref, behind in zip(chunks, _refs(chunks), sources, strict=True):
        operation.wrote(ref, content=chunk.content, sources=behind)
        pieces.learn(operation, chunk, Known(ref, operation.origin))


def _given(arguments: Mapping[str, Any]) -> list[Text] | None:
    """What is split: documents, texts, or data that has the text of its JSON."""
    data = [arguments["json_data"]] if "json_data" in arguments else arguments.get("texts")
    if isinstance(data, list | tuple):
        arguments = {**arguments, "texts": [as_text(item)[0] for item in cast(Sequence[object], data)]}
    return texts_of(arguments)


def _refs(chunks: Sequence[Text]) -> list[str]:
    """A ref for each chunk; equal chunks of one document are told apart by their number."""
    seen: dict[str, int] = {}
    refs: list[str] = []
    for chunk in chunks:
        ref = chunk.chunk
        seen[ref] = seen.get(ref, 0) + 1
        refs.append(ref if seen[ref] == 1 else f"{ref}.{seen[ref]}")
    return refs


def _sources(pieces: Sequence[int], read: Sequence[int], count: int) -> list[list[int] | None]:
    """The inputs behind each chunk: its document, every one (None) when the splitter went another way."""
    if len(read) == 1:
        return [list(read)] * count
    if len(pieces) != len(read) or sum(pieces) != count:
        return [None] * count
    return [[document] for document, number in zip(read, pieces, strict=True) for _ in range(number)]
