"""From any source to doubts about the expected answers of its judged answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from memtrace_otel.attribution import find_failures
from memtrace_otel.attribution.audit import Doubt, can_audit, doubt, told_elsewhere
from memtrace_otel.attribution.evidence import Evidence
from memtrace_otel.attribution.lineage import lineage_of
from memtrace_otel.graph import EvolutionGraph, load_everywhere, load_graphs
from memtrace_otel.model import judged_traces
from memtrace_otel.pipeline.diagnose import TOGETHER
from memtrace_otel.semconv import OpKind, Role
from memtrace_otel.sources import TraceSource

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Audit:
    """How many answers have an expected answer, how many of these words can compare, and the doubts, surest first."""

    judged: int
    compared: int
    doubts: tuple[Doubt, ...]


def audit(source: TraceSource, *, since: int = 0, progress: Progress = lambda done, total: None) -> Audit:
    """Compare the expected answer of every judged answer with the messages of its memory. Raises SourceError.

    `since`: judgements that started at this time (ns) or later. `progress(done, total)` counts traces.
    """
    judges = source.spans(kinds=(OpKind.JUDGE,), since=since)
    expecting = [judge for judge in judges if any(v.role == Role.EXPECTED for v in judge.inputs)]
    traces = list(dict.fromkeys(trace for judge in expecting for trace in sorted(judged_traces(judge))))
    judged, compared, done = 0, 0, 0
    found: list[Doubt] = []
    for first in range(0, len(traces), TOGETHER):
        with source.session(cases=TOGETHER) as reader:
            for together, graph in load_graphs(reader, traces[first : first + TOGETHER]):
                for evidence in _evidences(graph, together):
                    judged += 1
                    if can_audit(evidence):
                        compared += 1
                        found += filter(None, (doubt(evidence),))
                done += len(together)
                progress(done, len(traces))
    found = _placed(source, found)
    return Audit(judged, compared, tuple(sorted(found, key=lambda one: (-one.sure, one.failure.time_order))))


def _evidences(graph: EvolutionGraph, trace_ids: list[str]) -> Iterator[Evidence]:
    for failure in find_failures(graph, passing=True):
        if failure.trace_id in trace_ids and failure.expected:
            yield Evidence(lineage_of(graph), failure)


def _placed(source: TraceSource, doubts: list[Doubt]) -> list[Doubt]:
    """Return the doubts, some of them about another owner: the messages of every memory are compared."""
    if not doubts:
        return []
    with source.session(cases=TOGETHER) as reader:
        graph = load_everywhere(reader, [one.failure.trace_id for one in doubts])
    lineage = lineage_of(graph)
    return [told_elsewhere(one, Evidence(lineage, one.failure, everywhere=True)) for one in doubts]
