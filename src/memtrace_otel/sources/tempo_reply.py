"""The envelope of a trace in Tempo's API v2: a TraceByIDResponse in protobuf."""

from __future__ import annotations

from google.protobuf.message import DecodeError

_TRACE, _STATUS, _MESSAGE = 1, 3, 4
_VARINT, _BYTES = 0, 2
_FIXED = {1: 8, 5: 4}


def read_trace_reply(body: bytes) -> tuple[bytes, str]:
    """Return (the trace as an OTLP request, why it is not whole or ''). Raises DecodeError for other bytes."""
    trace, partial, reason, at = b"", False, "", 0
    while at < len(body):
        key, at = _varint(body, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(body, at)
            partial = bool(value) if number == _STATUS else partial
        elif kind == _BYTES:
            size, at = _varint(body, at)
            at += size
            if at > len(body):
                raise DecodeError("the reply is truncated")
            if number == _TRACE:
                trace += body[at - size : at]
            elif number == _MESSAGE:
                reason = body[at - size : at].decode("utf-8", "replace")[:200]
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            raise DecodeError("the reply is no trace of Tempo's API v2")
    return trace, (reason or "no reason given") if partial else ""


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(body) and shift < 64:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise DecodeError("the reply is truncated")
