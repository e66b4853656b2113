"""Measure every memory of a graph, and compare the measures with their thresholds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from opentelemetry.metrics import MeterProvider, get_meter

from memtrace_otel import semconv, settings
from memtrace_otel.graph import EvolutionGraph
from memtrace_otel.health.measures import MEASURES, Measure
from memtrace_otel.health.memory import Example, Memory
from memtrace_otel.semconv import OpKind
from memtrace_otel.version import __version__

_OF_MEMORIES = frozenset({OpKind.INGEST, OpKind.CREATE, OpKind.UPDATE, OpKind.CONSOLIDATE, OpKind.RETRIEVE})
_UNREAD_DAYS = "unread_days"
_EXAMPLES = 3
_LEAST = 3
"""Operations below which a share says nothing."""
_GAUGE = "Share of faulty operations minus its threshold, of the worst memory."


class ThresholdError(ValueError):
    """MEMTRACE_HEALTH_THRESHOLDS has an item that names no measure or has no number."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One measure of one memory: `count` of `total` operations have the fault; `raised`: more than the threshold.

    A share of one or two operations is raised by a threshold of 0 only.
    """

    scope: str
    system: str
    measure: str
    title: str
    count: int
    total: int
    share: float
    threshold: float
    raised: bool
    advice: str
    examples: tuple[Example, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the finding with its examples as objects."""
        return {**asdict(self), "examples": [example._asdict() for example in self.examples]}


def read_thresholds() -> Mapping[str, float]:
    """Return the thresholds by measure, and `unread_days`. Raises ThresholdError."""
    found = {measure.name: measure.threshold for measure in MEASURES} | {_UNREAD_DAYS: 7.0}
    for item in filter(None, (part.strip() for part in settings.HEALTH_THRESHOLDS.read().split(","))):
        name, _, number = item.partition("=")
        try:
            known, found[name.strip()] = name.strip() in found, (value := float(number))
        except ValueError:
            known, value = False, 0.0
        if not known or not 0 <= value < math.inf:
            names = ", ".join([*(measure.name for measure in MEASURES), _UNREAD_DAYS])
            raise ThresholdError(
                f"{settings.HEALTH_THRESHOLDS.env}: {item!r} is not NAME=NUMBER, 0 or more, of: {names}"
            )
    return found


def examine(graph: EvolutionGraph, since: int, until: int, thresholds: Mapping[str, float]) -> Iterator[Finding]:
    """Yield every measure of every memory with operations between `since` and `until` (ns).

    Scopes without an id are left out. A measure without any operation that could have the fault is left out.
    """
    pairs = {
        (graph.scope_of(span.origin), span.system): None
        for span in graph.operations()
        if span.kind in _OF_MEMORIES and since <= span.start <= until
    }
    for scope, system in sorted(pairs):
        memory = Memory(graph, scope, system, since, until, thresholds[_UNREAD_DAYS])
        for measure in MEASURES if scope else ():
            if (finding := _finding(memory, measure, thresholds[measure.name])) is not None:
                yield finding


def record_health(findings: Iterable[Finding], provider: MeterProvider | None = None) -> None:
    """Record `memtrace.health.excess`: share minus threshold of the worst memory of each system, by measure.

    Above 0 only for a finding that is raised.
    """
    worst: dict[tuple[str, str], float] = {}
    for found in findings:
        key = found.measure, found.system
        excess = found.share - found.threshold
        worst[key] = max(excess if found.raised else min(excess, 0.0), worst.get(key, -math.inf))
    meter = get_meter(semconv.SCOPE_PREFIX, __version__, meter_provider=provider)
    gauge = meter.create_gauge(semconv.METRIC_HEALTH, "1", _GAUGE)
    for (measure, system), excess in worst.items():
        gauge.set(excess, {semconv.HEALTH_MEASURE: measure, semconv.SYSTEM: system})


def _finding(memory: Memory, measure: Measure, threshold: float) -> Finding | None:
    found, total = measure.measure(memory)
    if not total:
        return None
    share = len(found) / total
    return Finding(
        memory.scope,
        memory.system,
        measure.name,
        measure.title,
        len(found),
        total,
        share,
        threshold,
        share > threshold and (not threshold or total >= _LEAST),
        measure.advice,
        tuple(found[:_EXAMPLES]),
    )
