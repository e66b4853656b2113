"""Checks one recorded span against the wire contract: names, types and forms of values, arrays, links, budgets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext

from memtrace_otel import semconv
from memtrace_otel.model import make_origin, ref_kind
from memtrace_otel.semconv import Action, LinkType, OpKind, RefKind, Role

MAX_ATTRIBUTES = 64
MAX_LINKS = 32
MAX_BYTES = 8192
"""Of a span with several variables, as OTLP; resource and scope do not count. One variable may need more."""

TYPES: Mapping[str, str] = {
    **dict.fromkeys((semconv.OP_KIND, semconv.OP_PURPOSE, semconv.SYSTEM, semconv.SCOPE), "string"),
    semconv.RECORD_OWNER: "string",
    **dict.fromkeys((semconv.SEQ, semconv.PART, semconv.LOST), "int"),
    **dict.fromkeys((semconv.INCOMPLETE, semconv.FLOW, semconv.EVENT_TIME, semconv.EVIDENCE), "string[]"),
    **dict.fromkeys((semconv.INPUTS, semconv.INPUTS_ROLES, semconv.INPUTS_ORIGINS), "string[]"),
    **dict.fromkeys((semconv.INPUTS_DIGESTS, semconv.INPUTS_CONTENTS, semconv.INPUTS_STORES), "string[]"),
    **dict.fromkeys((semconv.OUTPUTS, semconv.OUTPUTS_ROLES, semconv.OUTPUTS_ACTIONS), "string[]"),
    **dict.fromkeys((semconv.OUTPUTS_DIGESTS, semconv.OUTPUTS_CONTENTS, semconv.OUTPUTS_STORES), "string[]"),
    **dict.fromkeys((semconv.RETRIEVAL_FILTERS, semconv.RETRIEVAL_SCORERS), "string[]"),
    semconv.INPUTS_SCORES: "double[]",
    semconv.OUTPUTS_SIZES: "int[]",
    semconv.RETRIEVAL_THRESHOLD: "double",
}
"""Every attribute of ours that an operation span may carry, with its type in the registry."""
_PYTHON: Mapping[str, type] = {"string": str, "int": int, "double": float}


def _any_of(words: Iterable[str]) -> str:
    return "|".join(map(re.escape, words))


_REF = rf"({_any_of(RefKind)}):[^\s,]*"
_DIGEST, _URI = "([0-9a-f]{16})?", r"([A-Za-z][A-Za-z0-9+.-]*:\S+)?"
_DATE = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
_TIME = r"([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)"
_FORMS: Mapping[str, re.Pattern[str]] = {
    key: re.compile(form)
    for key, form in {
        semconv.OP_KIND: _any_of(OpKind),
        semconv.SCOPE: "[0-9a-f]{16}",
        semconv.RECORD_OWNER: "[0-9a-f]{16}",
        semconv.PART: r"[1-9]\d*",
        semconv.FLOW: r"\d+>\d+",
        semconv.EVENT_TIME: rf"({_DATE}[Tt ]{_TIME})?",
        semconv.EVIDENCE: _REF,
        semconv.INPUTS: _REF,
        semconv.INPUTS_ROLES: _any_of(Role),
        semconv.INPUTS_ORIGINS: "([0-9a-f]{32}-[0-9a-f]{16})?",
        semconv.INPUTS_DIGESTS: _DIGEST,
        semconv.INPUTS_STORES: _URI,
        semconv.OUTPUTS: _REF,
        semconv.OUTPUTS_ROLES: _any_of(Role),
        semconv.OUTPUTS_ACTIONS: _any_of(Action),
        semconv.OUTPUTS_DIGESTS: _DIGEST,
        semconv.OUTPUTS_SIZES: r"\d+",
        semconv.OUTPUTS_STORES: _URI,
    }.items()
}
"""What each value, or each one of an array, looks like."""

_REQUIRED = (semconv.OP_KIND, semconv.SYSTEM, semconv.SEQ)
_WITH_INPUTS = (semconv.INPUTS_ROLES, semconv.INPUTS_ORIGINS, semconv.INPUTS_DIGESTS)
_WITH_OUTPUTS = (semconv.OUTPUTS_ROLES, semconv.OUTPUTS_ACTIONS, semconv.OUTPUTS_DIGESTS, semconv.OUTPUTS_SIZES)
_KINDS: Mapping[str, frozenset[OpKind]] = {
    semconv.CREATE_MEMORY_STORE: frozenset({OpKind.CREATE, OpKind.OTHER}),
    semconv.SEARCH_MEMORY: frozenset({OpKind.RETRIEVE}),
    semconv.CREATE_MEMORY: frozenset({OpKind.CREATE, OpKind.INGEST, OpKind.CONSOLIDATE}),
    semconv.UPDATE_MEMORY: frozenset({OpKind.UPDATE, OpKind.CONSOLIDATE}),
    semconv.UPSERT_MEMORY: frozenset({OpKind.INGEST, OpKind.CREATE, OpKind.UPDATE, OpKind.CONSOLIDATE}),
    semconv.DELETE_MEMORY: frozenset({OpKind.DELETE}),
    semconv.DELETE_MEMORY_STORE: frozenset({OpKind.DELETE}),
    semconv.RETRIEVAL: frozenset({OpKind.RETRIEVE, OpKind.RERANK}),
}
"""What an operation of the conventions can be; a model call can be a step of anything."""
_WRITING = frozenset({OpKind.CREATE, OpKind.UPDATE, OpKind.DELETE})
_RANKING = frozenset({OpKind.RETRIEVE, OpKind.RERANK})


def violations(span: ReadableSpan) -> list[str]:
    """Return what a finished span of ours breaks of the wire contract, [] for a good one.

    Continuation spans are checked against the same lists; whether all parts of an operation are there is the graph's
    business.
    """
    return list(_violations(span, dict(span.attributes or {})))


def _violations(span: ReadableSpan, attributes: Mapping[str, Any]) -> Iterator[str]:
    for key in _REQUIRED:
        if attributes.get(key) in (None, ""):
            yield f"{key} is missing"
    wrong = dict(_wrong_values(attributes))
    yield from wrong.values()
    known = {key: value for key, value in attributes.items() if key not in wrong}
    kind = str(attributes.get(semconv.OP_KIND))
    yield from _name(span, attributes, kind)
    if semconv.SCOPE not in attributes and _touches_memory(known, kind) and not span.status.description:
        yield f"{semconv.SCOPE} is missing on a span of kind {kind}"
    yield from _arrays(attributes, known, semconv.INPUTS, _WITH_INPUTS)
    yield from _arrays(attributes, known, semconv.OUTPUTS, _WITH_OUTPUTS)
    if semconv.INPUTS_SCORES in known and kind not in _RANKING:
        yield f"{semconv.INPUTS_SCORES} on a span of kind {kind}"
    yield from _flow(known)
    yield from _links(span, known)
    size = encode_spans([span]).resource_spans[0].scope_spans[0].spans[0].ByteSize()
    variables = sum(len(known.get(key, ())) for key in (semconv.INPUTS, semconv.OUTPUTS))
    if size > MAX_BYTES and variables > 1:  # one variable is never divided
        yield f"{size} bytes, at most {MAX_BYTES} fit"
    if len(attributes) > MAX_ATTRIBUTES:
        yield f"{len(attributes)} attributes, at most {MAX_ATTRIBUTES} fit"


def _wrong_values(attributes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong with attributes of ours, by name: one that no operation has, or of another type or form."""
    for key, value in attributes.items():
        if key not in TYPES:
            if key.startswith(semconv.SPAN_NAME_PREFIX):
                yield key, f"{key} is no attribute of an operation"
            continue
        is_array = isinstance(value, list | tuple)
        values = cast(Sequence[Any], value) if is_array else (value,)
        element = _PYTHON[TYPES[key].removesuffix("[]")]
        if is_array != TYPES[key].endswith("[]") or any(
            not isinstance(one, element) or isinstance(one, bool) for one in values
        ):
            yield key, f"{key} is {value!r}, no {TYPES[key]}"
        elif key in _FORMS:
            odd = [one for one in values if not _FORMS[key].fullmatch(str(one))]
            if odd:
                yield key, f"{key} holds {', '.join(map(repr, odd))}"


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
    elif kind not in _KINDS.get(operation, kind):
        yield f"{operation} is of kind {kind}"


def _touches_memory(known: Mapping[str, Any], kind: str) -> bool:
    """Whether it writes memory, or searches it (a retrieval may be of documents, which nobody owns)."""
    searched = known.get(semconv.GEN_AI_OPERATION_NAME) == semconv.SEARCH_MEMORY
    found = any(ref_kind(ref) == RefKind.MEMORY for ref in known.get(semconv.INPUTS, ()))
    return kind in _WRITING or (kind == OpKind.RETRIEVE and (searched or found))


def _arrays(
    attributes: Mapping[str, Any], known: Mapping[str, Any], refs_key: str, required: Sequence[str]
) -> Iterator[str]:
    refs = attributes.get(refs_key, ())
    for key in required:
        if refs and key not in attributes:
            yield f"{key} is missing"
    also = (semconv.EVENT_TIME,) if refs_key == semconv.OUTPUTS else ()
    for key in (*(key for key in known if key.startswith(f"{refs_key}.")), *also):
        if key in known and len(known[key]) != len(refs):
            yield f"{key} has {len(known[key])} values for {len(refs)} of {refs_key}"


def _flow(known: Mapping[str, Any]) -> Iterator[str]:
    given, made = len(known.get(semconv.INPUTS, ())), len(known.get(semconv.OUTPUTS, ()))
    whole = semconv.PART not in known  # indices go over all parts of an operation
    for pair in known.get(semconv.FLOW, ()):
        i, _, o = pair.partition(">")
        if whole and given and made and (int(i) >= given or int(o) >= made):
            yield f"{semconv.FLOW} {pair} points outside {given} inputs and {made} outputs"


def _links(span: ReadableSpan, known: Mapping[str, Any]) -> Iterator[str]:
    if len(span.links) > MAX_LINKS:
        yield f"{len(span.links)} links, at most {MAX_LINKS} fit"
    own = {_origin(span.context), _origin(span.parent) if semconv.PART in known else ""}
    read: dict[str, set[str]] = {}
    for ref, origin in zip(known.get(semconv.INPUTS, ()), known.get(semconv.INPUTS_ORIGINS, ()), strict=False):
        if origin and origin not in own:
            read.setdefault(origin, set()).add(ref)
    linked = Counter(_origin(link.context) for link in span.links)
    if not span.dropped_links:
        yield from (f"no link to the origin {origin}" for origin in read if origin not in linked)
    yield from (f"{many} links to {origin}" for origin, many in linked.items() if many > 1)
    for link in span.links:
        values, target = link.attributes or {}, _origin(link.context)
        refs = cast(Sequence[str], values.get(semconv.LINK_REFS) or ())
        if values.get(semconv.LINK_TYPE) not in frozenset(LinkType) or not refs:
            yield f"a link without type and refs: {dict(values)!r}"
        elif not set(refs) <= read.get(target, set()):
            yield f"a link to {target} with refs that were not read from it: {', '.join(refs)}"


def _origin(context: SpanContext | None) -> str:
    return make_origin(f"{context.trace_id:032x}", f"{context.span_id:016x}") if context else ""
