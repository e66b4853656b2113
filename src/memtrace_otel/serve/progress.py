"""What the background processes report to the server: one line of JSON each time a process has done something."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, cast

from memtrace_otel.model import Attributed, OperationSpan, has_evaluation
from memtrace_otel.semconv import ATTRIBUTION_SCOPE, LOST, Incomplete, OpKind

_CHARACTERS = 200
_NUMBERS = ("spans", "quarantined", "verdicts", "errors", "failed_sends", "damaged")


class Process(StrEnum):
    """The background processes, each named like the module that it runs."""

    DECODING = "decoding"
    ATTRIBUTING = "attributing"
    SHOWING = "showing"


class Seen(StrEnum):
    """What is counted of the spans that arrive, by system and service."""

    OPERATIONS = "operations"
    ANSWERS = "answers"
    EVALUATIONS = "evaluations"
    UNKNOWN_ORIGINS = "unknown_origins"
    LOST_SPANS = "lost_spans"


Pair = tuple[str, str]
"""System and service."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How many: new spans, quarantined requests, new verdicts, traces that were not attributed (errors), failed sends.

    `attributed`: new verdicts for the metrics. `seen`: new spans by (`Seen`, system, service). `answering`: systems and
    services with answers. `damaged`: nothing was done, since a page of the file cannot be read.
    """

    spans: int = 0
    quarantined: int = 0
    verdicts: int = 0
    errors: int = 0
    attributed: tuple[Attributed, ...] = ()
    seen: Counter[tuple[Seen, str, str]] = field(default_factory=Counter[tuple[Seen, str, str]])
    failed_sends: int = 0
    answering: frozenset[Pair] = frozenset()
    damaged: int = 0

    def __bool__(self) -> bool:
        """Whether there is anything to report."""
        return any(getattr(self, name) for name in (*_NUMBERS, "answering"))

    def line(self) -> str:
        """Return the line, without its end."""
        document = {name: getattr(self, name) for name in _NUMBERS}
        attributed, seen = list(map(asdict, self.attributed)), [[*by, n] for by, n in self.seen.items()]
        return json.dumps({**document, "attributed": attributed, "seen": seen, "answering": sorted(self.answering)})

    @classmethod
    def read(cls, line: bytes) -> Progress:
        """Read a line of `line`."""
        document = cast("dict[str, Any]", json.loads(line))
        document["attributed"] = tuple(Attributed(**fields) for fields in document["attributed"])
        document["seen"] = Counter({(Seen(what), *pair): count for what, *pair, count in document["seen"]})
        document["answering"] = frozenset((system, service) for system, service in document["answering"])
        return cls(**document)


def pair_of(system: str, service: str) -> Pair:
    """Return the names of a system and a service, cut: they come from whoever sends spans."""
    return system[:_CHARACTERS], service[:_CHARACTERS]


def seen_in(spans: Iterable[OperationSpan]) -> Counter[tuple[Seen, str, str]]:
    """Count spans that are new to the store. An operation is counted once, with all of its continuation spans."""
    seen: Counter[tuple[Seen, str, str]] = Counter()
    for span in spans:
        evaluates = has_evaluation(span)
        if span.instrumentation_scope == ATTRIBUTION_SCOPE or not (span.kind or evaluates):
            continue
        pair = pair_of(span.system, span.service)
        lost = span.attributes.get(LOST)
        if isinstance(lost, int) and lost > 0:
            seen[Seen.LOST_SPANS, *pair] += lost
        elif not span.part:
            seen[Seen.OPERATIONS, *pair] += 1
            seen[Seen.ANSWERS, *pair] += span.kind == OpKind.RESPOND
            seen[Seen.EVALUATIONS, *pair] += evaluates
            seen[Seen.UNKNOWN_ORIGINS, *pair] += Incomplete.UNKNOWN_ORIGIN in span.incomplete
    return +seen
