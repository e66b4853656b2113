"""LangChain's documents as variables: what names a document or a chunk, and which variable a text is.

A `Document` has no id until a vector store gives it one, so a loaded document is named by its source and a chunk by a
digest. Between the steps of a program it is followed as the object that it is, and by its content where it was copied.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, cast

from memtrace_otel.capture import Operation, variable_ref
from memtrace_otel.capture.fork import new_lock_after_fork
from memtrace_otel.model import make_ref, split_ref
from memtrace_otel.semconv import Incomplete, RefKind, Role

_SOURCES = ("source", "file_path", "url")
_PLACES = ("page", "row", "seq_num", "start_index")
_STORES = ("_collection_name", "collection_name", "_index_name", "index_name", "_table_name", "table_name")
_ENTRIES = 16_384
_TWINS = 256


@dataclass(slots=True, eq=False)
class Text:
    """A document as its owner handed it over; `document` is the object itself, None for a bare text."""

    content: str
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    id: str = ""
    document: object = None
    _keys: list[str] = field(default_factory=list[str])

    @property
    def chunk(self) -> str:
        """`chunk:<id>`, without an id `chunk:<digest of content, source and place>`."""
        return chunk_of_store(self.id) if self.id else self.nameless

    @property
    def nameless(self) -> str:
        """`chunk:<digest of content, source and place>`, whatever its id."""
        return self.recognised_by()[0]

    @property
    def document_ref(self) -> str:
        """`document:<id>`, else `document:<source>` with its place in there, else `document:<digest>`."""
        return variable_ref(RefKind.DOCUMENT, self.content, self._name())

    @property
    def root(self) -> str:
        """Ref of a document that nobody is known to have loaded: another text is another document."""
        ref = variable_ref(RefKind.DOCUMENT, self.content)
        return make_ref(RefKind.DOCUMENT, f"{self._name()}@{split_ref(ref)[1]}") if self._name() else ref

    def recognised_by(self) -> list[str]:
        """What the same text is recognised by after copying: with its source and place, and alone."""
        if not self._keys:
            place = self._place()
            self._keys = [variable_ref(RefKind.CHUNK, self.content)]
            if any(place):
                self._keys.insert(0, variable_ref(RefKind.CHUNK, [self.content, *place]))
        return self._keys

    def _name(self) -> str:
        source, *place = self._place()
        return self.id or ("#".join((source, *place)) if source else "")

    def _place(self) -> list[str]:
        source = next((str(self.metadata[key]) for key in _SOURCES if self.metadata.get(key)), "")
        return [source, *(f"{key}={self.metadata[key]}" for key in _PLACES if self.metadata.get(key) is not None)]


def text_of(value: Any) -> Text | None:
    """A Document or a bare text, None for anything else."""
    if isinstance(value, str):
        return Text(value)
    content = getattr(value, "page_content", None)
    if not isinstance(content, str):
        return None
    metadata = cast(Mapping[str, Any], getattr(value, "metadata", None) or {})
    return Text(content, metadata, str(getattr(value, "id", None) or ""), value)


def texts_of(arguments: Mapping[str, Any]) -> list[Text] | None:
    """The documents of a call; None when it was given an iterator, which is the library's to consume."""
    for name in ("documents", "texts", "text"):
        given = arguments.get(name)
        if isinstance(given, str):
            return [Text(given)]
        if isinstance(given, list | tuple):
            items = cast(Sequence[object], given)
            metadatas = cast(Sequence[Mapping[str, Any] | None], arguments.get("metadatas") or ())
            if name == "texts" and isinstance(metadatas, list | tuple):
                return [Text(str(text), data or {}) for text, data in zip_longest(items, metadatas[: len(items)])]
            return [text_of(item) or Text("") for item in items]
    return None


@dataclass(frozen=True, slots=True)
class Known:
    """The version of a variable that a document or text is; `sure` False when equal texts leave a choice.

    `origin` None is looked up when it is read, '' a root.
    """

    ref: str
    origin: str | None
    scope: str = ""
    sure: bool = True

    def read_by(self, operation: Operation, content: str, role: str = Role.OTHER, score: float | None = None) -> int:
        """Record it as an input of `operation`."""
        if not self.sure:
            operation.mark(Incomplete.INFERRED)
        return operation.read(self.ref, role=role, content=content, origin=self.origin, scope=self.scope, score=score)


class KnownTexts:
    """Which variable a document is: by the object while it lives, else by content. Both tables are bounded."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        new_lock_after_fork(self)
        self._objects: OrderedDict[int, tuple[weakref.ref[object], Known]] = OrderedDict()
        self._contents: OrderedDict[str, list[Known]] = OrderedDict()

    def learn(self, text: Text, known: Known, *, as_object: bool = True, as_content: bool = True) -> None:
        """Remember the variable that a text is: the object itself, what it says, or both."""
        keys = text.recognised_by() if as_content else ()
        with self._lock:
            if as_object and text.document is not None:
                self._objects[id(text.document)] = (weakref.ref(text.document), known)
            for key in keys:
                twins = [twin for twin in self._contents.pop(key, []) if twin.ref != known.ref]
                self._contents[key] = [*twins, known][-_TWINS:]
            for table in (self._objects, self._contents):
                while len(table) > _ENTRIES:
                    table.popitem(last=False)

    def find(self, text: Text, *, turn: int = 0, scope: str | None = None) -> Known | None:
        """The variable of a text; `turn` counts the equal ones before it in the same call."""
        known = self.find_object(text)
        if known is not None:
            return known
        for key in text.recognised_by():
            with self._lock:
                twins = [twin for twin in self._contents.get(key, ()) if scope in (None, twin.scope)]
            if twins:
                chosen = twins[min(turn, len(twins) - 1)]
                return chosen if len(twins) == 1 else replace(chosen, sure=False)
        return None

    def find_object(self, text: Text) -> Known | None:
        """The variable that the very object is."""
        if text.document is None:
            return None
        reference, known = self._objects.get(id(text.document), (None, None))
        return known if reference is not None and reference() is text.document else None


def read_all(operation: Operation, known: KnownTexts, texts: Sequence[Text]) -> list[int]:
    """Record the texts given to an operation: the variables they are known as, else documents nobody made."""
    turns: dict[str, int] = {}
    indices: list[int] = []
    for text in texts:
        turn = turns[text.chunk] = turns.get(text.chunk, -1) + 1
        found = known.find(text, turn=turn)
        if found is None:
            found = Known(text.root, "")
            known.learn(text, found, as_content=False)
        indices.append(found.read_by(operation, text.content))
    return indices


def chunk_of_store(id: object) -> str:
    """Ref of the stored chunk with this id."""
    return make_ref(RefKind.CHUNK, str(id))


def store_name(store: Any) -> str:
    """Name of the collection, index or table behind a vector store, without one the name of its class."""
    for attribute in _STORES:
        name = getattr(store, attribute, None)
        if isinstance(name, str) and name:
            return name
    return type(store).__name__
