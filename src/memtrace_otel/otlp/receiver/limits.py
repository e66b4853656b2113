"""How much one request may be, checked before anything is allocated for it where that is possible."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from memtrace_otel import settings
from memtrace_otel.otlp.receiver.intake import RequestError, TooLargeError

GZIP, DEFLATE = 31, zlib.MAX_WBITS
_SMALL = 4 << 20
"""What OTLP receivers take at most by default: who batches for them may repeat one long prompt all through it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Most bytes of a request (unpacked) and of a span, spans of a request, entries of a span, gzip ratio.

    Entries are attributes (also of an event or link), events and links, each. Data that unpacks to at
    most 4 MiB may have any ratio.
    """

    request_bytes: int
    span_bytes: int = 1 << 20
    spans: int = 20_000
    entries: int = 2_048
    ratio: int = 200

    @classmethod
    def from_settings(cls) -> Limits:
        """The limits that the settings say."""
        return cls(settings.MAX_REQUEST_BYTES.read())

    @property
    def in_flight_bytes(self) -> int:
        """Most bytes of all requests that are worked on at a time, packed and unpacked."""
        return 4 * self.request_bytes

    def check_size(self, size: int) -> None:
        """Raise TooLargeError for a body of so many bytes."""
        if size > self.request_bytes:
            raise TooLargeError(
                f"the request is larger than {self.request_bytes} bytes ({settings.MAX_REQUEST_BYTES.env})"
            )

    def check_json(self, size: int) -> None:
        """Raise TooLargeError for so many bytes of JSON: reading takes up to 40 times that in memory, and seconds."""
        if size > self.request_bytes // 4:
            raise TooLargeError(
                f"JSON larger than {self.request_bytes // 4} bytes; protobuf may be four times as large"
            )


def gunzip(packed: bytes, limits: Limits, window: int = GZIP) -> bytes:
    """Return the unpacked body, of gzip or as `window` says (see zlib); stops as soon as it passes a limit.

    Raises RequestError.
    """
    most = min(limits.request_bytes, max(_SMALL, len(packed) * limits.ratio))
    unpacker = zlib.decompressobj(window)
    try:
        body = unpacker.decompress(packed, most + 1)
    except zlib.error:
        raise RequestError("damaged gzip data") from None
    limits.check_size(len(body))
    if len(body) > most:
        raise TooLargeError(f"the request unpacks to more than {limits.ratio} times its size")
    if not unpacker.eof or unpacker.unused_data:
        raise RequestError("the gzip data is cut off or followed by other data")
    return body
