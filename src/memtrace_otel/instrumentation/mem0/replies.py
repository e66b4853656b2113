"""Parse the replies of the language model as Mem0 does. Mem0 parses inside long methods, which leave nothing to
wrap."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from memtrace_otel.instrumentation.mem0.values import mappings


@dataclass(frozen=True, slots=True)
class Fact:
    """One item of an extraction reply; `linked`: the temporary ids of related memories."""

    text: str
    linked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """One item of a decision reply: the action (ADD, UPDATE, DELETE, NONE) on a temporary id."""

    event: str
    temporary_id: str
    text: str


def facts(main: Any, reply: object) -> list[Fact] | None:
    """The facts of an extraction reply (`{"facts": [...]}` in 1.x, `{"memory": [{"text": ...}]}` in 2.x).

    None when Mem0 cannot parse the reply and goes on without facts. `main` is the module `mem0.memory.main`.
    """
    value = _object(main, reply)
    if value is None:
        return None
    if not hasattr(main, "generate_additive_extraction_prompt"):
        normalize = getattr(main, "normalize_facts", None)
        items = cast(list[object], normalize(value.get("facts")) if normalize else value.get("facts") or [])
        return [Fact(item) for item in items if isinstance(item, str) and item]
    additive: object = value.get("memory") or []
    if not isinstance(additive, list):
        return None
    return [_additive(item) for item in mappings(cast("list[object]", additive)) if item.get("text")]


def _additive(item: Mapping[str, Any]) -> Fact:
    linked = item.get("linked_memory_ids")
    ids = cast(list[object], linked) if isinstance(linked, list) else []
    return Fact(str(item["text"]), tuple(str(id) for id in ids))


def verdicts(main: Any, reply: object) -> list[Verdict] | None:
    """The items of a decision reply (1.x) with a text; Mem0 skips the others. None when Mem0 cannot parse the reply."""
    value = _object(main, reply)
    items = None if value is None else value.get("memory", [])
    if not isinstance(items, list):
        return None
    return [
        Verdict(str(item.get("event")), str(item.get("id")), str(item.get("text")))
        for item in mappings(cast(list[object], items))
        if item.get("text")
    ]


def _object(main: Any, reply: object) -> Mapping[str, Any] | None:
    if not isinstance(reply, str):
        return None
    cleaned = main.remove_code_blocks(reply)
    if not cleaned.strip():
        return {}
    try:
        value = _load(main, cleaned)
    except ValueError:
        try:
            value = _load(main, main.extract_json(cleaned))
        except ValueError:
            return None
    return cast(Mapping[str, Any], value) if isinstance(value, dict) else None


def _load(main: Any, text: str) -> object:
    """Releases up to 1.0.6 refuse control characters in texts."""
    strict = hasattr(main, "get_update_memory_messages") and not hasattr(main, "normalize_facts")
    return json.loads(text, strict=strict)
