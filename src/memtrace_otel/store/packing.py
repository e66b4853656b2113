"""Span bodies made small: what `compact` does to them, each on its own, so that each can still be read alone.

Most of a span is what other spans of its memory say as well: names of attributes, words, ids. So a body is deflated
with a dictionary: parts of spans of the same scope, kept in the file, or, for spans without a scope, the names alone,
since nobody's erasure would find a dictionary with their contents. Before that, ids in hex digits become bytes, and the
ids of the span itself, which its row has, go. A body that is not packed begins as every span does, with its trace id.

    packed   0x01, number of the dictionary (4 bytes), deflated rest
"""

from __future__ import annotations

import re
import zlib
from binascii import unhexlify

_PACKED = b"\x01"
_HEADER = 5
_IDS = re.compile(rb"\x0a\x10.{16}\x12\x08.{8}", re.DOTALL)
_IDS_BYTES = 28
_LEVEL = 9
_ESCAPE = b"\xff"
_HEX = re.compile(rb"\xff|(?:[0-9a-f]{2}){8,127}")
DICTIONARY_BYTES = 24_000
"""Most of a dictionary; deflate looks back 32 KiB."""
NAMES = 0
"""Number of the dictionary that is in no file."""
_WORDS = re.findall(
    r"\S+",
    "https://opentelemetry.io/schemas/ exception.message exception.type exception.stacktrace "
    "http.request.method url.full server.address server.port code.function.name error.type service.name "
    "openinference.span.kind input.value output.value gen_ai.usage.input_tokens gen_ai.usage.output_tokens "
    "gen_ai.response.id gen_ai.response.model gen_ai.request.model gen_ai.provider.name gen_ai.input.messages "
    "gen_ai.output.messages gen_ai.memory.record.id gen_ai.memory.store.id gen_ai.memory.query.text "
    "gen_ai.evaluation.explanation gen_ai.evaluation.score.value gen_ai.evaluation.score.label "
    "gen_ai.evaluation.name smartcomment.graph_id memtrace.failure.evidence memtrace.failure.reason "
    "memtrace.failure.type memtrace.step.note memtrace.step.ref memtrace.incomplete content_off truncated "
    "unknown_origin memtrace.event.time memtrace.flow memtrace.evidence memtrace.op.purpose memtrace.part "
    "supersedes considered evaluates attributed_to retrieved derived_from memtrace.link.refs "
    "memtrace.link.type gen_ai.operation.name memtrace.op.kind memtrace.system memtrace.scope memtrace.seq "
    "message: query: context: answer: completion: document: chunk: fact: state: memory: UPDATE DELETE NONE ADD "
    "DERIVE candidate previous history prompt expected answer context message query hit other "
    "memtrace.inputs.stores memtrace.inputs.contents memtrace.inputs.scores memtrace.inputs.digests "
    "memtrace.inputs.origins memtrace.inputs.roles memtrace.inputs memtrace.outputs.stores "
    "memtrace.outputs.contents memtrace.outputs.sizes memtrace.outputs.digests memtrace.outputs.actions "
    "memtrace.outputs.roles memtrace.outputs ",
)
"""As they were when this format was made. Part of the format: never to be changed."""
_NAMES = b"".join(b"J\x20\n" + bytes((len(word),)) + word.encode() + b"\x12\x12*\x10\n\x08\n\x06" for word in _WORDS)


class PackingError(ValueError):
    """A packed body that is not as it was written."""


class Packer:
    """Packs bodies with one dictionary; `number` is that of the dictionary, `sample` what spans of its scope say."""

    def __init__(self, number: int, sample: bytes) -> None:
        self._header = _PACKED + number.to_bytes(_HEADER - 1, "big")
        self._deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -15, 9, zlib.Z_DEFAULT_STRATEGY, _NAMES + sample)

    def pack(self, body: bytes) -> bytes:
        """Return a body packed, or as it is when that is not shorter."""
        if not _IDS.match(body):
            return body
        deflate = self._deflate.copy()
        packed = self._header + deflate.compress(_without_hex(body[_IDS_BYTES:])) + deflate.flush()
        return packed if len(packed) < len(body) else body


def make_sample(bodies: list[bytes]) -> bytes:
    """Return the dictionary of a scope: parts of its spans, at most `DICTIONARY_BYTES`."""
    wanted = [_without_hex(body[_IDS_BYTES:]) for body in bodies if _IDS.match(body)]
    size = sum(map(len, wanted))
    step = max(1, -(-size // DICTIONARY_BYTES))
    return b"".join(wanted[::step])[-DICTIONARY_BYTES:]


def dictionary_of(stored: bytes) -> int | None:
    """Return the number of the dictionary that a stored body needs; None when it is not packed."""
    return int.from_bytes(stored[1:_HEADER], "big") if stored[:1] == _PACKED else None


def unpack(stored: bytes, sample: bytes, trace_id: str, span_id: str) -> bytes:
    """Return a packed body as it was received. Raises PackingError."""
    try:
        inflate = zlib.decompressobj(-15, _NAMES + sample)
        rest = _with_hex(inflate.decompress(stored[_HEADER:]) + inflate.flush())
        if not inflate.eof:
            raise PackingError("cut off")
        return b"\x0a\x10" + unhexlify(trace_id) + b"\x12\x08" + unhexlify(span_id) + rest
    except (zlib.error, ValueError, IndexError) as error:
        raise PackingError(f"not as it was packed: {error}") from None


def _without_hex(body: bytes) -> bytes:
    return _HEX.sub(_packed_hex, body)


def _packed_hex(found: re.Match[bytes]) -> bytes:
    digits = found[0]
    if digits == _ESCAPE:
        return _ESCAPE + b"\0"
    return _ESCAPE + bytes((len(digits) // 2,)) + unhexlify(digits)


def _with_hex(packed: bytes) -> bytes:
    parts: list[bytes] = []
    at = 0
    while (escape := packed.find(_ESCAPE, at)) >= 0:
        size = packed[escape + 1]
        parts.append(packed[at:escape])
        at = escape + 2 + size
        parts.append(packed[escape + 2 : at].hex().encode() if size else _ESCAPE)
    parts.append(packed[at:])
    return b"".join(parts)
