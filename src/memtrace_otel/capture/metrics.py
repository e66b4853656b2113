"""Metrics of capture: integers in memory, which observable instruments read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from memtrace_otel import semconv
from memtrace_otel.capture.fork import after_fork
from memtrace_otel.capture.guard import drops
from memtrace_otel.semconv import Incomplete, OpKind
from memtrace_otel.version import __version__

if TYPE_CHECKING:  # the metrics API is imported by the first operation, not with the package
    from opentelemetry.metrics import CallbackOptions, Histogram, MeterProvider, Observation
    from opentelemetry.util.types import AttributeValue

_MAX_SERIES = 256  # pairs of system and kind; a program that makes names up would fill memory and the backend
_REST = (str(OpKind.OTHER), str(OpKind.OTHER))
_BUCKETS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Of the GenAI conventions, in seconds."""

_SERVICE = (semconv.GEN_AI_PROVIDER_NAME, semconv.SERVER_ADDRESS, semconv.SERVER_PORT)
"""Span attributes that the duration metric repeats if the memory is a service."""

# No thread comes in between: adding to a defaultdict(int) runs no Python code.
_operations: defaultdict[tuple[str, str], int] = defaultdict(int)
_truncations: defaultdict[str, int] = defaultdict(int)
_unknown_origins: defaultdict[str, int] = defaultdict(int)
_duration: Histogram | None = None


class Pipeline(Protocol):
    """The span processor, as far as the metrics need it."""

    @property
    def waiting(self) -> int:
        """Spans in memory that are not exported yet."""
        ...

    @property
    def spooled_bytes(self) -> int:
        """Bytes on disk that are not exported yet."""
        ...


pipelines: WeakSet[Pipeline] = WeakSet()
"""The span processors whose queue and spool are shown."""


def operation_ended(
    system: str,
    kind: str,
    name: str,
    seconds: float,
    error: str,
    incomplete: Collection[str],
    given: Mapping[str, AttributeValue] | None = None,
) -> None:
    """Count one operation; `name` is its span name, `error` the type of what it raised or '', `incomplete` its marks,
    `given` the attributes it began with.

    Costs about half a microsecond unless a MeterProvider is set up; then the duration of a memory operation costs more.
    """
    series = (system, kind)
    if len(_operations) >= _MAX_SERIES and series not in _operations:
        series = _REST
    _operations[series] += 1
    if incomplete:
        if Incomplete.TRUNCATED in incomplete:
            _truncations[series[0]] += 1
        if Incomplete.UNKNOWN_ORIGIN in incomplete:
            _unknown_origins[series[0]] += 1
    duration = _duration or publish()
    if name in semconv.MEMORY_OPERATIONS:
        attributes: dict[str, AttributeValue] = {semconv.GEN_AI_OPERATION_NAME: name}
        if given:
            attributes |= {key: given[key] for key in _SERVICE if given.get(key)}
        if error:
            attributes[semconv.ERROR_TYPE] = error
        duration.record(seconds, attributes)


def publish(provider: MeterProvider | None = None) -> Histogram:
    """Create the instruments on `provider` (default: the global one, also when it is set later); return the duration's.

    The first operation and every `LosslessSpanProcessor` do this by themselves.
    """
    global _duration
    if _duration is not None and provider is None:
        return _duration
    from opentelemetry.metrics import get_meter

    meter = get_meter(semconv.SCOPE_PREFIX, __version__, provider, semconv.SCHEMA_URL)
    meter.create_observable_counter(
        semconv.METRIC_OPERATIONS,
        [_observed(lambda: (({semconv.SYSTEM: s, semconv.OP_KIND: k}, n) for (s, k), n in list(_operations.items())))],
        "{operation}",
        "Memory operations that ended.",
    )
    for name, tally, text in (
        (semconv.METRIC_TRUNCATIONS, _truncations, "Operations with a content that was cut."),
        (semconv.METRIC_UNKNOWN_ORIGINS, _unknown_origins, "Operations that read a record of unknown origin."),
    ):
        meter.create_observable_counter(name, [_observed(_by(semconv.SYSTEM, tally))], "{operation}", text)
    meter.create_observable_counter(
        semconv.METRIC_DROPS,
        [_observed(_by(semconv.DROP_REASON, drops))],
        "{item}",
        "Items that capture lost, by reason.",
    )
    for name, field, unit, text in (
        (semconv.METRIC_QUEUE, "waiting", "{span}", "Spans in memory that are not exported yet."),
        (semconv.METRIC_SPOOL, "spooled_bytes", "By", "Encoded spans on disk that are not exported yet."),
    ):
        meter.create_observable_up_down_counter(name, [_observed(_sum_of(field))], unit, text)
    _duration = meter.create_histogram(
        semconv.METRIC_OPERATION_DURATION,
        "s",
        "Duration of a GenAI operation.",
        explicit_bucket_boundaries_advisory=_BUCKETS,
    )
    return _duration


def _sum_of(field: str) -> Callable[[], Iterable[tuple[dict[str, str], int]]]:
    return lambda: [({}, sum(getattr(pipeline, field) for pipeline in list(pipelines)))]


def _by(attribute: str, tally: dict[str, int]) -> Callable[[], Iterable[tuple[dict[str, str], int]]]:
    return lambda: (({attribute: key}, count) for key, count in list(tally.items()))


def _observed(
    rows: Callable[[], Iterable[tuple[dict[str, str], int]]],
) -> Callable[[CallbackOptions], list[Observation]]:
    from opentelemetry.metrics import Observation

    return lambda _: [Observation(count, attributes) for attributes, count in rows()]


@after_fork
def _after_fork() -> None:
    """A child process counts from zero."""
    for tally in (_operations, _truncations, _unknown_origins):
        tally.clear()
