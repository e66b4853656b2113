"""One flight of the canary: send, wait for the spans, for the verdict, for its markers; say which stage lost it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from memtrace_otel import semconv
from memtrace_otel.annotate import SendError, identity
from memtrace_otel.annotate.send import send
from memtrace_otel.annotate.target import Target
from memtrace_otel.attribution import attribute_trace
from memtrace_otel.canary.history import History
from memtrace_otel.graph import build_graph
from memtrace_otel.model import OperationSpan, Verdict
from memtrace_otel.otlp import encode_request
from memtrace_otel.sources import RemoteSource, StoreError, TraceSource
from memtrace_otel.sources.http import one_line

_LOOKS = 180
"""Times that the backend is looked at, at most once a second: a source answers a bounded number of requests."""
_SHOWN = 100
_LEAST = 1.0
"""Seconds that a request gets however late it is."""


class Stage(StrEnum):
    """What a verdict goes through, in order; the first that was not reached is the one that lost it."""

    SEND = "send"
    STORE = "store"
    VERDICT = "verdict"
    MARKER = "marker"
    MATCH = "match"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`lost` is the stage that lost the verdict, None when it came and is right; `seconds` since the sending began."""

    lost: Stage | None
    told: str
    trace_id: str
    seconds: float


@dataclass(frozen=True, slots=True)
class _Seen:
    """How far a flight is; `lost` None says that nothing more is to be waited for."""

    lost: Stage | None
    told: str


def fly(history: History, target: Target, source: TraceSource, timeout: float) -> Outcome:
    """Send `history` to `target` and wait up to `timeout` seconds until its verdict is read back from `source`.

    Never raises for a path that does not work: that is what the outcome is about.
    """
    began = time.monotonic()

    def outcome(lost: Stage | None, told: str) -> Outcome:
        return Outcome(lost, told, history.answer.trace_id, time.monotonic() - began)

    try:
        send(target, encode_request(history.spans))
    except SendError as error:
        return outcome(Stage.SEND, str(error))

    def read(trace_id: str) -> list[OperationSpan]:
        if isinstance(source, RemoteSource):  # it is looked at again anyway
            source.api.hurry(max(_LEAST, began + timeout - time.monotonic()))
        return source.trace(trace_id)

    while True:
        try:
            seen = _look(history, read)
        except StoreError as error:
            seen = _Seen(Stage.STORE, f"the backend cannot be read: {error}")
        if seen.lost is None or time.monotonic() - began >= timeout:
            return outcome(seen.lost, seen.told)
        time.sleep(min(max(1.0, timeout / _LOOKS), max(0.0, began + timeout - time.monotonic())))


def _look(history: History, read: Callable[[str], list[OperationSpan]]) -> _Seen:
    stored = {trace_id: read(trace_id) for trace_id in history.traces()}
    for trace_id, ids in history.traces().items():
        if missing := ids - {span.span_id for span in stored[trace_id]}:
            return _Seen(Stage.STORE, f"{len(missing)} of {len(ids)} spans of trace {trace_id} are not in the backend")
    answer, fault = history.answer, history.fault
    marker = _newest_marker(stored[answer.trace_id], answer)
    if marker is None:
        if any(read(identity.trace_id(verdict)) for verdict in _verdicts(history)):
            return _Seen(
                Stage.MARKER, f"the verdict is there, its marker in the failing trace {answer.trace_id} is not"
            )
        return _Seen(Stage.VERDICT, f"no verdict on the failing trace {answer.trace_id}")
    told = str(marker.attributes.get(semconv.FAILURE_TYPE, ""))
    named = str(marker.attributes.get(semconv.FAILURE_SPAN_ID, ""))
    if (told, named) != (history.failure_type, fault.span_id):
        wanted = f"{history.failure_type} by span {fault.span_id}"
        told, named = one_line(told, _SHOWN), one_line(named, _SHOWN)
        return _Seen(Stage.MATCH, f"the verdict is {told or 'nothing'} by span {named or 'unknown'}, not {wanted}")
    if _newest_marker(stored[fault.trace_id], answer) is None:
        return _Seen(Stage.MARKER, f"the marker in the causing trace {fault.trace_id} is not in the backend")
    return _Seen(None, f"{told} by span {named}")


def _newest_marker(trace: list[OperationSpan], answer: OperationSpan) -> OperationSpan | None:
    """The marker about the answer that no other one replaces."""
    markers = [
        span
        for span in trace
        if span.name.startswith(semconv.MARKER_SPAN) and span.attributes.get(semconv.FAILURE_ANSWER) == answer.origin
    ]
    replaced = {str(span.attributes.get(semconv.ATTRIBUTION_REPLACES, "")) for span in markers}
    return next((span for span in markers if str(span.attributes.get(semconv.ATTRIBUTION_ID)) not in replaced), None)


def _verdicts(history: History) -> list[Verdict]:
    """What attribution makes of the history here: the same as elsewhere, ids included."""
    return [identity.succeed(verdict, []) for verdict in attribute_trace(build_graph(history.spans))]
