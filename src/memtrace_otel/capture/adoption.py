"""Spans of other instrumentations: a model call or retrieval that they record is enriched, never recorded twice."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, Tracer
from opentelemetry.util.types import Attributes, AttributeValue

from memtrace_otel import semconv
from memtrace_otel.capture.operations import Operation
from memtrace_otel.capture.writing import next_sequence

_CHAT: Mapping[str, frozenset[str]] = {
    semconv.GEN_AI_OPERATION_NAME: frozenset({semconv.CHAT, "generate_content", "text_completion"}),
    semconv.OPENINFERENCE_SPAN_KIND: frozenset({"LLM"}),
    "llm.request.type": frozenset({"chat", "completion"}),  # OpenLLMetry
    "langfuse.observation.type": frozenset({"generation"}),
}
"""Attributes that identify the span of a model call, by instrumentation."""

_OURS = (semconv.SPAN_NAME_PREFIX, semconv.EVALUATION_PREFIX)
"""Prefixes of the attributes that we add to an adopted span."""


_RETRIEVAL: Mapping[str, frozenset[str]] = {
    semconv.GEN_AI_OPERATION_NAME: frozenset({semconv.RETRIEVAL}),
    semconv.OPENINFERENCE_SPAN_KIND: frozenset({"RETRIEVER"}),
}

announced: ContextVar[Span | None] = ContextVar("memtrace_announced_span", default=None)
announced_retrieval: ContextVar[Span | None] = ContextVar("memtrace_announced_retrieval", default=None)
"""The span of another instrumentation for the running model call or retrieval, if that span is not current.
The instrumentor that sets the variable knows the kind of the span."""


def model_call_of_another() -> Span | None:
    """The span of another instrumentation for the running model call: the current or the announced span."""
    return _of_another(_CHAT, announced)


def retrieval_of_another(name: str = "") -> Span | None:
    """The span of another instrumentation for the running retrieval: the current or the announced span.

    `name`: the name of that span, for an instrumentation that sets the kind of the span only at its end.
    """
    return _of_another(_RETRIEVAL, announced_retrieval, name)


def mark_step(around: Operation | None) -> None:
    """Mark another instrumentation's span of the running model call as a step of the operation `around`, so that the
    model call does not count as an answer."""
    span = model_call_of_another()
    if span is not None and around is not None:
        told = {semconv.OP_KIND: semconv.OpKind.OTHER.value, semconv.SYSTEM: around.system}
        purpose = {semconv.OP_PURPOSE: around.purpose} if around.purpose else {}
        span.set_attributes({**told, **purpose, semconv.SEQ: next_sequence()})


def _of_another(
    described: Mapping[str, frozenset[str]], announced: ContextVar[Span | None], name: str = ""
) -> Span | None:
    span = trace.get_current_span()
    attributes = _attributes(span)
    fits = any(attributes.get(key) in values for key, values in described.items())
    if not _is_open(span) or not (fits or (name and getattr(span, "name", "") == name)):
        span = announced.get()
    return span if span is not None and _is_open(span) else None


def _is_open(span: Span) -> bool:
    return span.is_recording() and semconv.OP_KIND not in _attributes(span)


def _attributes(span: Span) -> Mapping[str, object]:
    return cast("Mapping[str, object] | None", getattr(span, "attributes", None)) or {}


def around(span: Span) -> Context:
    """The context in which `span` was started: that of its parent."""
    parent = getattr(span, "parent", None)
    return trace.set_span_in_context(
        NonRecordingSpan(parent) if isinstance(parent, SpanContext) else trace.INVALID_SPAN
    )


class AdoptingTracer(Tracer):
    """A tracer whose first span is a span of another instrumentation; `tracer` starts the next ones."""

    def __init__(self, tracer: Tracer, span: Span) -> None:
        self._tracer, self._adopted = tracer, [span]

    def start_span(self, name: str, *args: Any, **kwargs: Any) -> Span:
        """Start a span, or add the attributes to the adopted span."""
        if not self._adopted:
            return self._tracer.start_span(name, *args, **kwargs)
        given = cast("Mapping[str, AttributeValue] | None", args[2] if len(args) > 2 else kwargs.get("attributes"))
        attributes = given or {}
        span = _Adopted(self._adopted.pop(), self._tracer, attributes)
        span.set_attributes(attributes)
        return span

    @contextmanager
    def start_as_current_span(self, name: str, *args: Any, **kwargs: Any) -> Generator[Span]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Start a span that is current within the block."""
        with trace.use_span(self.start_span(name, *args, **kwargs)) as span:
            yield span


class _Adopted(Span):
    """A span of another instrumentation: takes attributes and links of ours, but no name, status or end.

    If the span has ended (a stream that the program dropped), later attributes go on a continuation span.
    """

    def __init__(self, span: Span, tracer: Tracer, first: Mapping[str, AttributeValue]) -> None:
        self._span, self._tracer, self._first = span, tracer, first
        self._part: Span | None = None

    @property
    def parent(self) -> SpanContext | None:
        """The parent, as an SDK span has it; None if the span is the root of a trace."""
        return getattr(self._span, "parent", None)

    def _open(self) -> Span:
        """The span that takes attributes: the adopted one, or its continuation."""
        if self._part is None and not self._span.is_recording():
            told = {key: self._first[key] for key in (semconv.OP_KIND, semconv.SYSTEM) if key in self._first}
            name = f"{semconv.SPAN_NAME_PREFIX}{told.get(semconv.OP_KIND, semconv.OpKind.OTHER)}"
            within = trace.set_span_in_context(self._span)
            self._part = self._tracer.start_span(name, within, attributes={**told, semconv.PART: 1})
        return self._part or self._span

    def get_span_context(self) -> SpanContext:
        return self._span.get_span_context()

    def is_recording(self) -> bool:
        return self._span.is_recording()

    def set_attributes(self, attributes: Mapping[str, AttributeValue]) -> None:
        self._open().set_attributes({key: value for key, value in attributes.items() if key.startswith(_OURS)})

    def set_attribute(self, key: str, value: AttributeValue) -> None:
        self.set_attributes({key: value})

    def add_link(self, context: SpanContext, attributes: Attributes = None) -> None:
        self._open().add_link(context, attributes)

    def add_event(self, name: str, attributes: Attributes = None, timestamp: int | None = None) -> None:
        self._open().add_event(name, attributes, timestamp)

    def update_name(self, name: str) -> None:
        pass

    def set_status(self, status: Any, description: str | None = None) -> None:
        pass

    def record_exception(self, *args: Any, **kwargs: Any) -> None:
        pass

    def end(self, end_time: int | None = None) -> None:
        if self._part is not None:
            self._part.end(end_time)
