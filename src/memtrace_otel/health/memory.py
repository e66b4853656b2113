"""One memory as the measures see it: the operations and the records of a scope and a system."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from memtrace_otel.attribution.dates import Period, periods, without_periods
from memtrace_otel.attribution.lineage import without_stamp
from memtrace_otel.attribution.text import numbers
from memtrace_otel.attribution.text import words as words_in_order
from memtrace_otel.attribution.vocabulary import STOP_WORDS
from memtrace_otel.graph import EvolutionGraph, OperationKey, Read, VersionKey
from memtrace_otel.graph.keys import RECORD_KINDS
from memtrace_otel.model import OperationSpan, ref_kind
from memtrace_otel.semconv import WRITING_ACTIONS, Action, OpKind, Role

_DIGIT = re.compile(r"\d")
_SEPARATOR = re.compile(r"[.,:]")
_CHANGES = WRITING_ACTIONS - {Action.DELETE}
_RECALLING = frozenset({(OpKind.RETRIEVE, Role.HIT), (OpKind.RESPOND, Role.HIT), (OpKind.RESPOND, Role.CONTEXT)})
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
        return [span for span in found if not self.is_of_write(span)]

    @cached_property
    def tellings(self) -> list[OperationSpan]:
        """The outermost operations that took in messages with content."""
        found = [span for span in self.spans if span.kind == OpKind.INGEST and self.told(span)]
        return [span for span in found if not self.is_of_write(span)]

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
        last = {version.ref: version for _, version in self._timed}
        return [version for version in last.values() if not self.graph.is_tombstone(version)]

    @cached_property
    def words_of(self) -> dict[VersionKey, frozenset[str]]:
        """The words of each record that the memory ever held, in any version."""
        return {version: words(self.graph.content(version)) for version in self._all_written}

    @cached_property
    def _timed(self) -> list[tuple[int, VersionKey]]:
        """Every version of the records that the memory ever held, with its time; of each record in order."""
        refs = dict.fromkeys(version.ref for version in self._all_written)
        found = (version for ref in refs for version in self.graph.history(ref, self.scope))
        return [(self.graph.time_of(version), version) for version in found]

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

    def is_of_write(self, span: OperationSpan) -> bool:
        """Whether an operation is within another one that takes in messages."""
        return any(outer.kind == OpKind.INGEST for outer in self.around(span))

    def read(self, span: OperationSpan, *roles: Role) -> list[Read]:
        """The inputs of an operation in these roles."""
        return [read for read in self.graph.inputs(span.origin) if read.role in roles]

    def texts(self, span: OperationSpan, role: Role) -> list[str]:
        """The known contents of the inputs in a role."""
        return [text for read in self.read(span, role) if (text := self.graph.content(read.version))]

    def told(self, span: OperationSpan) -> str:
        """The messages that an operation took in."""
        return "\n".join(self.texts(span, Role.MESSAGE))

    def told_values(self, span: OperationSpan) -> Values:
        """The values of the messages that an operation took in, without time stamps."""
        return values("\n".join(map(without_stamp, self.texts(span, Role.MESSAGE))))

    def question(self, span: OperationSpan) -> str:
        """The question of a search, `?` for one without a known text, '' without a question."""
        return next(iter(self.texts(span, Role.QUERY)), "?" if self.read(span, Role.QUERY) else "")

    def hits(self, search: OperationSpan) -> list[VersionKey]:
        """The records that a search returned."""
        return [read.version for read in self.read(search, Role.HIT)]

    def recalled(self, version: VersionKey) -> bool:
        """Whether a search outside of writes returned the version, or an answer had the version."""
        reads = [(read, self.graph.operation(read.operation.origin)) for read in self.graph.readers(version)]
        return any(span and (span.kind, read.role) in _RECALLING and not self.is_of_write(span) for read, span in reads)

    def live_at(self, time: int) -> list[VersionKey]:
        """The newest version of each record that the memory held at a time."""
        last = {version.ref: version for written, version in self._timed if written <= time}
        return [version for version in last.values() if not self.graph.is_tombstone(version)]

    def rare(self, asked: frozenset[str]) -> frozenset[str]:
        """The words of a question that few records have, without stop words."""
        most = max(1, int(_RARE * len(self.words_of)))
        long = (word for word in asked - STOP_WORDS if len(word) >= _SHORT)
        counts = {word: sum(word in known for known in self.words_of.values()) for word in long}
        return frozenset(word for word, count in counts.items() if 0 < count <= most)

    def writer(self, version: VersionKey) -> str:
        """The origin of the operation that wrote a version, '' if unknown."""
        producer: OperationKey | None = self.graph.producer(version)
        return producer.origin if producer else ""


def words(text: str) -> frozenset[str]:
    """The normalised words of a text; of scripts without spaces, the pairs of characters."""
    return frozenset(words_in_order(text))


@dataclass(frozen=True, slots=True)
class Values:
    """What a text names with digits: numbers, amounts and times of day, and the dates."""

    numbers: frozenset[float]
    dates: tuple[Period, ...]

    def kept(self, text: str) -> int:
        """Return how many of the values a text names, in digits or words."""
        named, dates = _as_numbers(numbers(text)), periods(text)
        return len(self.numbers & named) + sum(any(date.same(other) for other in dates) for date in self.dates)

    def __len__(self) -> int:
        return len(self.numbers) + len(self.dates)


def values(text: str) -> Values:
    """The values of a text. Relative dates ("in 5 days") and numbers in words are no values."""
    rest = without_periods(text)
    return Values(_as_numbers(numbers(rest) - numbers(_DIGIT.sub("", rest))), tuple(dict.fromkeys(periods(text))))


def _as_numbers(texts: Iterable[str]) -> frozenset[float]:
    """Return numbers, the time 9:40 as 9.4: some write 9.40."""
    parts = (_SEPARATOR.split(text) for text in texts)
    return frozenset(float(f"{whole}.{''.join(fraction)}") for whole, *fraction in parts)
