"""Writes the variables of an operation on its span, and on continuation spans, as attributes and links."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from functools import lru_cache

from opentelemetry import trace
from opentelemetry.trace import Span, SpanContext, TraceFlags, Tracer
from opentelemetry.util.types import AttributeValue

from memtrace_otel import semconv
from memtrace_otel.capture.config import CaptureConfig
from memtrace_otel.capture.content import describe, digest, plain, show
from memtrace_otel.capture.fork import after_fork
from memtrace_otel.capture.layout import Inputs, Outputs, Part, Read, Written
from memtrace_otel.model import content_digests, encoded_refs, is_origin, split_origin
from memtrace_otel.semconv import Incomplete, LinkType, Role

_LINK_OF_ROLE = {
    str(Role.HIT): str(LinkType.RETRIEVED),
    str(Role.CONTEXT): str(LinkType.RETRIEVED),
    str(Role.CANDIDATE): str(LinkType.CONSIDERED),
    str(Role.PREVIOUS): str(LinkType.SUPERSEDES),
    str(Role.ANSWER): str(LinkType.EVALUATES),
}
_DERIVED = str(LinkType.DERIVED_FROM)
_CONTENT_OFF = str(Incomplete.CONTENT_OFF)
_MAX_LINK_REFS = 16  # the arrays name them all
_DEFAULT_LINK_ATTRIBUTES = 128
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
    """Describe all contents; return inputs, outputs, and the reasons why the span shows less than all.

    The text of a version is shown where it was made, so of the inputs only those without an origin are.
    """
    reasons: list[str] = []
    # Comprehensions: a `zip` of the rows takes half as long again.
    refs, roles, origins = [one[0] for one in read], [one[1] for one in read], [one[2] for one in read]
    given, nothing = [one[3] for one in read], [""] * len(read)
    inputs = Inputs(encoded_refs(refs), roles, origins, nothing, nothing, [one[4] for one in read])
    refs, roles, actions = [one[0] for one in written], [one[1] for one in written], [one[2] for one in written]
    made, nothing = [one[3] for one in written], [""] * len(written)
    stores, times = [one[4] for one in written], [one[5] for one in written]
    outputs = Outputs(encoded_refs(refs), roles, actions, nothing, [], nothing, stores, times)
    if plain([*given, *made], limits):
        inputs.digests = content_digests(given, limits.digest_key)
        outputs.digests, outputs.sizes = content_digests(made, limits.digest_key), [len(text) for text in made]
        if limits.content:
            inputs.contents = ["" if origin else text for origin, text in zip(origins, given, strict=True)]
            outputs.contents = made
    else:
        _describe_inputs(inputs, given, limits, reasons)
        _describe_outputs(outputs, made, limits, reasons)
    if not limits.content and (any(inputs.digests) or any(outputs.digests)):
        reasons.append(_CONTENT_OFF)
    return inputs, outputs, reasons


def _describe_inputs(inputs: Inputs, texts: list[str], limits: CaptureConfig, reasons: list[str]) -> None:
    if not limits.content:
        inputs.digests = [digest(text, limits) if text else "" for text in texts]
        return
    done = [describe(text, limits, inline=not origin) for text, origin in zip(texts, inputs.origins, strict=True)]
    inputs.digests, inputs.contents = [one.digest for one in done], [one.shown for one in done]
    reasons += [why for one in done for why in one.reasons]


def _describe_outputs(outputs: Outputs, texts: list[str], limits: CaptureConfig, reasons: list[str]) -> None:
    done = [describe(text, limits, inline=True) for text in texts]
    outputs.digests, outputs.contents = [one.digest for one in done], [one.shown for one in done]
    outputs.sizes = [one.size for one in done]
    reasons += [why for one in done for why in one.reasons]


def shown_error(error: BaseException, limits: CaptureConfig) -> str:
    """The status message of an error: with its text only if content capture is on."""
    name = type(error).__name__
    try:
        return show(f"{name}: {error}" if limits.content else name, limits, 200)
    except Exception:  # a hostile __str__ of the observed program
        return name


def write_part(span: Span, attributes: dict[str, AttributeValue], part: Part, own: str) -> None:
    """Put `attributes` and one part of the variables on a span, with a link to each origin but `own`."""
    inputs, outputs, flow = part
    inputs.put_on(attributes)
    outputs.put_on(attributes)
    if flow is not None:
        attributes[semconv.FLOW] = [f"{i}>{o}" for i, o in flow]
    span.set_attributes(attributes)
    links: dict[str, tuple[str, list[str]]] = {}
    for ref, role, origin in zip(inputs.refs, inputs.roles, inputs.origins, strict=True):
        if origin in links:
            if ref not in links[origin][1]:
                links[origin][1].append(ref)
        elif origin and origin != own:
            links[origin] = role, [ref]
    add_link = _link_adder(span)
    for origin, (role, refs) in links.items():
        if (target := span_context(origin)) is not None:
            link_type = _LINK_OF_ROLE.get(role, _DERIVED)
            add_link(target, {semconv.LINK_TYPE: link_type, semconv.LINK_REFS: tuple(refs[:_MAX_LINK_REFS])})


def _link_adder(span: Span) -> Callable[[SpanContext, dict[str, AttributeValue]], None]:
    """`span.add_link`, without the SDK's copy and check of the attributes if the user has set no limits: the bench row
    "operation" needs this fifth of a bare span."""
    add, limits = getattr(span, "_add_link", None), getattr(span, "_limits", None)
    if add is None or getattr(limits, "max_attribute_length", 0) is not None:
        return span.add_link
    if getattr(limits, "max_link_attributes", 0) != _DEFAULT_LINK_ATTRIBUTES:
        return span.add_link
    return lambda target, attributes: add(trace.Link(target, attributes))


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
