"""Taking the contents out of one span, one verdict: what is not known to be structure goes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from typing import Any, cast

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from memtrace_otel import semconv
from memtrace_otel.model import content_digest, is_known_label, make_origin, make_ref, split_ref
from memtrace_otel.otlp.mapped import read_texts
from memtrace_otel.otlp.values import encode_any
from memtrace_otel.semconv import Incomplete, RefKind

Pairs = RepeatedCompositeFieldContainer[KeyValue]
Rename = Callable[[str], str]

_STRUCTURE = frozenset(
    (
        *(semconv.OP_KIND, semconv.OP_PURPOSE, semconv.SYSTEM, semconv.SCOPE, semconv.INCOMPLETE, semconv.EVIDENCE),
        *(semconv.FLOW, semconv.EVENT_TIME),
        *(semconv.INPUTS, semconv.INPUTS_ROLES, semconv.INPUTS_ORIGINS, semconv.INPUTS_SCORES, semconv.INPUTS_DIGESTS),
        *(semconv.OUTPUTS, semconv.OUTPUTS_ROLES, semconv.OUTPUTS_ACTIONS, semconv.OUTPUTS_SIZES),
        semconv.OUTPUTS_DIGESTS,
        *(semconv.SMARTCOMMENT_GRAPH_ID, semconv.SMARTCOMMENT_OP_ID, semconv.SMARTCOMMENT_OP_NAME),
        *(semconv.SMARTCOMMENT_CATEGORY, semconv.SMARTCOMMENT_QUERY_ID),
        *(semconv.LINK_TYPE, semconv.LINK_REFS),
        *(semconv.GEN_AI_OPERATION_NAME, semconv.GEN_AI_PROVIDER_NAME, semconv.GEN_AI_REQUEST_MODEL),
        *(semconv.GEN_AI_RESPONSE_MODEL, semconv.GEN_AI_RESPONSE_ID, semconv.GEN_AI_MEMORY_STORE_ID),
        *(semconv.GEN_AI_MEMORY_RECORD_ID, semconv.GEN_AI_DATA_SOURCE_ID, semconv.CODE_FUNCTION_NAME),
        *(semconv.SERVER_ADDRESS, semconv.ERROR_TYPE, semconv.EVALUATION_NAME, semconv.EVALUATION_LABEL),
        *(semconv.FAILURE_TYPE, semconv.FAILURE_TRACE_ID, semconv.FAILURE_SPAN_ID, semconv.FAILURE_ANSWER),
        *(semconv.FAILURE_WHEN, semconv.FAILURE_OPERATION, semconv.FAILURE_VARIABLE, semconv.FAILURE_EVIDENCE),
        *(semconv.FAILURE_ALTERNATIVES, semconv.ATTRIBUTION_ID, semconv.ATTRIBUTION_METHOD),
        *(semconv.ATTRIBUTION_VERSION, semconv.ATTRIBUTION_REPLACES),
        *(semconv.STEP_ROLE, semconv.STEP_REF, semconv.STEP_ORIGIN),
        *(semconv.RETRIEVAL_SCORERS, semconv.OPENINFERENCE_SPAN_KIND),
    )
)
"""Attributes with text in them that stay, whatever it is but for labels. Numbers and truth values stay anyway."""

_VERDICT = frozenset(
    (
        *("trace_id", "span_id", "failure_type", "operation", "variable", "confidence", "alternatives", "evidence"),
        *("complete", "method", "version", "attribution_id"),
    )
)
_REFERENCES = (semconv.INPUTS_STORES, semconv.OUTPUTS_STORES)
_DIGESTS = (semconv.INPUTS_DIGESTS, semconv.OUTPUTS_DIGESTS)
_OF_INPUTS = (semconv.INPUTS_CONTENTS, semconv.INPUTS_STORES)
_COLUMNS = (semconv.INPUTS, semconv.INPUTS_ORIGINS, *_DIGESTS, *_OF_INPUTS)
_BY_DIGEST = re.compile(
    r"\b((?:message|query|document|chunk|fact|completion|expected|memory|state|prompt):(?:[^\s,|\"]*[/-])?)"
    r"([0-9a-f]{16})(?![0-9a-f])"
)
_DIGEST = re.compile(r"[0-9a-f]{16}")
_NAMES = (semconv.INPUTS, semconv.INPUTS_DIGESTS)
"""What names a version that was read."""


def renaming(key: str) -> Rename:
    """Return a function that replaces digests in refs: equal ones by equal ones, not to be undone without the key."""
    return lambda text: _BY_DIGEST.sub(lambda match: match[1] + content_digest(match[2], key), text)


def erase_span(span: Span, rename: Rename, others: Collection[str] = ()) -> list[str]:
    """Take every content out of `span`; return the references to whole contents that it had. What it read from the
    origins `others`, which stay as they are, it still names as they do."""
    references = [text for pair in span.attributes if pair.key in _REFERENCES for text in _texts(pair.value) if text]
    columns = _columns(span)
    read = [n for n, origin in enumerate(columns.get(semconv.INPUTS_ORIGINS, ())) if origin.string_value in others]
    named = [(key, n, columns[key][n].string_value) for key in _NAMES for n in read if n < len(columns.get(key, ()))]
    _keep_structure(span.attributes, rename)
    columns = _columns(span)
    for key, n, name in named:
        columns[key][n].string_value = name
    for event in span.events:
        _keep_structure(event.attributes, rename)
    for link in span.links:
        stays = make_origin(link.trace_id.hex(), link.span_id.hex()) in others
        _keep_structure(link.attributes, str if stays else rename)
        link.trace_state = ""
    span.status.message = ""
    span.trace_state = ""
    _mark(span)
    return references


def erase_inputs(span: Span, origins: Collection[str], rename: Rename) -> None:
    """Take out of `span` what it says of the versions that come from `origins`, and rename them in its links."""
    columns = _columns(span)
    refs, digests = (columns.get(key, ()) for key in _NAMES)
    for index, origin in enumerate(columns.get(semconv.INPUTS_ORIGINS, ())):
        if origin.string_value not in origins or index >= len(refs):
            continue
        refs[index].string_value = rename(refs[index].string_value)
        if index < len(digests):
            digests[index].string_value = _of_digest(rename)(digests[index].string_value)
        for key in _OF_INPUTS:
            if index < len(values := columns.get(key, ())):
                values[index].string_value = ""
    for link in span.links:
        if make_origin(link.trace_id.hex(), link.span_id.hex()) in origins:
            _keep_structure(link.attributes, rename)
    _mark(span)


def erase_verdict(document: str, rename: Rename) -> str:
    """Return a verdict's JSON text without its reason and anything else that may quote a content."""
    try:
        verdict: object = json.loads(document)
    except ValueError:
        return "{}"
    if not isinstance(verdict, dict):
        return "{}"
    verdict = cast("dict[str, Any]", verdict)
    kept = {key: value if key in _VERDICT else "" for key, value in verdict.items()}
    return rename(json.dumps(kept, ensure_ascii=False))


def _keep_structure(pairs: Pairs, rename: Rename) -> None:
    kept = [pair for pair in pairs if _is_structure(pair) or not _may_hold_text(pair.value)]
    special = {semconv.GEN_AI_MEMORY_RECORD_ID: _of_record, semconv.EVALUATION_LABEL: _of_label}
    special |= dict.fromkeys(_DIGESTS, _of_digest)
    for pair in kept:
        _rename(pair.value, special[pair.key](rename) if pair.key in special else rename)
    copies = [KeyValue.FromString(pair.SerializeToString()) for pair in kept]
    del pairs[:]
    pairs.extend(copies)


def _is_structure(pair: KeyValue) -> bool:
    return pair.key in _STRUCTURE and (pair.key != semconv.EVALUATION_LABEL or pair.value.HasField("string_value"))


def _of_label(rename: Rename) -> Rename:
    """A label that is no word of the contract may be a sentence. One stays: the evaluation is still the newest."""
    return lambda label: label if not label.strip() or is_known_label(label) else Incomplete.FORGOTTEN


def _of_record(rename: Rename) -> Rename:
    """A record is named by the id alone, as its ref names it."""

    def renamed(id: str) -> str:
        ref = make_ref(RefKind.MEMORY, id)
        new = rename(ref)
        return id if new == ref else split_ref(new)[1]

    return renamed


def _of_digest(rename: Rename) -> Rename:
    """A digest is what is in a ref by digest; what is no digest of ours may tell the content, and goes."""
    ref = f"{RefKind.CHUNK}:"
    return lambda digest: rename(ref + digest).removeprefix(ref) if _DIGEST.fullmatch(digest) else ""


def _columns(span: Span) -> dict[str, RepeatedCompositeFieldContainer[AnyValue]]:
    """Return the arrays of a span by name; those that a backend keeps as JSON texts become arrays."""
    for pair in span.attributes:
        if pair.key in _COLUMNS and pair.value.string_value and (texts := read_texts(pair.value.SerializeToString())):
            pair.value.CopyFrom(encode_any(texts))
    return {pair.key: pair.value.array_value.values for pair in span.attributes}


def _may_hold_text(value: AnyValue) -> bool:
    return value.WhichOneof("value") not in ("int_value", "double_value", "bool_value")


def _rename(value: AnyValue, rename: Rename) -> None:
    if value.HasField("string_value"):
        value.string_value = rename(value.string_value)
    for item in value.array_value.values if value.HasField("array_value") else ():
        _rename(item, rename)


def _texts(value: AnyValue) -> list[str]:
    return [item.string_value for item in value.array_value.values]


def _mark(span: Span) -> None:
    """Add `forgotten` to `memtrace.incomplete`, once."""
    forgotten = AnyValue(string_value=semconv.Incomplete.FORGOTTEN)
    for pair in span.attributes:
        if pair.key == semconv.INCOMPLETE:
            if forgotten not in pair.value.array_value.values:
                pair.value.array_value.values.append(forgotten)
            return
    span.attributes.append(KeyValue(key=semconv.INCOMPLETE, value=AnyValue(array_value=ArrayValue(values=[forgotten]))))
