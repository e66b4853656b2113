"""Verdicts to the database and, when a receiver is configured, to the user's tracing backend."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Protocol, TypeVar

from memtrace_otel import semconv
from memtrace_otel.annotate import identity
from memtrace_otel.annotate.attribution_trace import attribution_trace
from memtrace_otel.annotate.evaluation import encode_evaluations
from memtrace_otel.annotate.marker import causing_marker, marker
from memtrace_otel.annotate.send import SendError, send
from memtrace_otel.annotate.target import Target, read_targets
from memtrace_otel.model import OperationSpan, Verdict
from memtrace_otel.otlp import encode_request

T = TypeVar("T")
_logger = logging.getLogger(__name__)
_PER_REQUEST = 64
"""A span of ours has at most about 8 KiB and gRPC receivers take 4 MiB."""
_REASONS = 3
"""Named of those that a receiver gives: they may name the spans."""


class AnnotationStore(Protocol):
    """What annotation needs of a store; `SqliteStore` is one."""

    def trace(self, trace_id: str) -> list[OperationSpan]:
        """Return the spans of a trace, [] when it is unknown."""
        ...

    def has_span(self, trace_id: str, span_id: str) -> bool:
        """Tell whether a span is in the store itself, wherever else it may be."""
        ...

    def add_request(self, body: bytes) -> None:
        """Keep an OTLP trace request durably."""
        ...

    def unsent(self, target: str, span_ids: Iterable[str]) -> list[str]:
        """Return those ids that were never marked as sent to `target`, which begins with its signal."""
        ...

    def mark_sent(self, target: str, span_ids: Iterable[str]) -> None:
        """Remember that the ids were sent to `target`."""
        ...

    def turn(self) -> AbstractContextManager[object]:
        """Return a context that one process and thread is in at a time; it may be entered within itself."""
        ...

    def save_verdict(self, answer: str, attribution_id: str, document: str) -> bool:
        """Keep a verdict on an answer; tell whether it was not there."""
        ...

    def withdraw_verdicts(self, attribution_ids: Iterable[str]) -> None:
        """Forget verdicts on answers that fail no longer."""
        ...


@dataclass(frozen=True, slots=True)
class Annotation:
    """A verdict under its final ids, and its spans as stored. `new` counts the spans that were not there before.

    `is_new` says that the verdict itself was not, once it is recorded; `seconds` is how long attributing took.
    A verdict that OTLP cannot hold has no spans, nor has one that `is_held` back: an earlier one holds, that of another
    database perhaps, or the answering span is not there.
    """

    verdict: Verdict
    spans: tuple[OperationSpan, ...]
    new: int
    is_new: bool = False
    is_held: bool = False
    seconds: float = 0.0

    @property
    def root(self) -> OperationSpan:
        """The root of the attribution trace."""
        return next(span for span in self.spans if span.name == semconv.ATTRIBUTION_ROOT_SPAN)


@dataclass(frozen=True, slots=True)
class Delivery:
    """What was taken now: `spans` by `traces`, `events` by `logs`. A target is None when there is none. `rejections`
    are the answers that not all of a request was taken."""

    traces: Target | None = None
    spans: int = 0
    logs: Target | None = None
    events: int = 0
    rejections: tuple[SendError, ...] = ()

    def __add__(self, other: Delivery) -> Delivery:
        """What both sent; the targets are the later ones."""
        spans, events = self.spans + other.spans, self.events + other.events
        return Delivery(other.traces, spans, other.logs, events, self.rejections + other.rejections)


class RejectedError(SendError):
    """The receiver has rejected some of it, everything else went out, as `delivery` says.

    Which ones is not told, and OTLP says not to send them again: all of such a request is remembered as sent.
    """

    def __init__(self, delivery: Delivery) -> None:
        rejected: Counter[tuple[str, str]] = Counter()
        for error in delivery.rejections:
            rejected["spans" if error.target.signal == "traces" else "events", error.reason] += error.rejected
        told = [f"{number} {what} rejected: {reason}" for (what, reason), number in rejected.most_common(_REASONS)]
        if len(rejected) > len(told):
            told.append(f"{rejected.total()} in all")
        super().__init__(delivery.rejections[0].target, "; ".join(told), partial=True)
        self.delivery = delivery


def annotation_spans(
    verdict: Verdict, decisive: OperationSpan | None, started: int, ended: int
) -> tuple[OperationSpan, ...]:
    """Return every span of a verdict: marker in the failing trace, marker in the causing trace, attribution trace.

    `decisive` is the span of the decisive operation, None when it is not known.
    """
    elsewhere = causing_marker(verdict, decisive)
    markers = [marker(verdict, decisive), *([elsewhere] if elsewhere else [])]
    return (*markers, *attribution_trace(verdict, started, ended))


def annotate(
    verdicts: Iterable[Verdict], store: AnnotationStore, *, started: int | None = None, partial: bool = False
) -> list[Annotation]:
    """Write the verdicts to `store` as spans; `started` is when their attribution began (ns since the epoch).

    A verdict that is there already adds nothing; one that differs from the newest of its answer, or is complete where
    that was not, replaces it under a new id. Of `partial` ones, made where not all could be read, none replaces a
    complete one, nor does an incomplete one where the store lacks the operation that the complete one blames: another
    database knew more. One on an answering span that is not there is held back: its marker would have no service and
    lie elsewhere, and keep its id when the span comes.
    """
    ended = time.time_ns()
    annotations: list[Annotation] = []
    for claimed in verdicts:
        if claimed.failure.lacks_answer:
            annotations.append(Annotation(claimed, (), 0, is_held=True))
            continue
        trace = store.trace(claimed.failure.trace_id)
        verdict = identity.succeed(claimed, trace)
        whole = _complete_before(verdict, trace)
        if whole and (why := "made where not all could be read" if partial else _lacking(verdict, whole, store)):
            _logger.warning(
                "%s: %s, %s, does not replace the verdict that is there",
                verdict.failure.answer_span.origin,
                verdict.failure_type,
                why,
            )
            annotations.append(Annotation(claimed, (), 0, is_held=True))
            continue
        decisive = _stored(store, verdict.trace_id, verdict.span_id) if verdict.span_id else None
        try:
            built = annotation_spans(verdict, decisive, ended if started is None else started, ended)
            traces = dict.fromkeys(span.trace_id for span in reversed(built))  # its own first, which nothing else is in
            known = {span.origin: span for trace_id in traces for span in store.trace(trace_id)}
            new = [span for span in built if span.origin not in known]
            body = encode_request(new)
        except (ValueError, OverflowError) as error:  # ids and times come from anywhere
            _logger.warning("no annotation of the answer %s: %s", verdict.failure.answer_span.origin, error)
            annotations.append(Annotation(verdict, (), 0))
            continue
        if new:
            store.add_request(body)
        annotations.append(Annotation(verdict, tuple(known.get(span.origin, span) for span in built), len(new)))
    return annotations


def deliver(
    annotations: Sequence[Annotation],
    store: AnnotationStore,
    endpoint: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Delivery:
    """Send what was not sent before to the receiver in `endpoint` or OTEL_EXPORTER_OTLP_*; nothing without one.

    `environ` stands for the environment.

    One at a time: while another process delivers from the same store, this waits.

    Spans go as traces, evaluation events as logs unless OTEL_LOGS_EXPORTER is `none` or the receiver takes no logs.
    Raises SendError, at the end where the receiver refuses a request and may take others, or TargetError for a
    malformed setting; what was accepted is remembered, what was not stays unsent and goes out with the next call.
    Raises RejectedError at the end when the receiver has rejected some of it.
    """
    traces, logs = read_targets(endpoint, environ)
    if not annotations or not (traces or logs):
        return Delivery(traces, 0, logs, 0)
    spans = {span.span_id: span for one in annotations for span in one.spans}
    events = {one.root.span_id: (one.verdict, one.root.end) for one in annotations if one.spans}
    with store.turn():  # from asking what was sent to remembering it
        missing = set(store.unsent(traces.ledger, spans) if traces else ())
        due = store.unsent(logs.ledger, events) if logs else []  # as it was before anything goes out
        failures: list[SendError] = []
        sent_spans = sent_events = 0
        try:
            if traces:
                new = {span_id: span for span_id, span in spans.items() if span_id in missing}
                for ids, taken in _send(traces, new, encode_request, store, failures):
                    missing.difference_update(ids)
                    sent_spans += taken
            if logs:  # no event before its verdict
                held = {one.root.span_id for one in annotations if any(span.span_id in missing for span in one.spans)}
                ready = {span_id: events[span_id] for span_id in due if span_id not in held}
                for _, taken in _send(logs, ready, encode_evaluations, store, failures):
                    sent_events += taken
        except SendError as error:
            if error.unsupported and error.target.signal == "logs":
                logs = None
                if error.refused:  # perhaps not from us
                    _warn_once(str(error))
            else:
                failures.append(error)
    rejections = tuple(failure for failure in failures if failure.rejected)
    if len(rejections) < len(failures):
        for rejection in rejections:  # they are remembered as sent: no other call tells of them
            _logger.warning("%s", rejection)
        raise next(failure for failure in reversed(failures) if not failure.rejected)  # one that ended it is the last
    delivery = Delivery(traces, sent_spans, logs, sent_events, rejections)
    if rejections:
        raise RejectedError(delivery)
    return delivery


@cache
def _warn_once(message: str) -> None:
    _logger.warning("%s", message)


def _send(
    target: Target,
    items: Mapping[str, T],
    encode: Callable[[Sequence[T]], bytes],
    store: AnnotationStore,
    failures: list[SendError],
) -> Iterator[tuple[Sequence[str], int]]:
    """Send the items, by span id; yield the ids of each request that was not refused and how many of them were taken,
    and add what was rejected, or refused, to `failures`."""
    span_ids = list(items)
    for first in range(0, len(span_ids), _PER_REQUEST):
        ids = span_ids[first : first + _PER_REQUEST]
        rejected = 0
        try:
            send(target, encode([items[id] for id in ids]))
        except SendError as error:
            if error.refused and not error.unsupported:
                failures.append(error)
                continue
            if not error.rejected:
                raise
            failures.append(error)
            rejected = error.rejected
        store.mark_sent(target.ledger, ids)
        yield ids, max(0, len(ids) - rejected)


def _complete_before(verdict: Verdict, trace: Iterable[OperationSpan]) -> OperationSpan | None:
    """Return the marker of the failing trace that a verdict, new there, would replace, where that one is complete."""
    ours = [span for span in trace if span.instrumentation_scope == semconv.ATTRIBUTION_SCOPE]
    markers = {span.attributes.get(semconv.ATTRIBUTION_ID): span for span in ours}
    if verdict.attribution_id in markers or (found := markers.get(verdict.replaces)) is None:
        return None
    return found if found.attributes.get(semconv.FAILURE_COMPLETE) is True else None


def _lacking(verdict: Verdict, whole: OperationSpan, store: AnnotationStore) -> str:
    """Return what the store of an incomplete verdict lacks that a marker's complete one blames, '' if nothing."""
    trace_id, span_id = (whole.attributes.get(name) for name in (semconv.FAILURE_TRACE_ID, semconv.FAILURE_SPAN_ID))
    if verdict.complete or not (trace_id and span_id) or store.has_span(str(trace_id), str(span_id)):
        return ""
    return "made without the operation that a complete one blames"


def _stored(store: AnnotationStore, trace_id: str, span_id: str) -> OperationSpan | None:
    return next((span for span in store.trace(trace_id) if span.span_id == span_id), None)
