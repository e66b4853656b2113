"""Read the replies of the language model again, as Mem0 reads them: its parsing is inline and cannot be wrapped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast


@dataclass(frozen=True, slots=True)
class Fact:
    """One item of an extraction reply; `linked` are the temporary ids of the memories the model relates it to."""

    text: str
    linked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """One item of a decision reply: what to do (ADD, UPDATE, DELETE, NONE) with which temporary id."""

    event: str
    temporary_id: str
    text: str


def facts(main: Any, reply: object) -> list[Fact] | None:
    """The facts of an extraction reply (`{"facts": [...]}` in 1.x, `{"memory": [{"text": ...}]}` in 2.x).

    None when Mem0 cannot read the reply and goes on with no facts. `main` is the module `mem0.memory.main`.
    """
    value = _object(main, reply)
    if value is None:
        return None
    if not hasattr(main, "generate_additive_extraction_prompt"):
        return [Fact(text) for text in _plain_facts(main, value.get("facts"))]
    items: object = value.get("memory") or []
    if not isinstance(items, list):
        return None
    return [_additive(item) for item in _mappings(cast(list[object], items)) if item.get("text")]


def verdicts(main: Any, reply: object) -> list[Verdict] | None:
    """The items of a decision reply (1.x) that have a text, as Mem0 skips the others; None when it cannot be read."""
    value = _object(main, reply)
    items = None if value is None else value.get("memory", [])
    if not isinstance(items, list):
        return None
    return [
        Verdict(str(item.get("event")), str(item.get("id")), str(item.get("text")))
        for item in _mappings(cast(list[object], items))
        if item.get("text")
    ]


def cleanings(main: Any, reply: object, *, is_json: bool) -> Iterator[tuple[str, str]]:
    """What Mem0 makes of a reply before it reads it: (its function, the text) for each that changes something."""
    if not isinstance(reply, str):
        return
    cleaned = main.remove_code_blocks(reply)
    if cleaned != reply:
        yield "remove_code_blocks", cleaned
    if is_json and cleaned.strip():
        try:
            _load(main, cleaned)
        except ValueError:
            part = main.extract_json(cleaned)
            if part != cleaned:
                yield "extract_json", part


def _plain_facts(main: Any, items: Any) -> list[str]:
    normalize = getattr(main, "normalize_facts", None)
    listed = cast(list[object], normalize(items) if normalize else items or [])
    return [item for item in listed if isinstance(item, str) and item]


def _additive(item: Mapping[str, Any]) -> Fact:
    linked = item.get("linked_memory_ids")
    ids = cast(list[object], linked) if isinstance(linked, list) else []
    return Fact(str(item["text"]), tuple(str(id) for id in ids))


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


def _mappings(items: list[object]) -> list[Mapping[str, Any]]:
    return [cast(Mapping[str, Any], item) for item in items if isinstance(item, Mapping)]
