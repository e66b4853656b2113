"""Bridge between our tracer provider and a provider that the program sets itself (MEMTRACE_JOIN_PROVIDER)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from importlib import import_module
from operator import attrgetter
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider

from memtrace_otel.capture.delivery.spool import destination
from memtrace_otel.capture.guard import guard

_logger = logging.getLogger(__name__)
_FLUSH_MS = 3000
"""Longest flush of our exporters when the program shuts its own provider down, in milliseconds."""


class Forwarding(SpanProcessor):
    """Passes the spans of one provider to the processors of another provider. Never raises.

    `find` returns them for each span anew, `where` names this in the log.
    """

    def __init__(self, find: Callable[[], Iterable[SpanProcessor]], where: str) -> None:
        self._find, self._where = find, where

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Pass on a started span."""
        with guard(self._where):
            for processor in self._find():
                processor.on_start(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        """Pass on an ended span."""
        with guard(self._where):
            for processor in self._find():
                processor.on_end(span)


class _Joined(Forwarding):
    """Our processors in the program's provider, without exporters to a destination that the program also has."""

    def __init__(self, ours: TracerProvider, program: Any) -> None:
        super().__init__(self._missing, "provider.join")
        self._ours: Any = ours._active_span_processor  # pyright: ignore[reportPrivateUsage]
        self._program = getattr(program, "_active_span_processor", None)
        self._seen: object = None
        self._found: tuple[SpanProcessor, ...] = ()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush all of ours."""
        with guard(self._where):
            return bool(self._ours.force_flush(timeout_millis))
        return False

    def shutdown(self) -> None:
        """Flush our processors only: they live as long as their own provider."""
        self.force_flush(_FLUSH_MS)

    def _missing(self) -> tuple[SpanProcessor, ...]:
        now = getattr(self._ours, "_span_processors", ()), getattr(self._program, "_span_processors", ())
        if now != self._seen:  # the program adds to its provider when it likes
            ours, program = now
            taken = {_destination(processor) for processor in program} - {None}
            self._found = tuple(processor for processor in ours if _destination(processor) not in taken)
            self._seen = now
        return self._found


def _destination(processor: Any) -> tuple[str, ...] | None:
    """Where a processor sends spans, None if unknown."""
    exporter: Any = getattr(processor, "span_exporter", None) or getattr(processor, "exporter", None)
    found = destination(exporter)
    return found if found[2] else None


def let_program_set_providers() -> None:
    """Let the program set its own providers of traces, metrics and logs, once. A second call changes nothing.

    Its tracer provider makes all spans from then on, also those of tracers taken before, and ours gets them through it.
    What ours would do with metrics and logs, the exporters of the environment, ends where the program sets its own.
    """
    api: Any = trace
    ours = trace.get_tracer_provider()
    original = api._set_tracer_provider  # behind set_tracer_provider, which others may have imported already
    if not isinstance(ours, TracerProvider) or original.__module__ == __name__:
        return

    def set_provider(provider: Any, log: bool) -> None:
        if provider is ours:
            return
        before = trace.get_tracer_provider()
        original(provider, log)
        if before is ours and trace.get_tracer_provider() is provider:
            with guard("provider.join"):
                _join(ours, provider)

    api._set_tracer_provider = set_provider
    _open(api, "_TRACER_PROVIDER")
    for module, name, outlets in (
        ("opentelemetry.metrics._internal", "_METER_PROVIDER", "_metric_readers"),
        ("opentelemetry._logs._internal", "_LOGGER_PROVIDER", "_multi_log_record_processor._log_record_processors"),
    ):
        with guard("provider.open"):
            api = import_module(module)
            if (current := getattr(api, name)) is None:  # left out of OTEL_CONFIG_FILE
                continue
            _open(api, name)
            if not attrgetter(outlets)(current):  # it exports nothing: meters wait for the program's
                setattr(api, name, None)
                getattr(api, f"_PROXY{name}")._real_meter_provider = None


def _open(api: Any, name: str) -> None:
    """Let a global provider be set once more."""
    once = f"{name}_SET_ONCE"
    setattr(api, once, type(getattr(api, once))())


def _join(ours: Any, program: Any) -> None:
    if not hasattr(program, "add_span_processor"):
        name = program.__class__.__name__
        _logger.warning("the program's tracer provider, %s, takes no span processors: its spans are not recorded", name)
        return
    program.add_span_processor(_Joined(ours, program))
    ours.get_tracer = program.get_tracer
    for scope, tracer in list(getattr(ours, "_tracers", {}).items()):
        theirs = program.get_tracer(scope.name, scope.version, scope.schema_url, scope.attributes)
        tracer.start_span = theirs.start_span
        tracer.start_as_current_span = theirs.start_as_current_span
