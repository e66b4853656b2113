"""OTLP bytes to operation spans and back: the border between the wire and everything after it."""

from memtrace_otel.otlp.decode import DecodeError, decode_request, parse_request
from memtrace_otel.otlp.encode import encode_request

__all__ = ["DecodeError", "decode_request", "encode_request", "parse_request"]
