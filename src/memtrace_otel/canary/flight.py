"""One flight of the canary: send a known history, read its verdict back, name the stage that lost it, tell metrics."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

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
from memtrace_otel.sources import StoreError, TraceSource
from memtrace_otel.version import __version__

_LOOKS = 180
"""Most looks into the backend, at most one a second."""
_SHOWN = 100
_SUCCESS = "When the verdict of a canary last came back and was right (s since the epoch), 0 before the first."


class Stage(StrEnum):
    """The stages that a verdict goes through, in order; the first that was not reached lost it."""

    SEND = "send"
    STORE = "store"
    VERDICT = "verdict"
    MARKER = "marker"
    MATCH = "match"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`lost`: the stage that lost the verdict, None when the verdict came and is right. `seconds` since the sending."""

    lost: Stage | None
    told: str
    trace_id: str
    seconds: float


def fly(history: History, target: Target, source: TraceSource, timeout: float) -> Outcome:
    """Send `history` to `target` and wait up to `timeout` seconds until its verdict is read back from `source`.

    An error on the way is an outcome, not an exception.
    """
    began = time.monotonic()
    try:
        send(target, encode_request(history.spans))
    except SendError as error:
        return Outcome(Stage.SEND, str(error), history.answer.trace_id, time.monotonic() - began)
    while True:
        try:
            lost, told = _look(history, source)
        except StoreError as error:
            lost, told = Stage.STORE, f"the backend cannot be read: {error}"
        seconds = time.monotonic() - began
        if lost is None or seconds >= timeout:
            return Outcome(lost, told, history.answer.trace_id, seconds)
        time.sleep(min(max(1.0, timeout / _LOOKS), timeout - seconds))


def _look(history: History, source: TraceSource) -> tuple[Stage | None, str]:
    """Return the stage that a verdict has not reached yet, and what is missing."""
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
    """Gauges of the last flight: OpenTelemetry's, and a `textfile` for the node exporter of Prometheus.

    The textfile needs memtrace-otel[serve]. The time of the last success is read back from an earlier textfile.
    """

    def __init__(self, textfile: Path | None = None, provider: metrics.MeterProvider | None = None) -> None:
        meter = metrics.get_meter(semconv.CANARY_SCOPE, __version__, provider, semconv.SCHEMA_URL)
        self._gauges = {
            name: meter.create_gauge(name, unit, help)
            for name, unit, help in (
                (semconv.METRIC_CANARY_SUCCESS, "s", _SUCCESS),
                (semconv.METRIC_CANARY_DURATION, "s", "Seconds that the canary's last flight took."),
                (semconv.METRIC_CANARY_LOST, "{flight}", "1 for the stage that lost the canary's last flight, else 0."),
            )
        }
        self._textfile = textfile
        self.last_success = _last_success(textfile) if textfile else 0.0

    def flown(self, outcome: Outcome, now: float) -> None:
        """Record an outcome at `now` (s since the epoch). Raises OSError when the textfile cannot be written."""
        if outcome.lost is None:
            self.last_success = now
        self._gauges[semconv.METRIC_CANARY_SUCCESS].set(self.last_success)
        self._gauges[semconv.METRIC_CANARY_DURATION].set(outcome.seconds)
        for stage in Stage:
            lost = int(stage == outcome.lost)
            self._gauges[semconv.METRIC_CANARY_LOST].set(lost, {semconv.CANARY_STAGE: stage})
        if self._textfile:
            self._write(self._textfile, outcome)

    def check(self) -> None:
        """Raise OSError when the textfile could not be written now."""
        if self._textfile:
            try:
                trial = self._textfile.with_name(f".{self._textfile.name}")
                trial.touch()
                trial.unlink()
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self._textfile)) from None

    def _write(self, textfile: Path, outcome: Outcome) -> None:
        from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

        registry = CollectorRegistry()
        names = (semconv.METRIC_CANARY_SUCCESS, semconv.METRIC_CANARY_DURATION)
        for name, value in zip(names, (self.last_success, outcome.seconds), strict=True):
            Gauge(f"{_name(name)}_seconds", name, registry=registry).set(value)
        lost = Gauge(_name(semconv.METRIC_CANARY_LOST), "lost", [_name(semconv.CANARY_STAGE)], registry=registry)
        for stage in Stage:
            lost.labels(stage).set(stage == outcome.lost)
        try:
            write_to_textfile(str(textfile), registry)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(textfile)) from None


def _name(name: str) -> str:
    return name.replace(".", "_")


def _last_success(textfile: Path) -> float:
    """Return the time of the last success that an earlier process wrote."""
    try:
        text = textfile.read_text("utf-8", "replace")
    except OSError:
        return 0.0
    found = re.search(rf"^{_name(semconv.METRIC_CANARY_SUCCESS)}_seconds ([\d.e+]+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0
