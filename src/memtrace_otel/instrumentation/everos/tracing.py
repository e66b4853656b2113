"""EverOS' own spans join the application's pipeline, as parents and neighbours of ours.

EverOS keeps a tracer provider of its own, off the global one. When it has one, its spans go on being exported by it and
go to the application's processors as well; when it is told to trace but to export nothing, the application's provider
makes its spans. Whether it makes spans at all stays decided by EVEROS_OBSERVABILITY__ENABLED.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor

from memtrace_otel.capture import guard
from memtrace_otel.capture.joining import Forwarding

if TYPE_CHECKING:
    from memtrace_otel.instrumentation.everos.patches import EverosPatches

TRACING = "everos.core.observability.tracing.attributes"
_PROVIDER = "everos.core.observability.tracing.provider"
_SETTINGS = "everos.config.settings"


def join(patches: EverosPatches, attributes: Any) -> None:
    """Let `memory_span` of EverOS find a tracer whose spans reach the application's pipeline."""
    original = attributes.get_tracer
    joined: list[Any] = []

    def processors() -> tuple[SpanProcessor, ...]:
        """Those of the application, while EverOS is instrumented."""
        provider = patches.provider or trace.get_tracer_provider()
        found = getattr(provider, "_active_span_processor", None)
        return (found,) if found is not None and patches.active else ()

    def get_tracer(name: str) -> Any:
        theirs = getattr(sys.modules.get(_PROVIDER), "_provider", None)
        with guard("everos.tracing"):
            if theirs is None and patches.active and _is_enabled():
                return trace.get_tracer(name, tracer_provider=patches.provider)
            if theirs is not None and not any(theirs is known for known in joined):
                joined[:] = [theirs]
                theirs.add_span_processor(Forwarding(processors, "everos.tracing"))
        return original(name)

    patches.replace(attributes, "get_tracer", get_tracer)


def _is_enabled() -> bool:
    load_settings = getattr(sys.modules.get(_SETTINGS), "load_settings", None)
    return bool(load_settings and load_settings().observability.enabled)
