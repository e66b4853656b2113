"""Mem0's values as variables of the wire contract: messages, stored records, owners, times, filters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from opentelemetry.util.types import AttributeValue

from memtrace_otel import semconv
from memtrace_otel.capture import as_text, scope_id
from memtrace_otel.capture.content import message_refs
from memtrace_otel.capture.layout import number
from memtrace_otel.model import make_ref
from memtrace_otel.semconv import RefKind

_MESSAGE_IDS = ("id", "message_id")
_TIMES = ("timestamp", "event_time", "created_at", "time", "date")


@dataclass(frozen=True, slots=True)
class Turn:
    """A message given to Mem0. `content` is the text; a content that is not a text keeps its type."""

    ref: str
    content: object
    time: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """A stored memory as Mem0 returned it. `scope` is the scope of the owner."""

    id: str
    text: str
    scope: str
    score: float | None = None

    @property
    def ref(self) -> str:
        """`memory:<record id>`."""
        return memory_ref(self.id)


def memory_ref(id: object) -> str:
    """Ref of the stored record with this id."""
    return make_ref(RefKind.MEMORY, str(id))


def turns(messages: object, said_in: str) -> list[Turn]:
    """The messages of an `add` call (a text, a message or a list of messages) that have a content.

    `said_in` names the call, so equal texts of two calls get two refs; see `message_refs`.
    """
    given: list[tuple[object, object]] = []
    times: list[str] = []
    for message in cast(list[object], messages if isinstance(messages, list) else [messages]):
        values = cast(Mapping[str, Any], message if isinstance(message, Mapping) else {})
        content = message if isinstance(message, str) else _joined(values.get("content"))
        if content is not None:
            given.append((content, next((values[key] for key in _MESSAGE_IDS if values.get(key)), None)))
            times.append(event_time(values))
    refs = message_refs(given, said_in)
    return [Turn(ref, content, time) for ref, (content, _), time in zip(refs, given, times, strict=True)]


def _joined(content: object) -> object:
    """The text parts of a multimodal content, joined as Mem0 joins them; another content unchanged."""
    if not isinstance(content, list):
        return content
    parts = mappings(cast(list[object], content))
    return " ".join(str(part.get("text")) for part in parts if part.get("type") == "text")


def mappings(items: object) -> list[Mapping[str, Any]]:
    """The mappings among the items of a list; [] when `items` is not a list."""
    listed = cast(list[object], items) if isinstance(items, list) else []
    return [cast(Mapping[str, Any], item) for item in listed if isinstance(item, Mapping)]


def results(returned: object) -> list[Mapping[str, Any]]:
    """The items that `add`, `search` or `get_all` returned."""
    return mappings(cast(Mapping[str, Any], returned).get("results") if isinstance(returned, Mapping) else returned)


def collection_of(memory: Any) -> str:
    """Name of the vector collection of a Memory: the store id, equal in every process of the application."""
    name = getattr(memory, "collection_name", None) or getattr(memory.vector_store, "collection_name", None)
    return str(name or "")


def owner_scope(store: str, ids: Mapping[str, Any]) -> str:
    """Scope of the owner of a memory: the user, else the agent, the run, the app; '' when no owner is named.

    The scope has one owner, not all ids, because a search may omit the run id of the write.
    """
    key = next((key for key in semconv.OWNER_FIELDS if ids.get(key)), None)
    if key is None:
        return ""
    owner = ids[key].strip() if isinstance(ids[key], str) else as_text(ids[key])[0]
    return scope_id(store, **{key.removesuffix("_id"): owner})


def record_of(memory: Any, found: Any) -> Record:
    """A row of a vector store (id, payload, score) or an item of Mem0's results."""
    payload: Mapping[str, Any] | None = field(found, "payload")
    if payload is None:
        is_item = isinstance(cast(object, found), Mapping)
        payload = {**cast(Mapping[str, Any], found), "data": field(found, "memory")} if is_item else {}
    score = field(found, "rerank_score")
    score = number(field(found, "score") if score is None else score)
    scope = owner_scope(collection_of(memory), payload)
    return Record(str(field(found, "id")), as_text(payload.get("data"))[0], scope, score)


def field(row: object, name: str) -> Any:
    """A field of a mapping or of an object; None when `row` has no such field."""
    return cast(Mapping[str, Any], row).get(name) if isinstance(row, Mapping) else getattr(row, name, None)


def event_time(values: Mapping[str, Any] | None) -> str:
    """The time in a message or in metadata, as RFC 3339; '' when no value is a clear time.

    A time without a zone is UTC. A number is seconds since the epoch.
    """
    for value in (values.get(key) for key in _TIMES) if values else ():
        moment = _moment(value)
        if moment is not None:
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()
    return ""


def _moment(value: object) -> datetime | None:
    try:
        if isinstance(value, datetime):
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
        return datetime.fromisoformat(value) if isinstance(value, str) else None
    except (ValueError, OverflowError, OSError):
        return None


def model_of(provider: Any) -> dict[str, AttributeValue]:
    """`gen_ai.request.model` of a language model or embedder of Mem0, when the configuration names a model."""
    model = getattr(getattr(provider, "config", None), "model", None)
    return {semconv.GEN_AI_REQUEST_MODEL: str(model)} if model else {}
