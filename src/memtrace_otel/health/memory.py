"""One memory as the measures see it: the operations and the records of a scope and a system."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from memtrace_otel.graph import EvolutionGraph, OperationKey, Read, VersionKey
from memtrace_otel.graph.keys import RECORD_KINDS
from memtrace_otel.model import OperationSpan, ref_kind
from memtrace_otel.semconv import WRITING_ACTIONS, Action, OpKind, Role

_WORD = re.compile(r"[^\W_]+(?:[.,:'-][^\W_]+)*")
_CHANGES = WRITING_ACTIONS - {Action.DELETE}
_RECALLING = frozenset({Role.HIT, Role.CONTEXT, Role.CANDIDATE})
_RARE = 0.1
_SHORT = 4
"""Characters of a word that may be rare."""


class Example(NamedTuple):
    """One operation with the fault, and the text that shows the fault."""

    operation: str
    """Origin of the operation."""
    text: str


@dataclass(frozen=True)
class Memory:
    """The memory of `scope` in `system`. Times are ns; `since` and `until` bound the measured operations."""

    graph: EvolutionGraph
    scope: str
    system: str
    since: int
    until: int
    unread_days: float

    @cached_property
    def spans(self) -> list[OperationSpan]:
        """The measured operations in time order."""
        found = self.graph.operations(scope=self.scope)
        return [span for span in found if span.system == self.system and self.since <= span.start <= self.until]

    @cached_property
    def searches(self) -> list[OperationSpan]:
        """The searches for a question, without the searches of a write."""
        found = [span for span in self.spans if span.kind == OpKind.RETRIEVE and self.question(span)]
        return [span for span in found if not any(outer.kind == OpKind.INGEST for outer in self.around(span))]

    @cached_property
    def tellings(self) -> list[OperationSpan]:
        """The outermost operations that took in messages with content."""
        found = [span for span in self.spans if span.kind == OpKind.INGEST and self.told(span)]
        return [span for span in found if all(outer.kind != OpKind.INGEST for outer in self.around(span))]

    @cached_property
    def written(self) -> list[VersionKey]:
        """The versions of records that the measured operations wrote, in time order, without tombstones."""
        found = [version for span in self.spans for version in self.writes(span)]
        return list(dict.fromkeys(found))

    @cached_property
    def updates(self) -> list[tuple[VersionKey, VersionKey]]:
        """(version, the version before) of each record that a measured operation changed."""
        made = set(self.written)
        pairs = [
            pair
            for ref in dict.fromkeys(version.ref for version in self.written)
            for history in [self.graph.history(ref, self.scope)]
            for pair in zip(history[1:], history, strict=False)
        ]
        return [(new, old) for new, old in pairs if new in made and not self.graph.is_tombstone(old)]

    @cached_property
    def held(self) -> list[VersionKey]:
        """The records that the memory holds at the end, in their last version."""
        last: dict[str, VersionKey] = {}
        for version in self._all_written:
            last[version.ref] = version
        found = (self.graph.history(ref, self.scope) for ref in last)
        return [history[-1] for history in found if history and not self.graph.is_tombstone(history[-1])]

    @cached_property
    def words_of(self) -> dict[VersionKey, frozenset[str]]:
        """The words of each record that the memory ever held, in any version."""
        return {version: words(self.graph.content(version)) for version in self._all_written}

    @cached_property
    def _all_written(self) -> list[VersionKey]:
        spans = (span for span in self.graph.operations(scope=self.scope) if span.system == self.system)
        return list(dict.fromkeys(version for span in spans for version in self.writes(span)))

    def writes(self, span: OperationSpan) -> Iterator[VersionKey]:
        """The versions of records that an operation produced itself, without tombstones."""
        for output in span.outputs:
            if output.action in _CHANGES and ref_kind(output.ref) in RECORD_KINDS:
                yield self.graph.version(output.ref, span.origin)

    def below(self, span: OperationSpan) -> Iterator[OperationSpan]:
        """An operation and all operations inside."""
        yield span
        for inner in self.graph.enclosed(span.origin):
            yield from self.below(inner)

    def around(self, span: OperationSpan) -> Iterator[OperationSpan]:
        """The operations around an operation, innermost first."""
        outer = self.graph.enclosing(span.origin)
        while outer is not None:
            yield outer
            outer = self.graph.enclosing(outer.origin)

    def read(self, span: OperationSpan, *roles: Role) -> list[Read]:
        """The inputs of an operation in these roles."""
        return [read for read in self.graph.inputs(span.origin) if read.role in roles]

    def texts(self, span: OperationSpan, role: Role) -> list[str]:
        """The known contents of the inputs in a role."""
        return [text for read in self.read(span, role) if (text := self.graph.content(read.version))]

    def told(self, span: OperationSpan) -> str:
        """The messages that an operation took in."""
        return "\n".join(self.texts(span, Role.MESSAGE))

    def question(self, span: OperationSpan) -> str:
        """The question of a search, `?` for one without a known text, '' without a question."""
        return next(iter(self.texts(span, Role.QUERY)), "?" if self.read(span, Role.QUERY) else "")

    def hits(self, search: OperationSpan) -> list[VersionKey]:
        """The records that a search returned."""
        return [read.version for read in self.read(search, Role.HIT)]

    def recalled(self, version: VersionKey) -> bool:
        """Whether a search returned the version, or an answer had the version."""
        return any(read.role in _RECALLING for read in self.graph.readers(version))

    def live_at(self, time: int) -> list[VersionKey]:
        """The newest version of each record at a time, also of records that were deleted before."""
        last = {version.ref: version for version in self._all_written if self.graph.time_of(version) <= time}
        return list(last.values())

    def rare(self, asked: frozenset[str]) -> frozenset[str]:
        """The words of a question that few records have."""
        most = max(1, int(_RARE * len(self.words_of)))
        counts = {word: sum(word in known for known in self.words_of.values()) for word in asked if len(word) >= _SHORT}
        return frozenset(word for word, count in counts.items() if 0 < count <= most)

    def writer(self, version: VersionKey) -> str:
        """The origin of the operation that wrote a version, '' if unknown."""
        producer: OperationKey | None = self.graph.producer(version)
        return producer.origin if producer else ""


def words(text: str) -> frozenset[str]:
    """The words of a text in lower case."""
    return frozenset(word.lower() for word in _WORD.findall(text))


def values(text: str) -> frozenset[str]:
    """The words of a text with a digit: amounts, dates, times, numbers."""
    return frozenset(word for word in words(text) if any(map(str.isdigit, word)))
