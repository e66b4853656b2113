"""OTLP/JSON as protobuf."""

from __future__ import annotations

import json
from typing import cast

from memtrace_otel.otlp.decode import DecodeError
from memtrace_otel.otlp.json import Json, json_to_logs, json_to_request
from memtrace_otel.otlp.receiver.intake import RequestError, Signal

_CONVERT = {Signal.TRACES: json_to_request, Signal.LOGS: json_to_logs}


def from_json(signal: Signal, body: bytes) -> bytes:
    """Return the protobuf form of an OTLP/JSON request. Raises RequestError."""
    try:
        document: object = json.loads(body)
        if not isinstance(document, dict):
            raise RequestError("not OTLP: no JSON object")
        return _CONVERT[signal](cast("Json", document))
    except (RequestError, DecodeError) as error:
        raise RequestError(str(error)) from None
    except (ValueError, RecursionError):
        raise RequestError("not JSON, cut off, or nested too deeply") from None
