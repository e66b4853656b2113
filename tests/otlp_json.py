"""Trace requests in OTLP/JSON, as other SDKs send them."""

from __future__ import annotations

import base64
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_IDS = ("traceId", "spanId", "parentSpanId")


def request_to_json(body: bytes) -> dict[str, Any]:
    """Return the OTLP/JSON form of a protobuf trace request."""
    request = ExportTraceServiceRequest.FromString(body)
    return _with_hex_ids(MessageToDict(request, use_integers_for_enums=True))


def _with_hex_ids(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_hex_ids(item) for item in value]
    if isinstance(value, dict):
        return {
            name: base64.b64decode(item).hex() if name in _IDS else _with_hex_ids(item) for name, item in value.items()
        }
    return value
