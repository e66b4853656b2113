"""EverOS' values as variables of the wire contract: owners, messages, memcells, entries, profiles, clusters."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from memtrace_otel.capture import scope_id, variable_ref
from memtrace_otel.model import make_ref
from memtrace_otel.semconv import RefKind

_SECTIONS = (("Content",), ("Fact",), ("Foresight",), ("TaskIntent", "Approach"))
"""The sections of a markdown entry that hold its text, by kind of entry."""
_COLUMNS = (("episode",), ("fact",), ("foresight",), ("task_intent", "approach"), ("content",))
"""The columns that hold the text in rows of the index and in results."""


@dataclass(frozen=True, slots=True)
class Space:
    """The location of a memory: the store id is the folder of the memory root, the app and the project."""

    app: str = "default"
    project: str = "default"

    @property
    def store(self) -> str:
        """`gen_ai.memory.store.id`, equal in every process that opens this memory root."""
        return f"{_root_name()}/{self.app}/{self.project}"

    def owner(self, id: object, kind: str = "user") -> str:
        """Scope of the memories of a user or (`kind` "agent") of an agent."""
        return scope_id(self.store, **{"agent" if kind.startswith("agent") else "user": id})

    def session(self, id: object) -> str:
        """Scope of a session in which no user has spoken."""
        return scope_id(self.store, run=id)


@dataclass(frozen=True, slots=True)
class Cell:
    """A memcell: its id, its scope, the ids of its messages in order."""

    id: str
    scope: str
    message_ids: tuple[str, ...]

    @property
    def ref(self) -> str:
        """`state:<memcell id>`."""
        return state_ref(self.id)


def space_of(values: Any) -> Space:
    """The space of a request, an event, a row or the arguments of a call."""
    return Space(str(value(values, "app_id") or "default"), str(value(values, "project_id") or "default"))


def value(values: Any, name: str) -> Any:
    """A field of a mapping or an attribute of an object; None when the field is missing."""
    if isinstance(values, Mapping):
        return cast(Mapping[str, Any], values).get(name)
    return getattr(values, name, None)


def _root_name() -> str:
    """Name of the folder of the memory root, without its private path."""
    module = sys.modules.get("everos.core.persistence.memory_root")
    root = getattr(module, "MemoryRoot", None)
    resolve = getattr(root, "resolve", None) or getattr(root, "default", None)
    return str(resolve().root.name) if resolve else ""


def entry_ref(entry_id: object) -> str:
    """Ref of a markdown entry (episode, atomic fact, foresight, case) or of a skill by its name."""
    return make_ref(RefKind.MEMORY, str(entry_id))


def row_ref(row_id: object, owner_id: object) -> str:
    """Ref of the entry behind a row of the index, whose id is `<owner>_<entry id>`."""
    return entry_ref(str(row_id).removeprefix(f"{owner_id}_"))


def candidate_ref(candidate: Any) -> str:
    """Ref of a candidate of a search."""
    metadata = cast(Mapping[str, Any], value(candidate, "metadata") or {})
    entry_id = metadata.get("entry_id")
    return entry_ref(entry_id) if entry_id else row_ref(value(candidate, "id"), metadata.get("owner_id"))


def state_ref(id: object) -> str:
    """Ref of a memcell, a cluster, a buffer or a profile."""
    return make_ref(RefKind.STATE, str(id))


def profile_ref(owner_id: object) -> str:
    """Ref of a user's profile."""
    return state_ref(f"profile-{owner_id}")


def buffer_ref(session_id: object) -> str:
    """Ref of the buffer of a session: the messages without a memcell."""
    return state_ref(f"buffer-{session_id}")


def message_ref(id: object, text: object) -> str:
    """Ref of a message: the id of EverOS, else (results of tools) the digest of the text."""
    return variable_ref(RefKind.MESSAGE, text, id)


def entry_text(sections: Mapping[str, str]) -> str:
    """The text of a markdown entry, equal to the text in a search result."""
    return _joined(sections, _SECTIONS) or "\n".join(sections.values()).strip()


def record_text(record: Any) -> str:
    """The text of a row of the index, of an item of a result, or of the metadata of a candidate."""
    metadata = value(record, "metadata")
    return _joined(metadata if isinstance(metadata, Mapping) else record, _COLUMNS)


def case_text(case: Any) -> str:
    """The text of a case, equal to the text of its entry."""
    return _joined(case, (("task_intent", "approach"),))


def profile_text(profile: Any) -> str:
    """The content of a profile as JSON, equal for the extracted, written and found profile."""
    names = ("summary", "explicit_info", "implicit_traits")
    return json.dumps({name: value(profile, name) or "" for name in names}, sort_keys=True, ensure_ascii=False)


def message_text(item: Any) -> str:
    """The text of an item of a memcell."""
    content = value(item, "content")
    if isinstance(content, list):
        return " ".join(str(value(part, "text") or "") for part in cast(list[object], content))
    return str(content or "")


def ids_text(ids: Iterable[object]) -> str:
    """The content of a state that is a list of ids."""
    return json.dumps([str(id) for id in ids])


def _joined(values: Any, choices: Iterable[tuple[str, ...]]) -> str:
    for names in choices:
        parts = [str(part).strip() for name in names if (part := _text(value(values, name)))]
        if parts:
            return "\n".join(parts)
    return ""


def _text(part: Any) -> Any:
    """A text; of the input of a reranker (subject and content) the content."""
    return value(part, "content") if isinstance(part, Mapping) else part
