"""`memtrace_origin` in the payloads of stored records: added where Mem0 writes to a store, removed where Mem0 reads.

The key reaches neither prompts nor results. The value is `<origin>/<digest of the text>`. Mem0 2.x copies the key
when a process without instrumentation updates a record. The digest then shows that the origin belongs to an older text.
The key is always removed on reads, and added on writes only when MEMTRACE_RECORD_ORIGIN is on.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any, cast

from memtrace_otel.instrumentation.mem0.values import field
from memtrace_otel.instrumentation.steps import Call
from memtrace_otel.model import content_digest, is_origin
from memtrace_otel.semconv import RECORD_ORIGIN_KEY

Marks = dict[str, tuple[str, str]]
"""(text, value of the key) by record id."""


def marked(payload: Mapping[str, Any], origin: str) -> Mapping[str, Any]:
    """A copy of a payload that names the span that wrote this text; the payload itself without an origin."""
    return remarked(payload, f"{origin}/{content_digest(str(payload.get('data', '')))}") if origin else payload


def remarked(payload: Mapping[str, Any], mark: str) -> Mapping[str, Any]:
    """A copy of a payload with a mark that was removed on the read."""
    return {**payload, RECORD_ORIGIN_KEY: mark}


def origin_of(text: str, mark: str) -> str:
    """The origin that a mark gives to a text; '' when the mark belongs to another text."""
    origin, _, digest = mark.partition("/")
    return origin if is_origin(origin) and digest in ("", content_digest(text)) else ""


def unmarked(found: Any, marks: Marks) -> Any:
    """The rows of a store without their marks, which are added to `marks`; rows without a mark stay the same objects.

    A row with a mark is copied, because a store may return the object that it holds.
    """
    if type(found) in (list, tuple):
        rows = [unmarked(item, marks) for item in found]
        changed = any(row is not item for row, item in zip(rows, found, strict=True))
        return type(found)(rows) if changed else found
    payload = field(found, "payload")
    if not isinstance(payload, Mapping) or RECORD_ORIGIN_KEY not in payload:
        return found
    plain = dict(cast("Mapping[str, Any]", payload))
    marks[str(field(found, "id"))] = str(plain.get("data", "")), str(plain.pop(RECORD_ORIGIN_KEY))
    if isinstance(found, Mapping):
        return {**cast("Mapping[str, Any]", found), "payload": plain}
    row = copy.copy(found)
    row.payload = plain
    return row


def replace_argument(call: Call[Any], name: str, value: object) -> None:
    """Give the observed function another value for an argument, passed as the caller passed the argument."""
    if name in call.kwargs:
        call.kwargs = {**call.kwargs, name: value}
        return
    place = list(inspect.signature(call.wrapped).parameters).index(name)
    if place < len(call.args):
        call.args = (*call.args[:place], value, *call.args[place + 1 :])
