"""A memory scope as its pages show it: records at a time, changes between two times, the life of a record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from threading import Lock

from memtrace_otel.graph import Change, EvolutionGraph, VersionKey, build_graph, load_scope
from memtrace_otel.graph.keys import RECORD_KINDS
from memtrace_otel.model import OperationSpan, ref_kind
from memtrace_otel.model.printable import one_line, printable
from memtrace_otel.report.summary import process_of
from memtrace_otel.report.text import Paragraph, Run, changes
from memtrace_otel.report.times import day_and_clock
from memtrace_otel.semconv import OpKind, RefKind, Role
from memtrace_otel.web.store import PageStore

_TEXT = 2000
_MOST_READERS = 100
_GRAPHS = 16
_WHOLE_SPANS = 500
_MOST_TRACES = 500
_COMPARED = frozenset({Role.CANDIDATE, Role.HISTORY, Role.HIT, Role.PREVIOUS, Role.PROMPT})


@dataclass(frozen=True, slots=True)
class Event:
    """An operation as a link: origin, name, time in words, process; `answers` when it gave an answer."""

    origin: str
    name: str
    when: str
    process: str
    answers: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """A record version that a memory held."""

    ref: str
    content: str
    when: str
    readers: int


@dataclass(frozen=True, slots=True)
class Changed:
    """A change between two times, with the words that differ."""

    kind: str
    ref: str
    words: Paragraph
    when: str
    by: Event | None


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a record: what changed, the operation, the messages behind it, and the operations that read it."""

    words: Paragraph
    deleted: bool
    when: str
    by: Event | None
    sources: tuple[Event, ...]
    readers: tuple[Event, ...]
    more_readers: int


class Memories:
    """Graphs of memory scopes, the last few kept until the file has new spans.

    Of a scope with more than `_WHOLE_SPANS` spans only the writes are read: a page must not wait for all searches of a
    large memory. Records that no recorded operation wrote are missing there (`partial`).
    """

    def __init__(self, store: PageStore) -> None:
        self._lock = Lock()

        @lru_cache(_GRAPHS)
        def load(scope: str, spans: int) -> Memory:
            if not store.has_more_spans(scope, _WHOLE_SPANS):
                with store.session() as reader:
                    return Memory(load_scope(reader, scope), scope)
            writes = [
                replace(s, inputs=tuple(v for v in s.inputs if v.role == Role.PREVIOUS)) for s in store.writes(scope)
            ]
            return Memory(build_graph(writes, whole=False), scope, partial=True)

        self._load = load
        self._store = store

    def get(self, scope: str) -> Memory:
        """Return a memory as it is now; an empty one when no span has the scope. Raises SourceError."""
        with self._lock:  # two requests load a large memory once
            return self._load(scope, self._store.spans_stored())

    def around(self, scope: str, ref: str) -> Memory:
        """Return the part of a memory around one record: the traces that wrote or read it. Raises SourceError."""
        with self._store.session() as reader:
            traces = dict.fromkeys(reader.writers(ref)[:_MOST_TRACES])
            spans = [span for trace_id in traces for span in reader.trace(trace_id)]
            writers = [span.origin for span in spans if any(output.ref == ref for output in span.outputs)]
            readers = [span for origin in writers for span in reader.readers(origin)[:_MOST_READERS]]
            spans += [
                span
                for trace_id in {one.trace_id for one in readers} - traces.keys()
                for span in reader.trace(trace_id)
            ]
        if not spans:  # no recorded write
            return self.get(scope)
        return Memory(build_graph(spans, whole=False), scope, partial=True)


class Memory:
    """One memory scope. Moments are numbered: moment 0 is before the first change, the last one is now."""

    def __init__(self, graph: EvolutionGraph, scope: str, *, partial: bool = False) -> None:
        self._graph, self._scope, self.partial = graph, scope, partial
        versions = [v for ref in graph.refs() if ref_kind(ref) in RECORD_KINDS for v in graph.history(ref, scope)]
        times = sorted({graph.time_of(version) for version in versions} - {0})
        self.moments = [max(0, times[0] - 1) if times else 0, *times]

    def when(self, moment: int) -> str:
        """Return the time of a moment in words."""
        return day_and_clock(self.moments[moment]) if moment else "before the first change"

    def records(self, moment: int) -> list[Record]:
        """Return the records held at a moment, by ref."""
        graph = self._graph
        return [
            Record(
                version.ref,
                printable(graph.content(version))[:_TEXT],
                day_and_clock(graph.time_of(version)),
                len(graph.readers(version)),
            )
            for version in graph.state(self._scope, self.moments[moment])
        ]

    def changes(self, since: int, until: int) -> list[Changed]:
        """Return what the memory learnt, changed and forgot between two moments."""
        found = self._graph.diff(self._scope, self.moments[since], self.moments[until])
        return [self._changed(change) for change in found]

    def life(self, ref: str) -> list[Version]:
        """Return the versions of a record, oldest first."""
        graph, found, before = self._graph, list[Version](), ""
        for version in graph.history(ref, self._scope):
            content = printable(graph.content(version))
            readers = graph.readers(version)
            found.append(
                Version(
                    words=_words(before, content),
                    deleted=graph.is_tombstone(version),
                    when=day_and_clock(graph.time_of(version)),
                    by=self._event(version.origin),
                    sources=tuple(self._messages(version)),
                    readers=tuple(
                        event
                        for read in readers[:_MOST_READERS]
                        if (event := self._event(read.operation.origin, f"as {read.role}"))
                    ),
                    more_readers=max(0, len(readers) - _MOST_READERS),
                )
            )
            before = content
        return found

    def _changed(self, change: Change) -> Changed:
        graph = self._graph
        before = graph.content(change.before) if change.before else ""
        after = "" if graph.is_tombstone(change.after) else graph.content(change.after)
        by = self._event(change.operation.origin) if change.operation else None
        words = _words(printable(before), printable(after))
        return Changed(str(change.kind), change.ref, words, day_and_clock(graph.time_of(change.after)), by)

    def _messages(self, version: VersionKey) -> list[Event]:
        """Return the messages that a version was made from, each with the first operation that read it.

        What the operations only compared with is left out: earlier records, the history of the conversation.
        """
        graph, waiting, seen = self._graph, [version], {version}
        while waiting:
            fresh = set(graph.sources(waiting.pop(), without=_COMPARED)) - seen
            seen |= fresh
            waiting += fresh
        found: list[Event] = []
        for message in sorted((v for v in seen if ref_kind(v.ref) == RefKind.MESSAGE), key=graph.time_of):
            reads = graph.readers(message)
            text = one_line(graph.content(message), 400) or one_line(message.ref)
            event = self._event(reads[0].operation.origin, text) if reads else None
            found.append(event or Event("", "", "", "", note=text))
        return found

    def _event(self, origin: str, note: str = "") -> Event | None:
        span: OperationSpan | None = self._graph.operation(origin) if origin else None
        if span is None:
            return None
        answers = span.kind == OpKind.RESPOND
        return Event(span.origin, one_line(span.name), day_and_clock(span.start), process_of(span), answers, note)


def _words(before: str, after: str) -> Paragraph:
    """Return the difference of two texts by words, each run cut in its middle."""
    runs = _differ(before, after) if before else (Run(after),)
    return tuple(replace(run, text=_cut(run.text)) for run in runs if run.text)


def _differ(before: str, after: str) -> Paragraph:
    """Compare what lies between the common first and last words: long texts are compared only there."""
    old, new = before.split(), after.split()
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    middle = changes(" ".join(old[head : len(old) - tail]), " ".join(new[head : len(new) - tail]))
    return (Run(" ".join(new[:head])), *middle, Run(" ".join(new[len(new) - tail :])))


def _common(old: list[str], new: list[str]) -> int:
    """Return how many words at the start are equal."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(old), len(new)))


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[: _TEXT // 2]} … {text[-_TEXT // 2 :]}"
