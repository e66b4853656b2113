"""A span as a backend gives it back: OTLP JSON of Jaeger's API v3 or of Tempo, made plain."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StoredLink:
    trace_id: str
    span_id: str
    attributes: dict[str, Any]


@dataclass(frozen=True, slots=True)
class StoredSpan:
    """Ids are hex, times nanoseconds, `service` is the resource's service.name."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    service: str
    start: int
    end: int
    attributes: dict[str, Any]
    links: tuple[StoredLink, ...]
    failed: bool
    message: str


def read_spans(resource_spans: list[dict[str, Any]]) -> list[StoredSpan]:
    """Return the spans below OTLP JSON `resourceSpans`, as often as they stand there."""
    return list(_spans(resource_spans))


def _spans(resource_spans: list[dict[str, Any]]) -> Iterator[StoredSpan]:
    for resource in resource_spans:
        service = _attributes(resource.get("resource", {})).get("service.name", "")
        for scope in resource.get("scopeSpans", []):
            for span in scope.get("spans", []):
                yield StoredSpan(
                    _hex(span["traceId"], 16),
                    _hex(span["spanId"], 8),
                    _hex(span.get("parentSpanId", ""), 8),
                    span["name"],
                    service,
                    int(span["startTimeUnixNano"]),
                    int(span["endTimeUnixNano"]),
                    _attributes(span),
                    tuple(
                        StoredLink(_hex(link["traceId"], 16), _hex(link["spanId"], 8), _attributes(link))
                        for link in span.get("links", [])
                    ),
                    span.get("status", {}).get("code") in (2, "STATUS_CODE_ERROR"),
                    span.get("status", {}).get("message", ""),
                )


def _hex(text: str, size: int) -> str:
    """Jaeger writes ids in hex, Tempo in base64."""
    if len(text) in (0, 2 * size):
        return text
    return base64.b64decode(text).hex()


def _attributes(holder: dict[str, Any]) -> dict[str, Any]:
    return {item["key"]: _value(item["value"]) for item in holder.get("attributes", [])}


def _value(value: dict[str, Any]) -> Any:
    ((kind, held),) = value.items()
    if kind == "arrayValue":
        return [_value(item) for item in held.get("values", [])]
    convert = {"intValue": int, "doubleValue": float}.get(kind)
    return convert(held) if convert else held
