"""From a database or a tracing backend to verdicts: graph, failures, attribution, annotation, in that order."""

from __future__ import annotations

import json
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from memtrace_otel.annotate import Annotation, AnnotationStore, AttributionMetrics, annotate
from memtrace_otel.attribution import attribute, find_failures, read_verdict, verdict_json
from memtrace_otel.graph import EvolutionGraph, load_graph, load_graphs
from memtrace_otel.model import OperationSpan, Verdict, is_origin, judged_traces, make_origin, split_origin
from memtrace_otel.semconv import ATTRIBUTION_SCOPE, FailureType, Incomplete
from memtrace_otel.sources import DamagedError, RemoteSource, SqliteStore, StoredVerdict
from memtrace_otel.sources.ahead import TOGETHER, read_ahead

_logger = logging.getLogger(__name__)
_ABSENT = "absent"
"""Beside what a verdict says in the database: operations that it names and that were not there when it was made."""
Progress = Callable[[int, int], None]


class UnknownTraceError(LookupError):
    """The source does not hold these traces."""

    def __init__(self, *trace_ids: str) -> None:
        super().__init__(f"no such trace: {', '.join(trace_ids)}")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The verdicts on the failing answers from the same memories, how long each took, and the graph of these.

    `outdated` are the ids of the attributions that the store holds on answers that no longer fail. `partial` says that
    a backend was read, and not all of it could be.
    """

    graph: EvolutionGraph
    verdicts: tuple[Verdict, ...]
    seconds: tuple[float, ...]
    outdated: tuple[str, ...] = ()
    partial: bool = False

    def only(self, wanted: Callable[[Verdict], bool]) -> Diagnosis:
        """Return it with those verdicts only that are wanted; the others are not outdated."""
        pairs = [pair for pair in zip(self.verdicts, self.seconds, strict=True) if wanted(pair[0])]
        verdicts, seconds = (tuple(each) for each in zip(*pairs, strict=True)) if pairs else ((), ())
        return replace(self, verdicts=verdicts, seconds=seconds)


def diagnose(
    store: SqliteStore, trace_ids: Collection[str] = (), *, progress: Progress = lambda done, total: None
) -> Iterator[Diagnosis]:
    """Attribute every failing answer of these traces (none given: of the whole store), one graph after the other: what
    is needed of a large store at a time is the memories of one answer. Of the whole store, traces whose memory has a
    damaged span are left out with a warning.

    `progress(done, total)` counts traces. Raises UnknownTraceError naming the trace ids that the store does not hold.
    """
    if unknown := [trace_id for trace_id in trace_ids if not store.trace(trace_id)]:
        raise UnknownTraceError(*unknown)
    asked = tuple(dict.fromkeys(trace_ids or _evaluated(store)))
    graphs = load_graphs(store, asked) if trace_ids else _load_sound(store, asked)
    yield from _diagnoses_of(store, graphs, trace_ids, lambda done: progress(done, len(asked)))


def diagnose_first(store: SqliteStore, trace_ids: Sequence[str]) -> tuple[list[str], Diagnosis | None]:
    """Attribute every failing answer of the first of these traces and of those of just the same memories; return these
    traces, and what `diagnose` yields of them."""
    together, graph = next(load_graphs(store, trace_ids))
    return together, next(_diagnoses_of(store, [(together, graph)], together), None)


def _diagnoses_of(
    store: SqliteStore,
    graphs: Iterable[tuple[list[str], EvolutionGraph]],
    trace_ids: Collection[str],
    progress: Callable[[int], None] = lambda done: None,
) -> Iterator[Diagnosis]:
    """Attribute beside the verdicts that the store holds on these traces (none given: on all)."""
    kept: defaultdict[str, dict[str, StoredVerdict]] = defaultdict(dict)
    for verdict in (verdict for trace_id in trace_ids or ("",) for verdict in store.verdicts(trace_id)):
        kept[verdict.answer[:32]][verdict.answer] = verdict

    def lasting(verdict: Verdict, graph: EvolutionGraph) -> Verdict:
        answer = verdict.failure.answer_span.origin
        return _lasting(verdict, graph, kept[answer[:32]].get(answer), store)

    yield from _diagnoses(graphs, kept, progress, lasting)


def _load_sound(store: SqliteStore, trace_ids: Collection[str]) -> Iterator[tuple[list[str], EvolutionGraph]]:
    """Yield the graphs as `load_graphs` does; traces whose memory has a damaged span are left out with a warning."""
    left = dict.fromkeys(trace_ids)
    while left:
        try:
            for together, graph in load_graphs(store, left):
                for trace_id in together:
                    del left[trace_id]
                yield together, graph
        except DamagedError as error:
            first = next(iter(left))
            _logger.warning("trace %s is not attributed: %s", first, error)
            del left[first]


def diagnose_backend(
    source: RemoteSource,
    trace_ids: Collection[str],
    *,
    known: bool = False,
    progress: Progress = lambda done, total: None,
) -> Iterator[Diagnosis]:
    """Attribute every failing answer of these traces, as `diagnose` does, from a tracing backend. What is read for one
    serves the others (of a source that keeps, all of them), and each trace adds to what reading may cost; where one
    leaves too little of it to the others, each is read by what it may cost alone.

    Raises UnknownTraceError naming the trace ids that the backend does not hold, unless they are `known` to have been
    there; StoreError when it does not answer.
    """
    asked = list(dict.fromkeys(trace_ids))
    for first in range(0, len(asked), TOGETHER):
        some = asked[first : first + TOGETHER]
        reading = source.keeping()
        reading.api.allow(len(some))
        read_ahead(reading, some)
        if not known and (unknown := [trace_id for trace_id in some if not reading.trace(trace_id)]):
            reading.check_address()
            raise UnknownTraceError(*unknown)
        for diagnosis in _diagnoses(
            _load_fairly(reading, some), {}, lambda done, first=first: progress(first + done, len(asked))
        ):
            yield replace(diagnosis, partial=Incomplete.BOUNDED in diagnosis.graph.incomplete)


def _load_fairly(reading: RemoteSource, trace_ids: Collection[str]) -> Iterator[tuple[list[str], EvolutionGraph]]:
    """Yield the graphs as `load_graphs` does; where nothing was left of what reading for all may cost, anew for each
    trace alone."""
    for together, graph in load_graphs(reading, trace_ids):
        if len(trace_ids) == 1 or Incomplete.BOUNDED not in graph.incomplete or not reading.api.exhausted:
            yield together, graph
            continue
        for trace_id in together:
            reading.api.allow(1)
            read_ahead(reading, [trace_id])
            yield [trace_id], load_graph(reading, trace_id)


def _diagnoses(
    graphs: Iterable[tuple[list[str], EvolutionGraph]],
    kept: Mapping[str, Mapping[str, StoredVerdict]],
    progress: Callable[[int], None],
    lasting: Callable[[Verdict, EvolutionGraph], Verdict] = lambda verdict, graph: verdict,
) -> Iterator[Diagnosis]:
    """Attribute every failing answer of the traces beside the graphs. `kept` are the verdicts there are, by answer, by
    trace; `progress(done)` counts traces; `lasting` says which verdict holds."""
    done = 0
    for together, graph in graphs:
        verdicts: list[Verdict] = []
        seconds: list[float] = []
        for failure in find_failures(graph):
            if failure.trace_id in together:
                started = time.perf_counter()
                verdicts.append(lasting(attribute(graph, failure), graph))
                seconds.append(time.perf_counter() - started)
        done += len(together)
        progress(done)
        outdated = dict(pair for trace_id in together for pair in kept.get(trace_id, {}).items())
        for verdict in verdicts:
            outdated.pop(verdict.failure.answer_span.origin, None)
        if Incomplete.BOUNDED in graph.incomplete:  # what is not loaded may fail
            outdated.clear()
        if verdicts or outdated:
            ids = tuple(verdict.attribution_id for verdict in outdated.values())
            yield Diagnosis(graph, tuple(verdicts), tuple(seconds), ids)


def _lasting(verdict: Verdict, graph: EvolutionGraph, kept: StoredVerdict | None, store: SqliteStore) -> Verdict:
    """Return the verdict that is kept where it rests on what was pruned or forgotten since, else `verdict`."""
    try:
        earlier = read_verdict(kept.document, verdict.failure) if kept else None
        absent = set(json.loads(kept.document).get(_ABSENT, ())) if kept else set[str]()
    except (ValueError, KeyError, TypeError, AttributeError):
        return verdict
    if earlier is None:
        return verdict
    operation = _stored(make_origin(earlier.trace_id, earlier.span_id), graph, store) if earlier.span_id else None
    earlier = replace(earlier, when=operation.start if operation else 0)
    answer = verdict.failure.answer_span
    named = {step.origin for step in earlier.evidence if is_origin(step.origin)} - {answer.origin} - absent
    if (earlier.span_id and not operation) or not all(_stored(origin, graph, store) for origin in named):
        return earlier  # also against a verdict of the same type, or a complete one: it does not see what is gone
    if _said(earlier) == _said(verdict):
        return verdict
    forgotten = Incomplete.FORGOTTEN in (*answer.incomplete, *(operation.incomplete if operation else ()))
    undecided = verdict.failure_type == FailureType.UNKNOWN and next(graph.missing(), None)
    return earlier if forgotten or (earlier.complete and undecided) else verdict


def _absent(verdict: Verdict, graph: EvolutionGraph) -> list[str]:
    """Return the origins in the evidence that nobody recorded: what rests on them has lost nothing since."""
    return [step.origin for step in verdict.evidence if is_origin(step.origin) and not graph.operation(step.origin)]


def _said(verdict: Verdict) -> tuple[str, str, str]:
    return verdict.failure_type, verdict.trace_id, verdict.span_id


def _stored(origin: str, graph: EvolutionGraph, store: SqliteStore) -> OperationSpan | None:
    """Return the operation of an origin, also one that is no longer in what the graph was made of."""
    found = graph.operation(origin)
    return found or next((span for span in store.trace(split_origin(origin)[0]) if span.origin == origin), None)


def _evaluated(store: SqliteStore) -> Iterator[str]:
    """The traces whose answers somebody has evaluated, there or in another trace."""
    for span in store.evaluations():
        if span.instrumentation_scope != ATTRIBUTION_SCOPE:
            yield from sorted(judged_traces(span))


def record(
    store: AnnotationStore, diagnosis: Diagnosis, *, started: int | None = None, known: set[str] | None = None
) -> list[Annotation]:
    """Write the verdicts to the store, count the new ones, and return them under their final ids; `deliver` sends them.

    A verdict that is there already adds nothing; another one on the same answer replaces it, but for what `annotate`
    holds back; one on an answer that no longer fails goes, its spans stay; one on an answering span that is not there
    is not written. `started` is when the attribution began (ns since the epoch, now by default). `known`
    are ids of verdicts that are new no more, for a store that forgets; those that are new now are added.
    """
    known = set() if known is None else known
    store.withdraw_verdicts(diagnosis.outdated)
    recorded: list[Annotation] = []
    metrics = AttributionMetrics()
    annotations = annotate(diagnosis.verdicts, store, started=started, partial=diagnosis.partial)
    for annotation, seconds in zip(annotations, diagnosis.seconds, strict=True):
        verdict = annotation.verdict
        if annotation.is_held:
            recorded.append(annotation)
            continue
        document = json.dumps(verdict_json(verdict) | {_ABSENT: _absent(verdict, diagnosis.graph)}, ensure_ascii=False)
        is_new = store.save_verdict(verdict.failure.answer_span.origin, verdict.attribution_id, document)
        is_new = is_new and verdict.attribution_id not in known
        if is_new:
            known.add(verdict.attribution_id)
        if is_new and annotation.spans:  # else its ids may be anything
            metrics.attributed(verdict, seconds)
        recorded.append(replace(annotation, is_new=is_new, seconds=seconds))
    return recorded
