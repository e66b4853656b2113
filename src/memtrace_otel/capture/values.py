"""Values of the observed program as text, equal in every process: the text of a record, JSON for anything else.

Nothing of the program's own code runs for it: fields are read, methods and properties are not called.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, cast
from uuid import UUID

from memtrace_otel.model import content_digest
from memtrace_otel.semconv import RefKind

_TEXTS = ("memory", "text", "content", "page_content")
_DEPTH = 3  # of records in records
_WITH_IDS = frozenset(
    {RefKind.MEMORY, RefKind.STATE, RefKind.CHUNK, RefKind.DOCUMENT, RefKind.MESSAGE, RefKind.QUERY}
)  # the other kinds are named by what they say
_ARRAY_BYTES = 1 << 20  # of one that is looked at: a millisecond


def words(value: object) -> tuple[str, bool]:
    """Return (text, faithful): the text of a record (`text_in`), else the value `as_text`. Never raises."""
    if isinstance(value, str):
        return value, True
    try:
        said = text_in(value)
    except Exception:  # a hostile mapping of the observed program
        said = None
    return (said, True) if said else as_text(value)


def text_in(value: object, *also: str) -> str | None:
    """The text of a record, None where it has none: the first of its `memory`, `text`, `content`, `page_content` and
    those named `also` that holds one, or a record that holds one.

    A record is a mapping, or an object (dataclass, Pydantic model, ...) with such fields.
    """
    return _text_in(value, (*_TEXTS, *also), _DEPTH)


def _text_in(value: object, names: tuple[str, ...], depth: int) -> str | None:
    if isinstance(value, str):
        return value
    if not depth:
        return None
    record = _record(value)
    held = (_text_in(record[name], names, depth - 1) for name in names if name in record)
    texts = [text for text in held if text is not None]
    return next(filter(None, texts), texts[0] if texts else None)


def record_id(kind: str, value: object) -> object:
    """The `id` of a record; None without one, and for kinds of variables that only their text names."""
    if kind not in _WITH_IDS or isinstance(value, str):
        return None
    try:
        return field(value, "id")
    except Exception:
        return None


def field(value: object, name: str) -> object:
    """A field of a record, None without it."""
    return _record(value).get(name)


def _record(value: object) -> Mapping[object, object]:
    if isinstance(value, Mapping):
        return cast("Mapping[object, object]", value)
    if isinstance(value, type):
        return {}
    named = _fields(value)
    return cast("Mapping[object, object]", getattr(value, "__dict__", {}) if named is None else named)


def as_text(value: object) -> tuple[str, bool]:
    """Return (text, faithful). Strings stay as they are; other values become JSON, or their type name when they can't.

    Never raises: whatever `json` or the value's own methods raise is answered by `('<type>', False)`.
    """
    if isinstance(value, str):
        return value, True
    if value is None:
        return "", True
    if isinstance(value, bytes | bytearray):
        return _decoded(value), True
    try:
        return _as_json(value), True
    except (TypeError, ValueError, RecursionError):
        return f"<{type(value).__name__}>", False
    except Exception:  # a hostile __iter__ or __str__ of the observed program
        return f"<{type(value).__name__}>", False


def _as_json(value: object) -> str:
    """JSON with sorted keys; the order of a set, which differs between processes, is that of its items' JSON."""
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True, default=_simpler)
    except TypeError:  # of keys, perhaps, which `default` is not asked about
        return json.dumps(_plain(value), ensure_ascii=False, sort_keys=True)


def _plain(value: object) -> object:
    """The value with JSON types at every depth, keys included."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        return {_key(key): _plain(item) for key, item in cast("dict[object, object]", value).items()}
    return _plain(_simpler(value))


def _key(key: object) -> str:
    simple = _plain(key)
    return simple if isinstance(simple, str) else json.dumps(simple, ensure_ascii=False, sort_keys=True)


def _simpler(value: object) -> object:
    """A value of another common type as a JSON type, or nearer to one."""
    if isinstance(value, set | frozenset):
        return sorted(cast("set[object]", value), key=_as_json)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, UUID | Decimal | PurePath | timedelta):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(cast("Mapping[object, object]", value))
    if isinstance(value, bytes | bytearray):
        return _decoded(value)
    named = None if isinstance(value, type) else _fields(value)
    if named is not None:
        return named
    package = type(value).__module__.partition(".")[0]
    if package == "numpy":
        return _numbers(value)
    if package in ("pydantic", "pydantic_core"):  # a URL, or a secret, which tells nothing
        return str(value)
    raise TypeError


def _fields(value: object) -> dict[str, object] | None:
    """The fields of a dataclass, an attrs class, a named tuple, a row of SQLite or a Pydantic model (but those that it
    excludes when it is dumped); None for anything else."""
    kind = cast(Any, type(value))
    if (kind.__module__, kind.__name__) == ("sqlite3", "Row"):
        return {name: cast(Any, value)[name] for name in cast(Any, value).keys()}  # noqa: SIM118  # a row is no mapping
    if is_dataclass(kind):
        return {field.name: getattr(value, field.name) for field in fields(kind)}
    if hasattr(kind, "__attrs_attrs__"):
        return {field.name: getattr(value, field.name) for field in kind.__attrs_attrs__}
    if isinstance(value, tuple):
        return cast(Any, value)._asdict() if hasattr(kind, "_fields") else None
    if hasattr(kind, "__pydantic_extra__"):
        has, extra = vars(value), cast(Any, value).__pydantic_extra__
        shown = {name: has[name] for name, field in kind.model_fields.items() if name in has and not field.exclude}
        return shown | (extra or {})
    if hasattr(kind, "__fields_set__"):  # Pydantic 1
        return dict(vars(value))
    return None


def _numbers(value: Any) -> object:
    """A numpy scalar or array. An array of numbers (an embedding) becomes a digest: the numbers are no content."""
    if not value.ndim or value.dtype.kind not in "biufc":
        return value.tolist()
    if value.nbytes > _ARRAY_BYTES:
        raise TypeError
    return f"<{value.dtype.name} {list(value.shape)} {content_digest(value.tobytes())}>"


def _decoded(data: bytes | bytearray) -> str:
    """Bytes as text; bytes that are not UTF-8 keep distinct texts."""
    return data.decode("utf-8", "backslashreplace")
