"""Tracers: the tracer of our spans, None while nothing would record them, and contexts below ended spans."""

from __future__ import annotations

from time import perf_counter

from opentelemetry import trace
from opentelemetry.context import Context, attach, get_current, set_value
from opentelemetry.trace import NoOpTracer, ProxyTracer, ProxyTracerProvider, Tracer, TracerProvider

from memtrace_otel import semconv
from memtrace_otel.model import split_origin
from memtrace_otel.version import __version__


def get_tracer(name: str = semconv.SCOPE_PREFIX, provider: TracerProvider | None = None) -> Tracer:
    """The tracer of one of our instrumentation scopes."""
    return trace.get_tracer(name, __version__, tracer_provider=provider, schema_url=semconv.SCHEMA_URL)


_default = get_tracer()
_look = ProxyTracerProvider().get_tracer  # finds a provider set since, three times faster than get_tracer_provider()
idle_until = 0.0
"""No SDK was found: until this time (`perf_counter`) none is looked for again. 0 with an SDK."""
_LOOK_SECONDS = 0.0001
SUPPRESSED = "suppress_instrumentation"  # what opentelemetry.instrumentation.utils sets; its import takes 40 ms


def active_tracer(tracer: Tracer | None = None) -> Tracer | None:
    """Return `tracer`, by default ours of the global provider; None while nothing would record its spans.

    That is: no SDK is set up (one set up later is found within a tenth of a millisecond), OTEL_SDK_DISABLED, or
    instrumentation is suppressed in this context. A sampler that says no does not count: its span has an identity.
    """
    global _default, idle_until
    if tracer is None or type(tracer) is ProxyTracer:
        if type(_default) is ProxyTracer:
            now = perf_counter()
            if now < idle_until:
                return None
            idle_until = now + _LOOK_SECONDS
            if type(_look(semconv.SCOPE_PREFIX)) is ProxyTracer:
                return None
            _default, idle_until = get_tracer(), 0.0
        if tracer is None or type(_default) is NoOpTracer:
            tracer = _default
    return None if type(tracer) is NoOpTracer or get_current().get(SUPPRESSED) else tracer


def observe_nothing_here() -> None:
    """Switch instrumentation off in this thread of ours: its calls are not the program's."""
    attach(set_value(SUPPRESSED, True))


def context_of(origin: str) -> Context:
    """An OpenTelemetry context whose current span is the (ended) span of `origin`."""
    trace_id, span_id = split_origin(origin)
    sampled = trace.TraceFlags(trace.TraceFlags.SAMPLED)
    span = trace.NonRecordingSpan(trace.SpanContext(int(trace_id, 16), int(span_id, 16), True, sampled))
    return trace.set_span_in_context(span)
