"""What the background processes tell the server: one line of JSON each time one has done something."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, cast

from memtrace_otel.model import Attributed
from memtrace_otel.semconv import ATTRIBUTION_SCOPE, Incomplete, OpKind
from memtrace_otel.sources import NewSpan

_MOST_CHARACTERS = 200
"""Of the name of a system or service; it comes from whoever sends spans."""


_NUMBERS = ("spans", "quarantined", "verdicts", "errors", "failed_sends", "damaged")


class Process(StrEnum):
    """The background processes, each named like the module that it runs."""

    DECODING = "decoding"
    ATTRIBUTING = "attributing"


class Seen(StrEnum):
    """What is counted of the spans that arrive, by system and service."""

    OPERATIONS = "operations"
    ANSWERS = "answers"
    EVALUATIONS = "evaluations"
    UNKNOWN_ORIGINS = "unknown_origins"
    LOST_SPANS = "lost_spans"


Pair = tuple[str, str]
"""System and service."""
By = tuple[Seen, str, str]
"""What, of which system, of which service."""


@dataclass(frozen=True, slots=True)
class Progress:
    """New spans and what is seen in them, requests set aside, new verdicts, attributions that broke,
    traces whose verdicts the receiver did not take.

    `attributed` are those of the verdicts that telemetry can name. `answering`: systems and services not told of before
    whose answers may be attributed. `damaged`: nothing was done, since a page of the file cannot be read.
    """

    spans: int = 0
    quarantined: int = 0
    verdicts: int = 0
    errors: int = 0
    attributed: tuple[Attributed, ...] = ()
    seen: Counter[By] = field(default_factory=Counter[By])
    failed_sends: int = 0
    answering: frozenset[Pair] = frozenset()
    damaged: int = 0

    def __bool__(self) -> bool:
        """Whether there is anything to tell."""
        return any(getattr(self, name) for name in (*_NUMBERS, "answering"))

    def line(self) -> str:
        """Return the line, without its end."""
        document = {name: getattr(self, name) for name in _NUMBERS}
        told = {"attributed": list(map(asdict, self.attributed)), "seen": [[*by, n] for by, n in self.seen.items()]}
        return json.dumps({**document, **told, "answering": sorted(self.answering)})

    @classmethod
    def read(cls, line: bytes) -> Progress:
        """Read a line of `line`."""
        document = cast("dict[str, Any]", json.loads(line))
        document["attributed"] = tuple(Attributed(**told) for told in document["attributed"])
        document["seen"] = Counter({(Seen(what), *pair): count for what, *pair, count in document["seen"]})
        document["answering"] = frozenset((system, service) for system, service in document["answering"])
        return cls(**document)


def pair_of(system: str, service: str) -> Pair:
    """Return the names of a system and a service as they are told."""
    return system[:_MOST_CHARACTERS], service[:_MOST_CHARACTERS]


def seen_in(spans: Iterable[NewSpan]) -> Counter[By]:
    """Count spans that are new to the store. Operations and answers are counted once, whatever they are made of."""
    seen: Counter[By] = Counter()
    for span in spans:
        fields = span.fields
        if span.instrumentation_scope == ATTRIBUTION_SCOPE or not (fields.kind or fields.evaluations):
            continue
        by = pair_of(fields.system, span.service)
        if fields.lost:
            seen[Seen.LOST_SPANS, *by] += fields.lost
            continue
        if fields.part:
            continue
        seen[Seen.OPERATIONS, *by] += 1
        seen[Seen.ANSWERS, *by] += fields.kind == OpKind.RESPOND
        seen[Seen.EVALUATIONS, *by] += bool(fields.evaluations)
        seen[Seen.UNKNOWN_ORIGINS, *by] += Incomplete.UNKNOWN_ORIGIN in fields.incomplete
    return +seen
