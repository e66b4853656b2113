"""Mem0's values as variables of the wire contract: messages, stored records, owners, times."""

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
OWNERS = ("user_id", "agent_id", "run_id", "app_id")


@dataclass(frozen=True, slots=True)
class Turn:
    """A message given to Mem0. `content` is the raw text; a content that is no text keeps its own type."""

    ref: str
    content: object
    time: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """A stored memory as Mem0 handed it over. `scope` is that of its owner."""

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
    """The messages of an `add` call (a text, a message or a list of them) that have a content.

    `said_in` names the call; see `message_refs`.
    """
    given: list[tuple[object, object]] = []
    times: list[str] = []
    for message in cast(list[object], messages if isinstance(messages, list) else [messages]):
        values = cast(Mapping[str, Any], message if isinstance(message, Mapping) else {})
        content = message if isinstance(message, str) else _plain(values.get("content"))
        if content is not None:
            given.append((content, next((values[key] for key in _MESSAGE_IDS if values.get(key)), None)))
            times.append(event_time(values))
    refs = message_refs(given, said_in)
    return [Turn(ref, content, time) for ref, (content, _), time in zip(refs, given, times, strict=True)]


def _plain(content: object) -> object:
    """The text of a multimodal content, joined as Mem0 joins it; other contents as they are."""
    if not isinstance(content, list):
        return content
    parts = [cast(Mapping[str, Any], part) for part in cast(list[object], content) if isinstance(part, Mapping)]
    return " ".join(str(part.get("text")) for part in parts if part.get("type") == "text")


def collection_of(memory: Any) -> str:
    """Name of the vector collection behind a Memory: its store id, alike in every process of the application."""
    name = getattr(memory, "collection_name", None) or getattr(memory.vector_store, "collection_name", None)
    return str(name or "")


def place_of(memory: Any) -> int:
    """Where the collection behind a Memory lies, as its configuration says: alike for all that share it."""
    configured = getattr(getattr(getattr(memory, "config", None), "vector_store", None), "config", None)
    settings = getattr(configured, "__dict__", dict[str, object]()).values()
    return hash(tuple(value if isinstance(value, str | int | float | None) else id(value) for value in settings))


def owner_scope(memory: Any, ids: Mapping[str, Any]) -> str:
    """Scope of whoever owns a memory of a collection."""
    return owner_in(collection_of(memory), ids)


def owner_in(store: str, ids: Mapping[str, Any]) -> str:
    """Scope of whoever owns a memory: the user, without one the agent, the run, the app ('' when none is known).

    One owner, not the tuple of all ids: the same record is written with a run id and searched without it.
    """
    key = next((key for key in OWNERS if ids.get(key)), None)
    if key is None:
        return ""
    owner = ids[key].strip() if isinstance(ids[key], str) else as_text(ids[key])[0]
    return scope_id(store, **{key.removesuffix("_id"): owner})


def record_of(memory: Any, found: Any) -> Record:
    """Read a row of a vector store (id, payload, score) or an item of Mem0's results."""
    row = cast(Mapping[str, Any], found) if isinstance(found, Mapping) else _Attributes(found)
    payload = row.get("payload")
    if payload is None:
        payload = {} if isinstance(row, _Attributes) else {**row, "data": row.get("memory")}
    score = number(row.get("rerank_score", row.get("score")))
    return Record(str(row.get("id")), as_text(payload.get("data"))[0], owner_scope(memory, payload), score)


class _Attributes:
    """An object read like a mapping."""

    def __init__(self, value: object) -> None:
        self._value = value

    def get(self, name: str, default: object = None) -> Any:
        return getattr(self._value, name, default)


def results(returned: object) -> list[Mapping[str, Any]]:
    """The items of what `add`, `search` and `get_all` return."""
    if isinstance(returned, Mapping):
        returned = cast(Mapping[str, Any], returned).get("results")
    if not isinstance(returned, list):
        return []
    return [cast(Mapping[str, Any], item) for item in cast(list[object], returned) if isinstance(item, Mapping)]


def event_time(values: Mapping[str, Any] | None) -> str:
    """When a message or the metadata of a call say they happened, as RFC 3339; '' when they do not say it clearly.

    A time without a zone is taken as UTC, a number as seconds since the epoch.
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
        if isinstance(value, str):
            return datetime.fromisoformat(value)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def model_of(provider: Any) -> dict[str, AttributeValue]:
    """`gen_ai.request.model` of a language model or embedder of Mem0, as far as its configuration names one."""
    model = getattr(getattr(provider, "config", None), "model", None)
    return {semconv.GEN_AI_REQUEST_MODEL: str(model)} if model else {}
