"""The variables of an operation as attributes and links, on its own span and on continuations where they are many."""

from __future__ import annotations

import itertools
from functools import lru_cache

from opentelemetry import trace
from opentelemetry.trace import Span, SpanContext, TraceFlags, Tracer
from opentelemetry.util.types import AttributeValue

from memtrace_otel import semconv
from memtrace_otel.capture.config import CaptureConfig
from memtrace_otel.capture.content import Described, describe
from memtrace_otel.capture.layout import Input, Output, Part, Read, Written
from memtrace_otel.model import is_origin, split_origin
from memtrace_otel.semconv import Incomplete, LinkType, Role

_LINK_OF_ROLE = {
    str(Role.HIT): str(LinkType.RETRIEVED),
    str(Role.CONTEXT): str(LinkType.RETRIEVED),
    str(Role.CANDIDATE): str(LinkType.CONSIDERED),
    str(Role.PREVIOUS): str(LinkType.SUPERSEDES),
    str(Role.ANSWER): str(LinkType.EVALUATES),
}
_EMPTY = Described("", 0)
_DERIVED = str(LinkType.DERIVED_FROM)
_MAX_LINK_REFS = 16  # the arrays name them all
_sequence = itertools.count(1)


def next_sequence() -> int:
    """The next `memtrace.seq` of this process."""
    return next(_sequence)


def described(
    read: list[Read], written: list[Written], limits: CaptureConfig
) -> tuple[list[Input], list[Output], list[str]]:
    """Describe all contents; return inputs, outputs, and why they show less than there was.

    The text of a version is shown where it was made, so of the inputs only those without an origin are.
    """
    inputs: list[Input] = []
    outputs: list[Output] = []
    reasons: list[str] = []
    for ref, role, origin, text, score in read:
        content = describe(text, limits, inline=not origin) if text else _EMPTY
        inputs.append((ref, role, origin, content.digest, content.shown, score))
        reasons += content.reasons
    for ref, role, action, text, store, event_time in written:
        content = describe(text, limits, inline=True) if text else _EMPTY
        outputs.append(
            (ref, role, action, content.digest, content.size, content.shown, store or content.store, event_time)
        )
        reasons += content.reasons
    if not limits.content and any(entry[3] for entry in (*inputs, *outputs)):
        reasons.append(Incomplete.CONTENT_OFF)
    return inputs, outputs, reasons


def write_part(span: Span, attributes: dict[str, AttributeValue], part: Part, own: str) -> None:
    """Put `attributes` and one part of the variables on a span, with a link to each origin but `own`."""
    span.set_attributes(attributes | part.attributes())
    linked: dict[str, tuple[str, list[str]]] = {}
    for ref, role, origin, _, _, _ in part.inputs:
        if origin in linked:
            linked[origin][1].append(ref)
        elif origin and origin != own:
            linked[origin] = role, [ref]
    for origin, (role, refs) in linked.items():
        if (target := span_context(origin)) is not None:
            link_type = _LINK_OF_ROLE.get(role, _DERIVED)
            span.add_link(target, {semconv.LINK_TYPE: link_type, semconv.LINK_REFS: refs[:_MAX_LINK_REFS]})


def write_continuation(
    tracer: Tracer, parent: Span, attributes: dict[str, AttributeValue], part: Part, own: str
) -> None:
    """Put a further part of the variables on a child span of its own."""
    name = semconv.SPAN_NAME_PREFIX + str(attributes[semconv.OP_KIND])
    span = tracer.start_span(name, context=trace.set_span_in_context(parent))
    try:
        attributes[semconv.SEQ] = next_sequence()
        write_part(span, attributes, part, own)
    finally:
        span.end()


@lru_cache(maxsize=4096)
def span_context(origin: str) -> SpanContext | None:
    """The span that an origin names, as the target of a link; None when it is not an origin."""
    if not is_origin(origin):
        return None
    trace_id, span_id = split_origin(origin)
    return SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(TraceFlags.SAMPLED))
