"""OTLP bytes to operation spans and back. Everything after this package sees operation spans only."""

from memtrace_otel.otlp.decode import DecodeError, decode_request, parse_request
from memtrace_otel.otlp.encode import encode_request

__all__ = ["DecodeError", "decode_request", "encode_request", "parse_request"]
