"""Write verdicts as spans to a log, and send them to the user's tracing backend, each span once."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from memtrace_otel import semconv
from memtrace_otel.annotate import identity
from memtrace_otel.annotate.attribution_trace import attribution_trace
from memtrace_otel.annotate.evaluation import encode_evaluations
from memtrace_otel.annotate.marker import causing_marker, marker
from memtrace_otel.annotate.send import SendError, send
from memtrace_otel.annotate.target import Target, read_targets
from memtrace_otel.model import OperationSpan, Verdict, VerdictLog, make_origin
from memtrace_otel.otlp import encode_request

T = TypeVar("T")
_logger = logging.getLogger(__name__)
_PER_REQUEST = 64
"""A span of ours has at most about 8 KiB and gRPC receivers take 4 MiB."""
_REASONS = 3
"""Most different reasons of a receiver in one error: a reason may name a span."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """A verdict under its final ids, and its spans as stored. `new` counts the spans that were not there before.

    `is_new` says that the verdict was not known before it was recorded. `seconds` is how long the attribution took.
    A verdict has no spans when OTLP cannot encode it, or when it `is_held` back: an earlier verdict holds, or the
    answering span is not there yet.
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
    """How many `spans` the receiver `traces` accepted, and how many `events` the receiver `logs`.

    A target is None when none is configured. `rejections` are the requests of which a receiver rejected a part.
    """

    traces: Target | None = None
    spans: int = 0
    logs: Target | None = None
    events: int = 0
    rejections: tuple[SendError, ...] = ()

    def __add__(self, other: Delivery) -> Delivery:
        """Return the sum; the targets are those of `other`."""
        spans, events = self.spans + other.spans, self.events + other.events
        return Delivery(other.traces, spans, other.logs, events, self.rejections + other.rejections)


class RejectedError(SendError):
    """A receiver rejected a part of some requests; everything else was sent, see `delivery`.

    The receiver does not say which spans it rejected, and OTLP forbids to repeat the request. So all spans of such a
    request count as sent.
    """

    def __init__(self, delivery: Delivery) -> None:
        rejected: Counter[tuple[str, str]] = Counter()
        for error in delivery.rejections:
            rejected["spans" if error.target.signal == "traces" else "events", error.reason] += error.rejected
        parts = [f"{number} {what} rejected: {reason}" for (what, reason), number in rejected.most_common(_REASONS)]
        if len(rejected) > len(parts):
            parts.append(f"{rejected.total()} in all")
        super().__init__(delivery.rejections[0].target, "; ".join(parts), partial=True)
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
    verdicts: Iterable[Verdict],
    log: VerdictLog,
    *,
    started: int | None = None,
    partial: bool = False,
    has_operation: Callable[[str], bool] = lambda origin: True,
    withdrawn: Collection[str] = (),
) -> list[Annotation]:
    """Write the verdicts to `log` as spans. `started`: when the attribution began (ns since the epoch, default now).

    A verdict that is there already adds nothing. A verdict that differs from the newest on its answer replaces it under
    a new id, unless `identity.reason_to_keep` names a reason: `partial` says that a source could not read everything,
    `has_operation` tells whether the source has an operation (by origin). A verdict on an answering span that is not
    there is held back until the span arrives. On the answers `withdrawn` (origins), no earlier verdict holds.
    """
    ended = time.time_ns()
    annotations: list[Annotation] = []
    for claimed in verdicts:
        if claimed.failure.lacks_answer:
            annotations.append(Annotation(claimed, (), 0, is_held=True))
            continue
        trace = log.trace(claimed.failure.trace_id)
        verdict = identity.succeed(claimed, trace)
        answer = verdict.failure.answer_span.origin
        reason = "" if answer in withdrawn else _reason_to_keep(verdict, trace, partial, has_operation)
        if reason:
            _logger.warning("%s: %s, %s, does not replace the earlier verdict", answer, verdict.failure_type, reason)
            annotations.append(Annotation(claimed, (), 0, is_held=True))
            continue
        decisive = _find(log, verdict.trace_id, verdict.span_id) if verdict.span_id else None
        try:
            built = annotation_spans(verdict, decisive, ended if started is None else started, ended)
            traces = dict.fromkeys(span.trace_id for span in reversed(built))  # the attribution trace first
            known = {span.origin: span for trace_id in traces for span in log.trace(trace_id)}
            new = [span for span in built if span.origin not in known]
            body = encode_request(new)
        except (ValueError, OverflowError) as error:  # ids and times come from anywhere
            _logger.warning("no annotation of the answer %s: %s", verdict.failure.answer_span.origin, error)
            annotations.append(Annotation(verdict, (), 0))
            continue
        if new:
            log.add_request(body)
        annotations.append(Annotation(verdict, tuple(known.get(span.origin, span) for span in built), len(new)))
    return annotations


def deliver(
    annotations: Sequence[Annotation],
    log: VerdictLog,
    endpoint: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Delivery:
    """Send what was not sent before to `endpoint`, or to OTEL_EXPORTER_OTLP_* of `environ`; nothing without a receiver.

    While another process sends from the same log, this call waits. Spans go as traces; evaluation events go as logs,
    unless OTEL_LOGS_EXPORTER is `none` or the receiver takes no logs. What was accepted is remembered; the rest goes
    out with the next call. Raises SendError (after the other requests, when only this request was refused),
    RejectedError when a part was rejected, TargetError for a malformed setting.
    """
    traces, logs = read_targets(endpoint, environ)
    if not annotations or not (traces or logs):
        return Delivery(traces, 0, logs, 0)
    spans = {span.span_id: span for one in annotations for span in one.spans}
    events = {one.root.span_id: (one.verdict, one.root.end) for one in annotations if one.spans}
    with log.turn():  # from asking what was sent to remembering it
        missing = set(log.unsent(traces.ledger, spans) if traces else ())
        due = log.unsent(logs.ledger, events) if logs else []  # before anything goes out
        failures: list[SendError] = []
        sent_spans = sent_events = 0
        try:
            if traces:
                new = {span_id: span for span_id, span in spans.items() if span_id in missing}
                for ids, taken in _send(traces, new, encode_request, log, failures):
                    missing.difference_update(ids)
                    sent_spans += taken
            if logs:  # no event before its verdict
                held = {one.root.span_id for one in annotations if any(span.span_id in missing for span in one.spans)}
                ready = {span_id: events[span_id] for span_id in due if span_id not in held}
                for _, taken in _send(logs, ready, encode_evaluations, log, failures):
                    sent_events += taken
        except SendError as error:
            if error.unsupported and error.target.signal == "logs":
                logs = None
                if error.refused:  # perhaps not from this sender
                    _warn_once(str(error))
            else:
                failures.append(error)
    rejections = tuple(failure for failure in failures if failure.rejected)
    if len(rejections) < len(failures):
        for rejection in rejections:  # they count as sent: no other call reports them
            _logger.warning("%s", rejection)
        raise next(failure for failure in reversed(failures) if not failure.rejected)
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
    log: VerdictLog,
    failures: list[SendError],
) -> Iterator[tuple[Sequence[str], int]]:
    """Send the items, by span id; yield the ids of each request that was accepted and how many items were taken.

    Requests that were refused, or rejected in part, are added to `failures`.
    """
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
        log.mark_sent(target.ledger, ids)
        yield ids, max(0, len(ids) - rejected)


def _reason_to_keep(
    verdict: Verdict, trace: Iterable[OperationSpan], partial: bool, has_operation: Callable[[str], bool]
) -> str:
    """Return why the newest marker in the failing trace holds against the verdict, '' when the verdict replaces it."""
    ours = [span.attributes for span in trace if span.instrumentation_scope == semconv.ATTRIBUTION_SCOPE]
    markers = {attributes.get(semconv.ATTRIBUTION_ID): attributes for attributes in ours}
    if verdict.attribution_id in markers or (earlier := markers.get(verdict.replaces)) is None:
        return ""
    complete = earlier.get(semconv.FAILURE_COMPLETE) is True
    trace_id, span_id = (str(earlier.get(name, "")) for name in (semconv.FAILURE_TRACE_ID, semconv.FAILURE_SPAN_ID))
    lost = complete and not verdict.complete and bool(span_id) and not has_operation(make_origin(trace_id, span_id))
    method = str(earlier.get(semconv.ATTRIBUTION_METHOD, ""))
    same = (earlier.get(semconv.FAILURE_TYPE), span_id) == (verdict.failure_type, verdict.span_id)
    replayed = identity.is_proof(str(earlier.get(semconv.FAILURE_REPLAY, "")), same=same)
    return identity.reason_to_keep(method, complete, verdict, replayed=replayed, lost=lost, partial=partial)


def _find(log: VerdictLog, trace_id: str, span_id: str) -> OperationSpan | None:
    return next((span for span in log.trace(trace_id) if span.span_id == span_id), None)
