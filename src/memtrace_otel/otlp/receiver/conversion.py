"""OTLP/JSON as protobuf."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, cast

from memtrace_otel.otlp.decode import DecodeError
from memtrace_otel.otlp.json import Json, json_to_logs, json_to_request
from memtrace_otel.otlp.receiver.intake import RequestError, Signal
from memtrace_otel.otlp.receiver.wire import record

_CONVERT: Mapping[Signal, Callable[[Json], bytes]] = {Signal.TRACES: json_to_request, Signal.LOGS: json_to_logs}
_PATHS = {
    Signal.TRACES: (("resourceSpans", "resource_spans"), ("scopeSpans", "scope_spans"), ("spans",)),
    Signal.LOGS: (("resourceLogs", "resource_logs"), ("scopeLogs", "scope_logs"), ("logRecords", "log_records")),
}
"""Names from a request over its resources and scopes to its spans or log records."""
_UNREADABLE = record(0x0A, record(0x12, record(0x12, b"\x07")))
"""A request of a span, or log record, that is no protobuf: what reads the request refuses that one."""
_FEW = 16
"""Of twice as many, or fewer, each is tried by itself."""
_MOST_SEARCHED, _MOST_REFUSED = 20_000, 100
"""Most spans or log records among which unreadable ones are looked for, and most of these: each takes milliseconds."""


def from_json(signal: Signal, body: bytes) -> bytes:
    """Return the protobuf form of an OTLP/JSON request. Raises RequestError.

    A span or log record that has none is in it as one that cannot be read, unless that holds for all, or very many.
    """
    try:
        document: object = json.loads(body)
    except (ValueError, RecursionError):
        raise RequestError("not JSON, cut off, or nested too deeply") from None
    if not isinstance(document, dict):
        raise RequestError("not OTLP: no JSON object")
    if not document:
        return b""
    try:
        return _converted(signal, cast("Json", document))
    except DecodeError as error:
        raise RequestError(str(error)) from None


def _converted(signal: Signal, document: Json) -> bytes:
    convert = _CONVERT[signal]
    try:
        return convert(document)
    except DecodeError:
        groups = list(_groups(document, signal))
        found = sum(map(len, groups))
        if found > _MOST_SEARCHED:
            raise
        unreadable = _unreadable(signal, [item for group in groups for item in group])
        refused = {id(item) for item in islice(unreadable, _MOST_REFUSED + 1)}
        if not 0 < len(refused) < min(found, _MOST_REFUSED + 1):
            raise
    for group in groups:
        group[:] = [item for item in group if id(item) not in refused]
    return convert(document) + _UNREADABLE * (found - sum(map(len, groups)))


def _groups(document: Json, signal: Signal) -> Iterator[list[object]]:
    """Yield each array of spans or log records."""
    *outer, inner = _PATHS[signal]
    holders: list[object] = [document]
    for names in outer:
        holders = [item for array in _arrays(holders, names) for item in array]
    yield from _arrays(holders, inner)


def _arrays(holders: list[object], names: tuple[str, ...]) -> Iterator[list[object]]:
    for holder in holders:
        for name in names:
            array = cast("dict[str, Any]", holder).get(name) if isinstance(holder, dict) else None
            if isinstance(array, list):
                yield cast("list[object]", array)


def _unreadable(signal: Signal, items: list[object]) -> Iterator[object]:
    """Yield the spans or log records that have no protobuf form, in order. Halves are tried: all of them are converted
    about once when few are unreadable, not each by itself."""
    runs = [(items, True)]
    while runs:
        run, is_bad = runs.pop()
        middle = len(run) // 2
        if middle < _FEW:
            yield from (item for item in run if not _are_readable(signal, [item]))
        elif is_bad or not _are_readable(signal, run):
            # where the first half is readable, the other one is not: nothing to try
            is_in_first = not _are_readable(signal, run[:middle])
            runs.append((run[middle:], not is_in_first))
            if is_in_first:
                runs.append((run[:middle], True))


def _are_readable(signal: Signal, items: list[object]) -> bool:
    (outer, *_), (middle, *_), (inner, *_) = _PATHS[signal]
    try:
        _CONVERT[signal]({outer: [{middle: [{inner: items}]}]})
    except DecodeError:
        return False
    return True
