"""From a database to verdicts: graph, failures, attribution, annotation, in that order."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from memtrace_otel.annotate import Delivery, annotate, deliver
from memtrace_otel.attribution import attribute, find_failures, verdict_json
from memtrace_otel.graph import EvolutionGraph, build_graph, load_graph
from memtrace_otel.model import Verdict
from memtrace_otel.store import SqliteStore

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The verdicts on the failing answers of some traces, and the graph they were found in."""

    graph: EvolutionGraph
    verdicts: tuple[Verdict, ...]


def diagnose(
    store: SqliteStore, trace_ids: Collection[str] = (), *, progress: Progress = lambda done, total: None
) -> Diagnosis:
    """Attribute every failing answer of these traces (none given: of the whole store).

    `progress(done, total)` counts failures. Raises LookupError naming the trace ids that the store does not hold.
    """
    unknown = [trace_id for trace_id in trace_ids if not store.trace(trace_id)]
    if unknown:
        raise LookupError(f"no such trace: {', '.join(unknown)}")
    graph = load_graph(store, *trace_ids) if len(trace_ids) == 1 else build_graph(store.spans())
    failures = [failure for failure in find_failures(graph) if not trace_ids or failure.trace_id in trace_ids]
    verdicts: list[Verdict] = []
    for failure in failures:
        progress(len(verdicts), len(failures))
        verdicts.append(attribute(graph, failure))
    progress(len(failures), len(failures))
    return Diagnosis(graph, tuple(verdicts))


def record(store: SqliteStore, diagnosis: Diagnosis, *, started: int | None = None) -> Delivery:
    """Write the verdicts to the store and, where OTEL_EXPORTER_OTLP_ENDPOINT says so, to the user's backend.

    What was written or sent before is not written or sent again. Raises SendError when the backend refuses; the store
    then holds the verdicts, and the next call sends them.
    """
    annotations = annotate(diagnosis.verdicts, store, started=time.time_ns() if started is None else started)
    for annotation in annotations:
        verdict = annotation.verdict
        document = json.dumps(verdict_json(verdict), ensure_ascii=False)
        store.save_verdict(verdict.failure.answer_span.origin, verdict.attribution_id, document)
    return deliver(annotations, store)
