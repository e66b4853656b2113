"""From a database to verdicts: graph, failures, attribution, annotation, in that order."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from memtrace_otel.annotate import Annotation, AttributionMetrics, annotate
from memtrace_otel.attribution import attribute, find_failures, verdict_json
from memtrace_otel.graph import EvolutionGraph, build_graph, load_graph
from memtrace_otel.model import Verdict
from memtrace_otel.store import SqliteStore

Progress = Callable[[int, int], None]


class UnknownTraceError(LookupError):
    """The store does not hold these traces."""

    def __init__(self, *trace_ids: str) -> None:
        super().__init__(f"no such trace: {', '.join(trace_ids)}")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The verdicts on the failing answers of some traces, how long each took, and the graph they were found in."""

    graph: EvolutionGraph
    verdicts: tuple[Verdict, ...]
    seconds: tuple[float, ...]


def diagnose(
    store: SqliteStore, trace_ids: Collection[str] = (), *, progress: Progress = lambda done, total: None
) -> Diagnosis:
    """Attribute every failing answer of these traces (none given: of the whole store).

    `progress(done, total)` counts failures. Raises UnknownTraceError naming the trace ids that the store does not hold.
    """
    unknown = [trace_id for trace_id in trace_ids if not store.trace(trace_id)]
    if unknown:
        raise UnknownTraceError(*unknown)
    graph = load_graph(store, *trace_ids) if len(trace_ids) == 1 else build_graph(store.spans())
    failures = [failure for failure in find_failures(graph) if not trace_ids or failure.trace_id in trace_ids]
    verdicts: list[Verdict] = []
    seconds: list[float] = []
    for failure in failures:
        progress(len(verdicts), len(failures))
        started = time.perf_counter()
        verdicts.append(attribute(graph, failure))
        seconds.append(time.perf_counter() - started)
    progress(len(failures), len(failures))
    return Diagnosis(graph, tuple(verdicts), tuple(seconds))


def record(store: SqliteStore, diagnosis: Diagnosis, *, started: int | None = None) -> list[Annotation]:
    """Write the verdicts to the store, count the new ones, and return them under their final ids; `deliver` sends them.

    A verdict that is there already adds nothing; another one on the same answer replaces it. `started` is when the
    attribution began (ns since the epoch, now by default).
    """
    annotations = annotate(diagnosis.verdicts, store, started=started)
    metrics = AttributionMetrics()
    for annotation, seconds in zip(annotations, diagnosis.seconds, strict=True):
        verdict = annotation.verdict
        document = json.dumps(verdict_json(verdict), ensure_ascii=False)
        store.save_verdict(verdict.failure.answer_span.origin, verdict.attribution_id, document)
        if annotation.new:
            metrics.attributed(verdict, seconds)
    return annotations
