"""The evolution of one fact as a story: moments in time, and how information flowed between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from memtrace_otel.report.text import Mark, Paragraph, Run


class Stage(StrEnum):
    """Where in the life of a fact a moment lies, in causal order."""

    MESSAGE = "message"
    PROCESSING = "processing"
    """Extraction, decision or another step between message and record."""
    RECORD = "record"
    QUESTION = "question"
    SEARCH = "search"
    ANSWER = "answer"
    JUDGEMENT = "judgement"


class FlowKind(StrEnum):
    """How one moment leads to another."""

    FED = "fed"
    SUPERSEDES = "supersedes"
    """From a record version to the one that replaced it."""
    READ = "read"
    MISSED = "missed"
    """Should have flowed, did not."""
    SAME_TURN = "same-turn"
    """Happened in one trace; the trace does not tell that one caused the other."""


UNRECORDED = "unrecorded"
"""Trace id of a moment that no recorded trace has."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened to the fact. `time` in nanoseconds since the epoch, 0 when unknown.

    `key` is unique within an evolution; `row` tells the versions of one record from those of another (0 elsewhere).
    `flag` says what went wrong, on the decisive moment only. `ghost` marks what the trace does not hold.
    """

    key: str
    stage: Stage
    title: str
    paragraphs: tuple[Paragraph, ...]
    time: int
    trace_id: str
    origin: str = ""
    process: str = ""
    row: int = 0
    badge: str = ""
    flag: str = ""
    superseded: bool = False
    tombstone: bool = False
    ghost: bool = False

    @property
    def text(self) -> str:
        """Everything the moment says, on one line per paragraph."""
        return "\n".join(" ".join(run.text for run in paragraph) for paragraph in self.paragraphs)


@dataclass(frozen=True, slots=True)
class Flow:
    """Information went (or should have gone) from one moment to another; `label` may be ''."""

    source: str
    target: str
    kind: FlowKind = FlowKind.FED
    label: str = ""


@dataclass(frozen=True, slots=True)
class Evolution:
    """Moments in time order, and the flows between them. `records` names the record of each row."""

    moments: tuple[Moment, ...]
    flows: tuple[Flow, ...]
    records: tuple[str, ...] = ()


@dataclass(slots=True)
class Draft:
    """An evolution in the making: each moment and each flow once."""

    moments: dict[str, Moment] = field(default_factory=dict[str, Moment])
    flows: dict[tuple[str, str], Flow] = field(default_factory=dict[tuple[str, str], Flow])
    records: list[str] = field(default_factory=list[str])

    def add(self, moment: Moment) -> str:
        """Add the moment unless it is there; return its key."""
        self.moments.setdefault(moment.key, moment)
        return moment.key

    def flow(self, source: str, target: str, kind: FlowKind = FlowKind.FED, label: str = "") -> None:
        """Join two moments unless they are joined."""
        if source != target:
            self.flows.setdefault((source, target), Flow(source, target, kind, label))

    def finish(self) -> Evolution:
        """Return what was drafted, in time order; equal times in causal order."""
        order = list(Stage)
        moments = sorted(self.moments.values(), key=lambda m: (m.time, order.index(m.stage), m.row))
        return Evolution(tuple(moments), tuple(self.flows.values()), tuple(self.records))


def content_or_note(content: str, mark: Mark = Mark.PLAIN) -> Paragraph:
    """Return the content as a paragraph, or the note that it was not captured."""
    return (Run(content, mark),) if content.strip() else (Run("content not captured", Mark.NOTE),)
