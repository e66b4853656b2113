"""`memtrace_origin` in the payloads of stored records: put in where Mem0 writes to a store, taken out where it reads.

So it reaches neither prompts nor results nor the payloads that Mem0 copies. The value is `<origin>/<digest of the
text>`: an update by a process that is not instrumented copies the key (Mem0 2.x), and the digest tells that the origin
is that of an older text. Taken out whatever the setting says; put in when MEMTRACE_RECORD_ORIGIN is on.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping
from typing import Any, cast

from memtrace_otel.instrumentation.mem0.calls import Call
from memtrace_otel.model import content_digest, is_origin
from memtrace_otel.semconv import RECORD_ORIGIN_KEY


def marked(payload: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """A copy of a payload that says which span wrote this text."""
    return remarked(payload, f"{origin}/{content_digest(str(payload.get('data', '')))}")


def remarked(payload: Mapping[str, Any], mark: str) -> dict[str, Any]:
    """A copy of a payload with a mark that was taken out of it."""
    return {**payload, RECORD_ORIGIN_KEY: mark}


def origin_of(text: str, mark: str) -> str:
    """The origin that a mark gives to a text; '' when it belongs to another text."""
    origin, _, digest = mark.partition("/")
    return origin if is_origin(origin) and digest in ("", content_digest(text)) else ""


def marks(found: Any) -> Iterator[tuple[str, str, str]]:
    """(record id, text, mark) of every row that carries a mark, in whatever lists a store returned them."""
    if type(found) in (list, tuple):
        for item in found:
            yield from marks(item)
        return
    payload = _payload(found)
    if payload is not None and RECORD_ORIGIN_KEY in payload:
        yield str(_field(found, "id")), str(payload.get("data", "")), str(payload[RECORD_ORIGIN_KEY])


def unmarked(found: Any) -> Any:
    """The same rows without their marks: copies, for a store may hand out what it holds; unmarked ones as they are."""
    if type(found) in (list, tuple):
        rows = [unmarked(item) for item in found]
        changed = any(row is not item for row, item in zip(rows, found, strict=True))
        return type(found)(rows) if changed else found
    payload = _payload(found)
    if payload is None or RECORD_ORIGIN_KEY not in payload:
        return found
    plain = {name: value for name, value in payload.items() if name != RECORD_ORIGIN_KEY}
    if isinstance(found, Mapping):
        return {**cast("Mapping[str, Any]", found), "payload": plain}
    row = copy.copy(found)
    row.payload = plain
    return row


def replace_argument(call: Call, name: str, value: object) -> None:
    """Give the observed function another value for an argument, passed as the caller passed it."""
    if name in call.kwargs:
        call.kwargs = {**call.kwargs, name: value}
        return
    place = list(inspect.signature(call.wrapped).parameters).index(name)
    if place < len(call.args):
        call.args = (*call.args[:place], value, *call.args[place + 1 :])


def _payload(row: object) -> Mapping[str, Any] | None:
    payload = _field(row, "payload")
    return cast("Mapping[str, Any]", payload) if isinstance(payload, Mapping) else None


def _field(row: object, name: str) -> object:
    if isinstance(row, Mapping):
        return cast("Mapping[str, object]", row).get(name)
    return getattr(row, name, None)
