"""From any source to verdicts: load graphs, find failures, attribute them, record the verdicts.

`diagnose` reads a `TraceSource` and yields verdicts; `record` writes them to a `VerdictLog`. `annotate.deliver` then
sends them.
"""

from __future__ import annotations

import gc
import json
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from memtrace_otel.annotate import Annotation, AttributionMetrics, annotate
from memtrace_otel.annotate.identity import is_proof, reason_to_keep
from memtrace_otel.attribution import (
    attribute,
    attribute_everywhere,
    find_failures,
    is_open,
    read_verdict,
    verdict_document,
)
from memtrace_otel.attribution.methods import Ask, in_threads
from memtrace_otel.attribution.verdict_json import contents_json
from memtrace_otel.graph import EvolutionGraph, SliceSource, load_everywhere, load_graph, load_graphs
from memtrace_otel.model import (
    Failure,
    OperationSpan,
    StoredVerdict,
    Verdict,
    VerdictLog,
    is_origin,
    make_origin,
    split_origin,
)
from memtrace_otel.semconv import FailureType, Incomplete
from memtrace_otel.sources import DamagedError, SourceError, TraceSource

_logger = logging.getLogger(__name__)
TOGETHER = 50
"""Failing traces that share one session: a search of a backend costs about the same for fifty as for one."""
_COLLECT_AFTER = 10_000
_ABSENT = "absent"
"""Key in a stored verdict: the operations that it names and that were not there when it was made."""
_TEXTS = ("question", "answer", "expected")
Progress = Callable[[int, int], None]
LeaveOut = Callable[[str, SourceError], None]
Refine = Callable[[EvolutionGraph, Verdict], Verdict]
"""Makes another verdict of a verdict, such as a `replay.Verifier`."""


class UnknownTraceError(LookupError):
    """The source does not hold these traces."""

    def __init__(self, *trace_ids: str) -> None:
        super().__init__(f"no such trace: {', '.join(trace_ids)}")


class PartialTraceError(DamagedError):
    """A source gives only a part of a trace, so nobody knows which verdicts are in it."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The verdicts on the failing answers of one graph, and how long each took (s).

    `trace_ids` are the traces that were attributed. `outdated` are the attribution ids that the log holds on answers
    which no longer fail. `partial`: the source could not read everything. `source` has what the graph has, and more.
    """

    graph: EvolutionGraph
    source: TraceSource
    trace_ids: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    seconds: tuple[float, ...]
    outdated: tuple[str, ...] = ()
    partial: bool = False

    def operation(self, origin: str) -> OperationSpan | None:
        """Return an operation of the graph, or of the source."""
        found = self.graph.operation(origin)
        if found is None and is_origin(origin):
            trace = self.source.trace(split_origin(origin)[0])
            found = next((span for span in trace if span.origin == origin), None)
        return found


def diagnose(
    source: TraceSource,
    log: VerdictLog,
    trace_ids: Collection[str] = (),
    *,
    since: int = 0,
    known: bool = False,
    progress: Progress = lambda done, total: None,
    leave_out: LeaveOut | None = None,
    ask: Ask | None = None,
    concurrency: int = 1,
    refine: Refine | None = None,
) -> Iterator[Diagnosis]:
    """Attribute every failing answer of the traces; one graph is in memory at a time.

    Without `trace_ids`: of all traces with a failing evaluation at `since` (ns) or later, and of those on which `log`
    has a verdict. `progress(done, total)` counts traces. `refine` makes the final verdict. Of two verdicts on an
    answer `lasting` decides.

    `ask` asks a model about at most `concurrency` cases at a time, in threads that read graphs only; as many graphs
    are in memory. Then each verdict comes as a `Diagnosis` of its own as soon as the model has answered, so that a
    caller who stops keeps what was answered. A case is not asked again while `log` holds the verdict of the same
    method, model and version on the same texts.

    A trace whose memory cannot be read goes to `leave_out` with the error, and the others follow; without `leave_out`
    the error is raised (with a warning instead, when no trace was named). Raises UnknownTraceError for traces that the
    source does not hold, unless they are `known` to exist; SourceError when the source does not answer.
    """
    if trace_ids:
        asked = list(dict.fromkeys(trace_ids))
    else:
        with source.session(cases=TOGETHER) as reader:
            asked = list(dict.fromkeys((*reader.failing(since), *(v.answer[:32] for v in log.verdicts()))))
        leave_out = leave_out or _warn
    done: set[str] = set()
    for first in range(0, len(asked), TOGETHER):
        some = asked[first : first + TOGETHER]
        with source.session(cases=len(some)) as reader:
            reader.prefetch(some)
            if trace_ids and not known and (unknown := [trace_id for trace_id in some if not reader.trace(trace_id)]):
                raise UnknownTraceError(*unknown)
            everywhere = _Everywhere(source, some)
            graphs = _graphs(source, reader, some, leave_out)
            cases = _collecting_between(_attribute(*found, log, everywhere) for found in graphs)
            for case in _ask_about(cases, ask, concurrency) if ask else cases:
                done.update(case.diagnosis.trace_ids)
                progress(len(done), len(asked))
                if case.diagnosis.verdicts or case.diagnosis.outdated:
                    yield _last(case, refine)


def _collecting_between(cases: Iterator[_Cases]) -> Iterator[_Cases]:
    """Yield the cases; the garbage collector pauses while one is made, and runs after every `_COLLECT_AFTER` nodes.

    Each full collection visits every live object of a graph: a sixth of the CPU time in a memory of 2,000 messages.
    """
    nodes = 0
    while True:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            case = next(cases, None)
        finally:
            if was_enabled:
                gc.enable()
        if case is None:
            return
        nodes += len(case.diagnosis.graph)
        yield case
        del case  # the next graph is loaded without this one
        if nodes >= _COLLECT_AFTER:
            gc.collect()
            nodes = 0


def _graphs(
    source: TraceSource, reader: TraceSource, trace_ids: Collection[str], leave_out: LeaveOut | None
) -> Iterator[tuple[TraceSource, list[str], EvolutionGraph]]:
    """Yield graphs as `load_graphs` does, each with its reader. A trace for which the session of all had no room left
    gets a session of its own."""
    left = dict.fromkeys(trace_ids)
    while left:
        try:
            for together, graph in load_graphs(reader, left):
                for trace_id in together:
                    del left[trace_id]
                if len(trace_ids) == 1 or Incomplete.BOUNDED not in graph.incomplete:
                    yield reader, together, graph
                    continue
                for trace_id in together:
                    with source.session() as alone:
                        yield alone, [trace_id], load_graph(alone, trace_id)
        except DamagedError as error:
            if leave_out is None:
                raise
            first = next(iter(left))
            del left[first]
            leave_out(first, error)


class _Everywhere:
    """The graph of every memory, loaded when the memory of an answer holds nothing of the expected answer.

    Only a database is read whole. A backend would send every trace of its store for one answer.
    """

    def __init__(self, source: TraceSource, trace_ids: Collection[str]) -> None:
        self._source, self._trace_ids = source, trace_ids
        self._graph: EvolutionGraph | None = None

    def attribute(self, failure: Failure, verdict: Verdict) -> Verdict:
        """Return the verdict of every memory where it says more than `verdict`."""
        if not isinstance(self._source, SliceSource):
            return verdict
        if self._graph is None:
            with self._source.session(cases=len(self._trace_ids)) as reader:
                self._graph = load_everywhere(reader, self._trace_ids)
        return attribute_everywhere(self._graph, failure, verdict)


@dataclass(frozen=True, slots=True)
class _Cases:
    """Verdicts on the failing answers of a graph, and the stored verdicts by answer. `is_open`: a model is to be asked
    about the one verdict."""

    diagnosis: Diagnosis
    stored: Mapping[str, StoredVerdict]
    is_open: bool = False

    def each(self) -> Iterator[_Cases]:
        """Yield what concerns no failing answer, then one case after another."""
        whole = self.diagnosis
        failing = {verdict.failure.trace_id for verdict in whole.verdicts}
        others = tuple(trace_id for trace_id in whole.trace_ids if trace_id not in failing)
        yield replace(self, diagnosis=replace(whole, trace_ids=others, verdicts=(), seconds=()))
        for verdict, seconds in zip(whole.verdicts, whole.seconds, strict=True):
            traces = (verdict.failure.trace_id,)
            one = replace(whole, trace_ids=traces, verdicts=(verdict,), seconds=(seconds,), outdated=())
            yield replace(self, diagnosis=one)


def _attribute(
    source: TraceSource, trace_ids: list[str], graph: EvolutionGraph, log: VerdictLog, everywhere: _Everywhere
) -> _Cases:
    """Return the verdicts of the rules on the failing answers of some traces."""
    stored = {verdict.answer: verdict for trace_id in trace_ids for verdict in log.verdicts(trace_id)}
    verdicts: list[Verdict] = []
    seconds: list[float] = []
    for failure in find_failures(graph):
        if failure.trace_id in trace_ids:
            started = time.perf_counter()
            verdict = attribute(graph, failure)
            verdicts.append(everywhere.attribute(failure, verdict) if is_open(verdict) else verdict)
            seconds.append(time.perf_counter() - started)
    partial = Incomplete.BOUNDED in graph.incomplete
    answers = {verdict.failure.answer_span.origin for verdict in verdicts}
    outdated = () if partial else tuple(v.attribution_id for answer, v in stored.items() if answer not in answers)
    found = Diagnosis(graph, source, tuple(trace_ids), tuple(verdicts), tuple(seconds), outdated, partial)
    return _Cases(found, stored)


def _ask_about(found: Iterable[_Cases], ask: Ask, concurrency: int) -> Iterator[_Cases]:
    """Yield one case after another, with the verdict of the model, in the order in which the model answers."""

    def asked(case: _Cases) -> _Cases:
        return replace(case, diagnosis=_asked(case.diagnosis, ask)) if case.is_open else case

    cases = (_answered(one, ask) for every in found for one in every.each())
    return in_threads(asked, cases, concurrency)


def _asked(diagnosis: Diagnosis, ask: Ask) -> Diagnosis:
    started = time.perf_counter()
    verdicts = tuple(ask(diagnosis.graph, verdict) for verdict in diagnosis.verdicts)
    return replace(diagnosis, verdicts=verdicts, seconds=(sum(diagnosis.seconds) + time.perf_counter() - started,))


def _answered(case: _Cases, ask: Ask) -> _Cases:
    """Return a case with the stored verdict that the same model made of the same texts, else open."""
    for verdict in case.diagnosis.verdicts:
        stored = case.stored.get(verdict.failure.answer_span.origin)
        earlier = _read(stored, verdict.failure, case.diagnosis) if stored else None
        if stored is None or earlier is None or not ask.made(earlier):
            return replace(case, is_open=True)
        texts = {name: text for name, text in json.loads(stored.document).items() if name in _TEXTS}
        is_same = texts == contents_json(verdict) and earlier.version == verdict.version
        if not is_same or earlier.complete < verdict.complete:
            return replace(case, is_open=True)
        return replace(case, diagnosis=replace(case.diagnosis, verdicts=(earlier,)))
    return case


def _last(case: _Cases, refine: Refine | None) -> Diagnosis:
    """Return the final verdicts: refined, and where a stored verdict holds, the stored one."""
    found, verdicts, seconds = case.diagnosis, list[Verdict](), list[float]()
    for verdict, taken in zip(found.verdicts, found.seconds, strict=True):
        started = time.perf_counter()
        final = refine(found.graph, verdict) if refine else verdict
        earlier = case.stored.get(verdict.failure.answer_span.origin)
        verdicts.append(lasting(final, earlier, found) if earlier else final)
        seconds.append(taken + time.perf_counter() - started)
    return replace(found, verdicts=tuple(verdicts), seconds=tuple(seconds))


def _read(stored: StoredVerdict, failure: Failure, diagnosis: Diagnosis) -> Verdict | None:
    """Return a stored verdict, None for a damaged one."""
    try:
        earlier = read_verdict(stored.document, failure)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    operation = diagnosis.operation(make_origin(earlier.trace_id, earlier.span_id)) if earlier.span_id else None
    return replace(earlier, when=operation.start if operation else 0)


def lasting(verdict: Verdict, stored: StoredVerdict, diagnosis: Diagnosis) -> Verdict:
    """Return the stored verdict where `identity.reason_to_keep` says that it holds, else `verdict`."""
    earlier = _read(stored, verdict.failure, diagnosis)
    if earlier is None:
        return verdict
    absent = set(json.loads(stored.document).get(_ABSENT, ()))
    decisive = make_origin(earlier.trace_id, earlier.span_id) if earlier.span_id else ""
    named = {step.origin for step in earlier.evidence if is_origin(step.origin)} - absent
    named.discard(verdict.failure.answer_span.origin)
    lost = any(diagnosis.operation(origin) is None for origin in named | ({decisive} - {""}))
    guessed = verdict.failure_type == FailureType.UNKNOWN and next(diagnosis.graph.missing(), None) is not None
    same = (earlier.failure_type, earlier.span_id) == (verdict.failure_type, verdict.span_id)
    replayed = is_proof(earlier.replay.outcome if earlier.replay else "", same=same)
    if not reason_to_keep(earlier.method, earlier.complete, verdict, replayed=replayed, lost=lost, partial=guessed):
        return verdict
    return earlier


def shown_by(source: TraceSource) -> Callable[[str], list[OperationSpan]]:
    """Return a function that reads a whole trace as the source has it now, for `annotate.BackendLog`.

    The function raises PartialTraceError when the source gives a part, SourceError when the source does not answer.
    """

    def read(trace_id: str) -> list[OperationSpan]:
        with source.session() as reader:
            try:
                spans = reader.trace(trace_id)
            except SourceError as error:
                if getattr(error, "is_reply", False):  # the backend fails at this trace alone
                    raise PartialTraceError(str(source), error.reason) from error
                raise
            if reader.incomplete or any(Incomplete.BOUNDED in span.incomplete for span in spans):
                raise PartialTraceError(str(source), f"trace {trace_id} cannot be read whole")
            return spans

    return read


def record(
    log: VerdictLog, diagnosis: Diagnosis, *, started: int | None = None, withdrawn: Collection[str] = ()
) -> list[Annotation]:
    """Write the verdicts to the log, count the new ones, and return them under their final ids.

    A verdict that is there already adds nothing. Another verdict on the same answer replaces it, unless `annotate`
    holds it back. A verdict on an answer that no longer fails is withdrawn; its spans stay. `started` is when the
    attribution began (ns since the epoch, now by default). On the answers `withdrawn`, no earlier verdict holds.
    """
    log.withdraw_verdicts(diagnosis.outdated)
    annotations = annotate(
        diagnosis.verdicts,
        log,
        started=started,
        partial=diagnosis.partial,
        withdrawn=withdrawn,
        has_operation=lambda origin: diagnosis.operation(origin) is not None,
    )
    recorded: list[Annotation] = []
    metrics = AttributionMetrics()
    for annotation, seconds in zip(annotations, diagnosis.seconds, strict=True):
        verdict = annotation.verdict
        if annotation.is_held:
            recorded.append(annotation)
            continue
        origins = {step.origin for step in verdict.evidence if is_origin(step.origin)}
        absent = sorted(origin for origin in origins if diagnosis.operation(origin) is None)
        document = json.dumps(
            verdict_document(verdict, _scope(diagnosis, verdict)) | {_ABSENT: absent}, ensure_ascii=False
        )
        is_new = log.save_verdict(verdict.failure.answer_span.origin, verdict.attribution_id, document)
        if is_new and annotation.spans:  # without spans the ids may be anything
            metrics.attributed(verdict, seconds)
        recorded.append(replace(annotation, is_new=is_new, seconds=seconds))
    return recorded


def _scope(diagnosis: Diagnosis, verdict: Verdict) -> str:
    """Return the memory scope of the decisive operation, else of the last step of the evidence with a scope, else of
    the last operation of the answer's trace with a scope."""
    graph, failure = diagnosis.graph, verdict.failure
    steps = [step.origin for step in reversed(verdict.evidence)]
    beside = [span.origin for span in reversed(graph.operations(trace_id=failure.trace_id))]
    decisive = [make_origin(verdict.trace_id, verdict.span_id)] if verdict.span_id else []
    named = (*decisive, *steps, *beside)
    return next((scope for origin in named if (scope := graph.scope_of(origin))), "")


def _warn(trace_id: str, error: SourceError) -> None:
    _logger.warning("trace %s is not attributed: %s", trace_id, error)
