"""The variables of an operation as attributes and links, on its own span and on continuations where they are many."""

from __future__ import annotations

import itertools
import os
from functools import lru_cache

from opentelemetry import trace
from opentelemetry.trace import Span, SpanContext, TraceFlags, Tracer
from opentelemetry.util.types import AttributeValue

from memtrace_otel import semconv
from memtrace_otel.capture.config import CaptureConfig
from memtrace_otel.capture.content import describe, digest
from memtrace_otel.capture.fork import after_fork
from memtrace_otel.capture.layout import Inputs, Outputs, Part, Read, Written
from memtrace_otel.model import is_origin, split_origin
from memtrace_otel.semconv import Incomplete, LinkType, Role

_LINK_OF_ROLE = {
    str(Role.HIT): str(LinkType.RETRIEVED),
    str(Role.CONTEXT): str(LinkType.RETRIEVED),
    str(Role.CANDIDATE): str(LinkType.CONSIDERED),
    str(Role.PREVIOUS): str(LinkType.SUPERSEDES),
    str(Role.ANSWER): str(LinkType.EVALUATES),
}
_DERIVED = str(LinkType.DERIVED_FROM)
_MAX_LINK_REFS = 16  # the arrays name them all
_PROCESS_BITS = 21  # a number stays below 2**53, which JSON readers take exactly


def _new_sequence() -> itertools.count[int]:
    process = int.from_bytes(os.urandom(4)) >> (32 - _PROCESS_BITS)
    return itertools.count((process << semconv.SEQ_BITS) + 1)


_sequence = _new_sequence()


def next_sequence() -> int:
    """The next `memtrace.seq` of this process."""
    return next(_sequence)


@after_fork
def _after_fork() -> None:
    global _sequence
    _sequence = _new_sequence()


def described(read: list[Read], written: list[Written], limits: CaptureConfig) -> tuple[Inputs, Outputs, list[str]]:
    """Describe all contents; return inputs, outputs, and why they show less than there was.

    The text of a version is shown where it was made, so of the inputs only those without an origin are.
    """
    reasons: list[str] = []
    inputs, outputs = _inputs(read, limits, reasons), _outputs(written, limits, reasons)
    if not limits.content and (any(inputs.digests) or any(outputs.digests)):
        reasons.append(Incomplete.CONTENT_OFF)
    return inputs, outputs, reasons


def _inputs(read: list[Read], limits: CaptureConfig, reasons: list[str]) -> Inputs:
    if limits.content or limits.store is not None:
        digests: list[str] = []
        contents: list[str] = []
        stores: list[str] = []
        for _, _, origin, text, _ in read:
            seen, _, content, uri, why = describe(text, limits, inline=not origin)
            digests.append(seen)
            contents.append(content)
            stores.append(uri)
            reasons += why
    else:
        digests = [digest(entry[3], limits) if entry[3] else "" for entry in read]
        contents = stores = [""] * len(read)
    return Inputs(
        [entry[0] for entry in read],
        [entry[1] for entry in read],
        [entry[2] for entry in read],
        digests,
        contents,
        [entry[4] for entry in read],
        stores,
    )


def _outputs(written: list[Written], limits: CaptureConfig, reasons: list[str]) -> Outputs:
    outputs = Outputs([], [], [], [], [], [], [], [])
    for ref, role, action, text, store, event_time in written:
        made, size, content, uri, why = describe(text, limits, inline=True)
        reasons += why
        outputs.refs.append(ref)
        outputs.roles.append(role)
        outputs.actions.append(action)
        outputs.digests.append(made)
        outputs.sizes.append(size)
        outputs.contents.append(content)
        outputs.stores.append(store or uri)
        outputs.event_times.append(event_time)
    return outputs


def write_part(span: Span, attributes: dict[str, AttributeValue], part: Part, own: str) -> None:
    """Put `attributes` and one part of the variables on a span, with a link to each origin but `own`."""
    part.inputs.put_on(attributes)
    part.outputs.put_on(attributes)
    if part.flow:
        attributes[semconv.FLOW] = [f"{i}>{o}" for i, o in part.flow]
    span.set_attributes(attributes)
    roles: dict[str, str] = {}
    refs: dict[str, list[str]] = {}
    for ref, role, origin in zip(part.inputs.refs, part.inputs.roles, part.inputs.origins, strict=True):
        if origin in refs:
            refs[origin].append(ref)
        elif origin and origin != own:
            roles[origin], refs[origin] = role, [ref]
    for origin, role in roles.items():
        if (target := span_context(origin)) is not None:
            link_type = _LINK_OF_ROLE.get(role, _DERIVED)
            span.add_link(target, {semconv.LINK_TYPE: link_type, semconv.LINK_REFS: refs[origin][:_MAX_LINK_REFS]})


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
