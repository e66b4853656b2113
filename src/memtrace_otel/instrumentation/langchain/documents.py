"""Documents and chunks of LangChain as variables: their names, and the variable behind a text.

A `Document` has no id until a vector store assigns one, so a loaded document is named by its source and a chunk by a
digest. Between steps a document is recognised by object identity, a copy by its content: within its trace, or in any
trace if no span is around a step.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from typing import Any, cast

from memtrace_otel.capture import Operation, config, variable_ref
from memtrace_otel.capture.content import said, scope_id, show
from memtrace_otel.capture.fork import new_lock_after_fork
from memtrace_otel.model import make_ref, split_ref
from memtrace_otel.semconv import Incomplete, RefKind, Role

_SOURCES = ("source", "file_path", "url")
_PLACES = ("page", "row", "seq_num", "start_index")
_OWNERS = ("user_id", "tenant_id", "tenant", "owner_id", "owner")
_STORES = ("_collection_name", "collection_name", "_index_name", "index_name", "_table_name", "table_name")
_USER = re.compile(r"(?<=://)[^\s/@]{1,512}@")
"""User and password of a URL."""
_LONGEST = 100_000  # bytes of a source
_ENTRIES = 16_384
_ANYWHERE = ""
_TWINS = 256


@dataclass(slots=True, eq=False)
class Text:
    """A document or a bare text; `document` is the object itself, None for a bare text."""

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
        """`chunk:<digest of content, source and place>`, also with an id."""
        return self.recognised_by()[0]

    @property
    def document_ref(self) -> str:
        """`document:<id>`, else `document:<source>` with page, row or offset, else `document:<digest>`."""
        return variable_ref(RefKind.DOCUMENT, self.content, self._name())

    def root(self, reader: Operation, number: int = 1) -> Known:
        """A document without a known loader: another text is another document.

        A document without a name is named by the call that reads it, as the `number`-th of equal documents.
        """
        ref = variable_ref(RefKind.DOCUMENT, self.content)
        if name := self._name():
            return Known(make_ref(RefKind.DOCUMENT, f"{name}@{split_ref(ref)[1]}"), "")
        return Known(said(ref, reader.origin[33:], number), "")

    def recognised_by(self) -> list[str]:
        """Keys that recognise a copy: the content with source and place, and the content alone."""
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
        source = show(_USER.sub("", source), config(), _LONGEST)  # names are on spans whose contents are off
        return [source, *(f"{key}={self.metadata[key]}" for key in _PLACES if self.metadata.get(key) is not None)]


def text_of(value: Any) -> Text | None:
    """A Document or a bare text, None for other values."""
    if isinstance(value, str):
        return Text(value)
    content = getattr(value, "page_content", None)
    if not isinstance(content, str):
        return None
    metadata = cast(Mapping[str, Any], getattr(value, "metadata", None) or {})
    return Text(content, metadata, str(getattr(value, "id", None) or ""), value)


def texts_of(arguments: Mapping[str, Any]) -> list[Text] | None:
    """The documents of a call; None for an iterator, which only the library may consume."""
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


def owner_of(texts: Sequence[Text]) -> str:
    """The digest of the one user or tenant that the metadata of every text names, '' without one."""
    named = {next((str(text.metadata[key]) for key in _OWNERS if text.metadata.get(key)), "") for text in texts}
    owner = named.pop() if len(named) == 1 else ""
    return scope_id(user=owner) if owner else ""


@dataclass(frozen=True, slots=True)
class Known:
    """The version of a variable behind a document or text.

    `sure` is False for a match by content with several equal texts, or with a text of another trace. `origin` None is
    looked up at the read, '' is a root.
    """

    ref: str
    origin: str | None
    scope: str = ""
    sure: bool = True

    def read_by(self, operation: Operation, content: str, role: str = Role.OTHER, score: float | None = None) -> int:
        """Record the version as an input of `operation`."""
        if not self.sure:
            operation.mark(Incomplete.INFERRED)
        return operation.read(self.ref, role=role, content=content, origin=self.origin, scope=self.scope, score=score)


class KnownTexts:
    """The variables behind documents, by object identity or by content. Both tables are bounded."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        new_lock_after_fork(self)
        self._objects: OrderedDict[int, tuple[weakref.ref[object], Known]] = OrderedDict()
        self._contents: OrderedDict[tuple[str, str], list[Known]] = OrderedDict()  # by turn and what is said

    def learn(self, operation: Operation, text: Text, known: Known, *, as_object: bool = True) -> None:
        """Remember the variable behind a text that `operation` read or wrote, by content and by object."""
        turns = {_turn(operation), _ANYWHERE}
        with self._lock:
            if as_object and text.document is not None:
                self._objects[id(text.document)] = (weakref.ref(text.document), known)
            for key in ((turn, key) for key in text.recognised_by() for turn in turns):
                twins = [twin for twin in self._contents.pop(key, ()) if twin.origin and twin.ref != known.ref]
                self._contents[key] = [*twins, known][-_TWINS:]
            for table, most in ((self._objects, _ENTRIES), (self._contents, 2 * _ENTRIES)):  # in a turn and anywhere
                while len(table) > most:
                    table.popitem(last=False)

    def find_object(self, text: Text) -> Known | None:
        """The variable behind this object, None if the program has changed its content since."""
        reference, known = self._objects.get(id(text.document), (None, None))
        if known is None or reference is None or reference() is not text.document:
            return None
        said = split_ref(variable_ref(RefKind.DOCUMENT, text.content))[1]
        return known if known.origin or said in known.ref else None

    def find(self, text: Text, reader: Operation, *, nth: int = 0, anywhere: bool = False) -> Known | None:
        """The variable with the content of a text, written in the turn of `reader`.

        `anywhere`, or without a span around `reader`: a variable of any turn. `nth` counts the equal texts before this
        one in the same call.
        """
        for key in text.recognised_by():
            for turn in (_turn(reader), _ANYWHERE) if anywhere else (_turn(reader),):
                if twins := self._twins(turn, key):
                    chosen = twins[min(nth, len(twins) - 1)]
                    if not chosen.origin:  # another object, named by its own source
                        return text.root(reader, nth + 1)
                    return replace(chosen, sure=len(twins) == 1 and chosen.origin[:32] == reader.origin[:32])
        return None

    def find_in_store(self, text: Text, scope: str) -> Known | None:
        """The record of this scope with the content of a text."""
        for key in text.recognised_by():
            if twins := [twin for twin in self._twins(_ANYWHERE, key) if twin.scope == scope]:
                return replace(twins[0], sure=len(twins) == 1)
        return None

    def _twins(self, turn: str, key: str) -> list[Known]:
        with self._lock:
            return self._contents.get((turn, key), [])


def _turn(operation: Operation) -> str:
    """The trace of an operation, `_ANYWHERE` for an operation without a span around it."""
    return _ANYWHERE if operation.is_alone() else operation.origin[:32]


def read_all(operation: Operation, texts: Sequence[Text], known: Sequence[KnownTexts], roots: KnownTexts) -> list[int]:
    """Record the texts given to an operation: the variables behind them in the first table that has one, else documents
    without a known loader, which `roots` learns."""
    equal: dict[str, int] = {}
    indices: list[int] = []
    for text in texts:
        nth = equal[text.chunk] = equal.get(text.chunk, -1) + 1
        objects = (table.find_object(text) for table in known)
        copies = (table.find(text, operation, nth=nth) for table in known)
        found = next(filter(None, chain(objects, copies)), None) or text.root(operation, nth + 1)
        if not found.origin:
            roots.learn(operation, text, found)
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
