"""Which tracer starts our spans, and whether anything would record them."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.instrumentation.utils import is_instrumentation_enabled
from opentelemetry.trace import NoOpTracer, ProxyTracer, ProxyTracerProvider, Tracer, TracerProvider

from memtrace_otel import semconv
from memtrace_otel.version import __version__

_probe: TracerProvider | None = None  # tells whether a provider is set, three times faster than get_tracer_provider()
_has_provider = False  # stays true: a provider is set once
_default: Tracer | None = None


def get_tracer(name: str = semconv.SCOPE_PREFIX, provider: TracerProvider | None = None) -> Tracer:
    """The tracer of one of our instrumentation scopes."""
    return trace.get_tracer(name, __version__, tracer_provider=provider, schema_url=semconv.SCHEMA_URL)


def active_tracer(tracer: Tracer | None = None) -> Tracer | None:
    """Return `tracer`, by default ours of the global provider; None while nothing would record its spans.

    That is: no SDK is set up (asked again each time, so that one set up later counts), OTEL_SDK_DISABLED, or
    instrumentation is suppressed in this context. A sampler that says no does not count: its span has an identity.
    """
    global _default
    if tracer is None:
        if _default is None:
            if not _provided():
                return None
            _default = get_tracer()
        tracer = _default
    elif type(tracer) is ProxyTracer and not _provided():
        return None
    return tracer if type(tracer) is not NoOpTracer and is_instrumentation_enabled() else None


def _provided() -> bool:
    """Whether a tracer provider has been set up."""
    global _probe, _has_provider
    if not _has_provider:
        if _probe is None:
            trace.get_tracer_provider()  # loads the one that OTEL_PYTHON_TRACER_PROVIDER names
            _probe = ProxyTracerProvider()
        _has_provider = type(_probe.get_tracer(semconv.SCOPE_PREFIX)) is not ProxyTracer
    return _has_provider
