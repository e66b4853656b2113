"""The records that a standard memory or retrieval span stored or found, as one JSON array for pages of other tools.

The array repeats what the `memtrace.*` arrays say, and is cut to a quarter of the bytes of a span: fewer records first,
then shorter contents. With the default budget that is what Tempo keeps of a string. Nothing of ours reads the array.
"""

from __future__ import annotations

import math
from collections.abc import Container
from json.encoder import encode_basestring

from memtrace_otel import semconv
from memtrace_otel.capture.config import CaptureConfig
from memtrace_otel.capture.content import plain, preview, show, utf8_bytes
from memtrace_otel.capture.guard import guarded
from memtrace_otel.capture.layout import Read, Written
from memtrace_otel.model import split_ref
from memtrace_otel.semconv import Action, Role

_SHARE = 0.25
"""Of the bytes of a span."""
_MOST = 20
"""Records of one array."""
_LEAST = 64
"""Bytes of a content below which a record is left out."""
_FRAMING = 16  # around an attribute and an array
_FRAME = 96  # more than the names of a record, its score and its mark take
_SEARCHES = {
    semconv.SEARCH_MEMORY: semconv.GEN_AI_MEMORY_RECORDS,
    semconv.RETRIEVAL: semconv.GEN_AI_RETRIEVAL_DOCUMENTS,
}
_WRITES = frozenset({semconv.CREATE_MEMORY, semconv.UPDATE_MEMORY, semconv.UPSERT_MEMORY})
_STORED = frozenset(map(str, (Action.ADD, Action.UPDATE)))
_HIT, _MEMORY = str(Role.HIT), f"{semconv.RefKind.MEMORY}:"
_CUT = ',"metadata":{"truncated":true}'

_Row = tuple[str, str, float | None]
"""Ref, text before redaction, score."""


@guarded("operation.shown_records", dict[str, str]())
def shown_records(
    name: str | None, read: list[Read], written: list[Written], given: Container[str], limits: CaptureConfig
) -> dict[str, str]:
    """Return the attribute with the records of an operation of this name.

    {} for no records, without content capture, and for an attribute that the program has `given` itself.
    """
    if not limits.content:
        return {}
    rows: list[_Row]
    if attribute := _SEARCHES.get(name or "", ""):
        rows = [(one[0], one[3], one[4]) for one in read if one[1] == _HIT and one[3]]
    elif name in _WRITES:
        attribute = semconv.GEN_AI_MEMORY_RECORDS
        rows = [(w[0], w[3], None) for w in written if w[2] in _STORED and w[3] and w[0].startswith(_MEMORY)]
    else:
        return {}
    if not rows or attribute in given:
        return {}
    shown = _fitting(rows[:_MOST], limits, int(limits.span_bytes * _SHARE) - len(attribute) - _FRAMING)
    return {attribute: shown} if shown else {}


def _fitting(rows: list[_Row], limits: CaptureConfig, room: int) -> str:
    """Return the records as JSON within `room` bytes, '' when there is no room for one."""
    whole = plain([row[1] for row in rows], limits)
    if whole and 2 * sum(len(ref) + len(text) + _FRAME for ref, text, _ in rows) <= room:
        return _json([_record(ref, text, score) for ref, text, score in rows])
    most = min(len(rows), room // (_LEAST + _FRAME))
    found: list[str] = []
    for nth, (ref, text, score) in enumerate(rows[: max(most, 0)]):
        share = room // (most - nth)  # what a short record leaves is for the next ones
        shown = text if whole else show(text, limits)
        record = _record(ref, shown, score)
        if (size := utf8_bytes(record) + 1) > share:
            kept, _ = preview(shown, max(_LEAST, share - (size - utf8_bytes(shown)) - len(_CUT)))
            record = _record(ref, kept, score, _CUT)
            size = utf8_bytes(record) + 1
        if size > room:
            break
        room -= size
        found.append(record)
    return _json(found) if found else ""


def _record(ref: str, text: str, score: float | None, more: str = "") -> str:
    known = score is not None and math.isfinite(score)  # JSON has neither NaN nor infinity
    said = f',"score":{score:.6g}' if known else ""
    return f'{{"id":{encode_basestring(split_ref(ref)[1])},"content":{encode_basestring(text)}{said}{more}}}'


def _json(records: list[str]) -> str:
    return f"[{','.join(records)}]"
