"""Checks one recorded span against the wire contract: names, types of values, parallel arrays, budgets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan

from memtrace_otel import semconv
from memtrace_otel.model import is_origin, ref_kind
from memtrace_otel.semconv import Action, LinkType, OpKind, RefKind, Role

MAX_ATTRIBUTES = 64
MAX_LINKS = 32
MAX_BYTES = 8192
"""Of the span itself, as OTLP; its resource and scope do not count."""

_STRINGS, _INTS, _DOUBLES = (str,), (int,), (float,)
_INPUTS: Mapping[str, tuple[type, ...]] = {
    semconv.INPUTS_ROLES: _STRINGS,
    semconv.INPUTS_ORIGINS: _STRINGS,
    semconv.INPUTS_DIGESTS: _STRINGS,
    semconv.INPUTS_CONTENTS: _STRINGS,
    semconv.INPUTS_SCORES: _DOUBLES,
    semconv.INPUTS_STORES: _STRINGS,
}
_OUTPUTS: Mapping[str, tuple[type, ...]] = {
    semconv.OUTPUTS_ROLES: _STRINGS,
    semconv.OUTPUTS_ACTIONS: _STRINGS,
    semconv.OUTPUTS_DIGESTS: _STRINGS,
    semconv.OUTPUTS_SIZES: _INTS,
    semconv.OUTPUTS_CONTENTS: _STRINGS,
    semconv.OUTPUTS_STORES: _STRINGS,
    semconv.EVENT_TIME: _STRINGS,
}
_REQUIRED = (semconv.INPUTS_ROLES, semconv.INPUTS_ORIGINS, semconv.INPUTS_DIGESTS)
_REQUIRED_OUT = (semconv.OUTPUTS_ROLES, semconv.OUTPUTS_ACTIONS, semconv.OUTPUTS_DIGESTS, semconv.OUTPUTS_SIZES)
_ENUMS: Mapping[str, frozenset[str]] = {
    semconv.INPUTS_ROLES: frozenset(Role),
    semconv.OUTPUTS_ROLES: frozenset(Role),
    semconv.OUTPUTS_ACTIONS: frozenset(Action),
}
_TOUCHING_MEMORY = frozenset({OpKind.CREATE, OpKind.UPDATE, OpKind.DELETE})


def violations(span: ReadableSpan) -> list[str]:
    """Return what a finished span of ours breaks of the wire contract, [] for a good one.

    Continuation spans are checked against the same lists; whether all parts of an operation are there is the graph's
    business.
    """
    return list(_violations(span, dict(span.attributes or {})))


def _violations(span: ReadableSpan, attributes: Mapping[str, Any]) -> Iterator[str]:
    kind = attributes.get(semconv.OP_KIND)
    if kind not in frozenset(OpKind):
        yield f"{semconv.OP_KIND} is {kind!r}"
    if not attributes.get(semconv.SYSTEM):
        yield f"{semconv.SYSTEM} is missing"
    if not isinstance(attributes.get(semconv.SEQ), int):
        yield f"{semconv.SEQ} is missing"
    yield from _name(span, attributes, str(kind))
    scope = attributes.get(semconv.SCOPE, "")
    if scope and (len(scope) != 16 or not set(scope) <= set("0123456789abcdef")):
        yield f"{semconv.SCOPE} is no 16 hex digits: {scope!r}"
    if not scope and kind in _TOUCHING_MEMORY and not span.status.description:
        yield f"{semconv.SCOPE} is missing on a span of kind {kind}"
    yield from _arrays(attributes, semconv.INPUTS, _INPUTS, _REQUIRED)
    yield from _arrays(attributes, semconv.OUTPUTS, _OUTPUTS, _REQUIRED_OUT)
    yield from _flow(attributes)
    yield from _links(span)
    size = encode_spans([span]).resource_spans[0].scope_spans[0].spans[0].ByteSize()
    if size > MAX_BYTES:
        yield f"{size} bytes, at most {MAX_BYTES} fit"
    if len(attributes) > MAX_ATTRIBUTES:
        yield f"{len(attributes)} attributes, at most {MAX_ATTRIBUTES} fit"


def _name(span: ReadableSpan, attributes: Mapping[str, Any], kind: str) -> Iterator[str]:
    operation = attributes.get(semconv.GEN_AI_OPERATION_NAME)
    if operation is None:
        if span.name != semconv.SPAN_NAME_PREFIX + kind:
            yield f"a step without a standard name is called {semconv.SPAN_NAME_PREFIX}{kind}, not {span.name!r}"
    elif operation not in semconv.KIND_OF_OPERATION:
        yield f"{operation!r} is no operation name of the conventions"
    elif span.name != operation and not (
        operation in (semconv.CHAT, semconv.RETRIEVAL) and span.name.startswith(f"{operation} ")
    ):
        yield f"the span of {operation} is called {span.name!r}"


def _arrays(
    attributes: Mapping[str, Any], refs_key: str, columns: Mapping[str, tuple[type, ...]], required: Sequence[str]
) -> Iterator[str]:
    refs = cast(Sequence[str], attributes.get(refs_key, ()))
    for ref in refs:
        if ref_kind(ref) not in frozenset(RefKind) or any(c.isspace() or c == "," for c in ref):
            yield f"{refs_key} holds {ref!r}, which is no ref"
    for key, types in columns.items():
        values = attributes.get(key)
        if values is None:
            if refs and key in required:
                yield f"{key} is missing"
            continue
        if len(values) != len(refs):
            yield f"{key} has {len(values)} values for {len(refs)} of {refs_key}"
        if any(not isinstance(value, types) or isinstance(value, bool) for value in values):
            yield f"{key} holds another type than {types[0].__name__}"
        unknown = set(values) - _ENUMS[key] if key in _ENUMS else set[str]()
        if unknown:
            yield f"{key} holds {', '.join(map(repr, sorted(unknown)))}"
    if refs_key == semconv.INPUTS:
        for origin in attributes.get(semconv.INPUTS_ORIGINS, ()):
            if origin and not is_origin(origin):
                yield f"{semconv.INPUTS_ORIGINS} holds {origin!r}"


def _flow(attributes: Mapping[str, Any]) -> Iterator[str]:
    given, made = len(attributes.get(semconv.INPUTS, ())), len(attributes.get(semconv.OUTPUTS, ()))
    whole = semconv.PART not in attributes  # indices go over all parts of an operation
    for pair in attributes.get(semconv.FLOW, ()):
        i, separator, o = pair.partition(">")
        if not (separator and i.isdigit() and o.isdigit()):
            yield f"{semconv.FLOW} holds {pair!r}"
        elif whole and given and made and (int(i) >= given or int(o) >= made):
            yield f"{semconv.FLOW} {pair} points outside {given} inputs and {made} outputs"


def _links(span: ReadableSpan) -> Iterator[str]:
    if len(span.links) > MAX_LINKS:
        yield f"{len(span.links)} links, at most {MAX_LINKS} fit"
    for link in span.links:
        values = link.attributes or {}
        if values.get(semconv.LINK_TYPE) not in frozenset(LinkType) or not values.get(semconv.LINK_REFS):
            yield f"a link without type and refs: {dict(values)!r}"
