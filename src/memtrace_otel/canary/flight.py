"""One canary flight: send the known history, wait for its verdict, name the stage that lost the verdict."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum

from opentelemetry import metrics

from memtrace_otel import semconv
from memtrace_otel.annotate import SendError, identity
from memtrace_otel.annotate.send import send
from memtrace_otel.annotate.target import Target
from memtrace_otel.attribution import attribute_trace
from memtrace_otel.canary.history import History
from memtrace_otel.graph import build_graph
from memtrace_otel.model import OperationSpan
from memtrace_otel.model.printable import one_line
from memtrace_otel.otlp import encode_request
from memtrace_otel.sources import SourceError, TraceSource
from memtrace_otel.version import __version__

_PAUSE = 1.0
"""Seconds between two reads of the backend."""
_SHOWN = 100
_SUCCESS = "When the verdict of a canary last came back and was right (s since the epoch), 0 before the first."


class Stage(StrEnum):
    """The stages of a verdict, in order; the first stage that was not reached lost the verdict."""

    SEND = "send"
    STORE = "store"
    VERDICT = "verdict"
    MARKER = "marker"
    MATCH = "match"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`lost`: the stage that lost the verdict, None when the right verdict came. `seconds`: time since the sending."""

    lost: Stage | None
    message: str
    trace_id: str
    seconds: float


def fly(history: History, target: Target, source: TraceSource, timeout: float) -> Outcome:
    """Send `history` to `target`; read `source` until the verdict is there, for at most `timeout` seconds.

    An error of the target or of the source is an outcome, not an exception.
    """
    began = time.monotonic()
    try:
        send(target, encode_request(history.spans))
    except SendError as error:
        return Outcome(Stage.SEND, str(error), history.answer.trace_id, time.monotonic() - began)
    while True:
        try:
            lost, message = _look(history, source)
        except SourceError as error:
            lost, message = Stage.STORE, f"the backend cannot be read: {error}"
        seconds = time.monotonic() - began
        if lost is None or seconds >= timeout:
            return Outcome(lost, message, history.answer.trace_id, seconds)
        time.sleep(min(_PAUSE, timeout - seconds))


def _look(history: History, source: TraceSource) -> tuple[Stage | None, str]:
    """Return the first stage that the verdict has not reached, and what is missing."""
    stored = {trace_id: source.trace(trace_id) for trace_id in history.traces()}
    for trace_id, ids in history.traces().items():
        if missing := ids - {span.span_id for span in stored[trace_id]}:
            return Stage.STORE, f"{len(missing)} of {len(ids)} spans of trace {trace_id} are not in the backend"
    answer, fault = history.answer, history.fault
    marker = _newest_marker(stored[answer.trace_id], answer)
    if marker is None:
        verdicts = [identity.succeed(verdict, []) for verdict in attribute_trace(build_graph(history.spans))]
        if any(source.trace(identity.trace_id(verdict)) for verdict in verdicts):
            return Stage.MARKER, f"the verdict is there, its marker in the failing trace {answer.trace_id} is not"
        return Stage.VERDICT, f"no verdict on the failing trace {answer.trace_id}"
    failure_type = str(marker.attributes.get(semconv.FAILURE_TYPE, ""))
    span_id = str(marker.attributes.get(semconv.FAILURE_SPAN_ID, ""))
    shown = f"{one_line(failure_type, _SHOWN) or 'nothing'} by span {one_line(span_id, _SHOWN) or 'unknown'}"
    if (failure_type, span_id) != (history.failure_type, fault.span_id):
        return Stage.MATCH, f"the verdict is {shown}, not {history.failure_type} by span {fault.span_id}"
    if _newest_marker(stored[fault.trace_id], answer) is None:
        return Stage.MARKER, f"the marker in the causing trace {fault.trace_id} is not in the backend"
    return None, shown


def _newest_marker(trace: list[OperationSpan], answer: OperationSpan) -> OperationSpan | None:
    """Return the marker about the answer that no other marker replaces."""
    markers = [
        span
        for span in trace
        if span.name.startswith(semconv.MARKER_SPAN) and span.attributes.get(semconv.FAILURE_ANSWER) == answer.origin
    ]
    replaced = {str(span.attributes.get(semconv.ATTRIBUTION_REPLACES, "")) for span in markers}
    return next((span for span in markers if str(span.attributes.get(semconv.ATTRIBUTION_ID)) not in replaced), None)


class CanaryMetrics:
    """OpenTelemetry gauges of the last flight."""

    def __init__(self, provider: metrics.MeterProvider | None = None) -> None:
        meter = metrics.get_meter(semconv.CANARY_SCOPE, __version__, provider, semconv.SCHEMA_URL)
        self._success = meter.create_gauge(semconv.METRIC_CANARY_SUCCESS, "s", _SUCCESS)
        self._duration = meter.create_gauge(
            semconv.METRIC_CANARY_DURATION, "s", "Seconds that the canary's last flight took."
        )
        self._lost = meter.create_gauge(
            semconv.METRIC_CANARY_LOST, "{flight}", "1 for the stage that lost the canary's last flight, else 0."
        )
        self._last_success = 0.0

    def record(self, outcome: Outcome, now: float) -> None:
        """Set the gauges to an outcome at `now` (s since the epoch)."""
        if outcome.lost is None:
            self._last_success = now
        self._success.set(self._last_success)
        self._duration.set(outcome.seconds)
        for stage in Stage:
            self._lost.set(int(stage == outcome.lost), {semconv.CANARY_STAGE: stage})
