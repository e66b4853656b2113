"""Span bodies made small, each on its own, so that each can still be read alone.

Most of a span is what other spans of its memory say as well: names of attributes, words, ids. So a body is deflated
with a dictionary: parts of spans of the same scope, kept in the file, or, for spans without a scope, the names alone,
since nobody's erasure would find a dictionary with their contents. Before that, ids in hex digits become bytes, and the
ids of the span itself, which its row has, go. A body that is not packed begins as every span does, with its trace id.

    packed               0x03, CRC-32 of what follows (4 bytes), number of the dictionary (varint), deflated rest
    with texts cut out   0x04, CRC-32, number of the dictionary, their count, where they were, deflated rest
    with a head          0x05, CRC-32, number of the dictionary, bytes of the head (varint), the head, deflated rest
    up to version 4      0x01 and 0x02: number of the dictionary (4 bytes), and the same

A text that is cut out is the first bytes of a stream (`streams`); where it was are three varints: its place in the body
as received, its size, the id of the stream. Pieces of streams and dictionaries have the checksum of zlib's own format;
in a body that would be ten bytes. No message of protobuf begins with a byte below 8.
"""

from __future__ import annotations

import random
import re
import zlib
from binascii import hexlify, unhexlify
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from memtrace_otel.sources.heads import Head, attributes_of, read_head, take_head
from memtrace_otel.sources.texts import long_texts, read_number, write_number

_OLD_PACKED, _OLD_CUT, _PACKED, _CUT, _HEADED = 1, 2, 3, 4, 5
_HEADER = 5
_IDS = re.compile(rb"\x0a\x10.{16}\x12\x08.{8}", re.DOTALL)
_IDS_BYTES = 28
_TRACE_ID = slice(2, 18)
_LEVEL = 9
_END_BYTES = 512
_SAMPLED_BYTES = 256_000
_ESCAPE = b"\xff"
_OWN, _OWN_HEX = 0x80, 0x81
"""Stand behind the sign for the trace id of the span, as it is and in hex digits; files of version 3 have neither."""
_TOLD = 0x82
"""This and those behind it: for the attributes that the head tells."""
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


class Cut(NamedTuple):
    """`size` bytes of a body from `begin` on: the first ones of a stream."""

    begin: int
    size: int
    stream: int


class Packed(NamedTuple):
    """A packed body taken apart: the number of its dictionary, what was cut out of it, the deflated rest, its head."""

    dictionary: int
    cuts: list[Cut]
    rest: bytes
    head: bytes


ReadStream = Callable[[int, int], bytes]
"""Gives the first bytes, so many, of a stream. Raises PackingError."""


class Packer:
    """Packs bodies with the dictionary of a number."""

    def __init__(self, number: int, dictionary: bytes) -> None:
        self._number = write_number(number)
        self._deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -15, 9, zlib.Z_DEFAULT_STRATEGY, dictionary)

    def pack(self, body: bytes, cuts: Sequence[Cut] = ()) -> bytes:
        """Return a body packed, without what is cut out, or as it is when that is not shorter."""
        if not is_packable(body):
            return body
        rest, head = _without_known(body, cuts)
        packed = self._pack(rest, cuts, head)
        return packed if len(packed) < len(body) else body

    def pack_again(self, packed: Packed, dictionary: bytes) -> bytes:
        """Return a packed body, which had that dictionary, packed with this one. Raises PackingError."""
        return self._pack(_inflated(packed.rest, dictionary), packed.cuts)

    def _pack(self, rest: bytes, cuts: Sequence[Cut], head: bytes = b"") -> bytes:
        kind, told = _PACKED, b""
        deflate = self._deflate.copy()
        if head:
            kind, told = _HEADED, write_number(len(head)) + head
            deflate.compress(head)
            deflate.flush(zlib.Z_SYNC_FLUSH)  # the rest looks back at it
        elif cuts:
            kind = _CUT
            told = b"".join(map(write_number, (len(cuts), *(number for cut in cuts for number in cut))))
        content = self._number + told + deflate.compress(rest) + deflate.flush()
        return bytes((kind,)) + zlib.crc32(content, kind).to_bytes(4, "big") + content


def is_packable(body: bytes) -> bool:
    """Tell whether a body is one as received that begins with its ids."""
    return _IDS.match(body) is not None


def make_sample(bodies: Iterable[bytes]) -> bytes:
    """Return the sample of a scope: parts of its spans, of long texts their ends, at most `DICTIONARY_BYTES`. Only
    so many bodies are taken as are worth it: who makes one has the write lock."""
    wanted: list[bytes] = []
    size = 0
    for body in filter(is_packable, bodies):
        ends = [Cut(begin, end - begin - _END_BYTES, 0) for begin, end in long_texts(body)]
        wanted.append(_without_known(body, ends)[0])
        size += len(wanted[-1])
        if size >= _SAMPLED_BYTES:
            break
    random.Random(len(wanted)).shuffle(wanted)  # every so many-th one might be of one kind alone
    return b"".join(wanted[: max(1, len(wanted) * DICTIONARY_BYTES // max(1, size))])[-DICTIONARY_BYTES:]


def make_dictionary(sample: bytes) -> bytes:
    """Return what deflate looks back at: the names that spans of all scopes have, and the sample of one."""
    return _NAMES + sample


def is_packed(stored: bytes) -> bool:
    """Tell whether a stored body is packed."""
    return stored[:1] != b"" and _OLD_PACKED <= stored[0] <= _HEADED


def take_apart(stored: bytes) -> Packed | None:
    """Return the parts of a packed body, None when it is not packed. Raises PackingError when it is not as written."""
    kind = stored[0] if len(stored) else 0
    if not _OLD_PACKED <= kind <= _HEADED:
        return None
    cuts: list[Cut] = []
    head = b""
    try:
        if kind >= _PACKED:
            if zlib.crc32(stored[_HEADER:], kind) != int.from_bytes(stored[1:_HEADER]):
                raise PackingError("not as it was packed: its checksum is another")
            number, at = stored[_HEADER], _HEADER + 1
            if number > 127:
                number, at = read_number(stored, _HEADER)
        else:
            number, at = int.from_bytes(stored[1:_HEADER], "big"), _HEADER
        if kind in (_CUT, _OLD_CUT):
            count, at = read_number(stored, at)
            for _ in range(count):
                begin, at = read_number(stored, at)
                size, at = read_number(stored, at)
                stream, at = read_number(stored, at)
                cuts.append(Cut(begin, size, stream))
        if kind == _HEADED:
            size, at = read_number(stored, at)
            head, at = stored[at : at + size], at + size
    except IndexError:
        raise PackingError("cut off") from None
    return Packed(number, cuts, stored[at:], head)


def unpack(packed: Packed, dictionary: bytes, trace_id: str, span_id: str, read: ReadStream) -> bytes:
    """Return a packed body as it was received. Raises PackingError."""
    try:
        ids = unhexlify(trace_id), unhexlify(span_id)
    except ValueError as error:
        raise PackingError(f"not as it was packed: {error}") from None
    rest = _inflated(packed.rest, dictionary + packed.head)
    body = b"\x0a\x10" + ids[0] + b"\x12\x08" + ids[1] + _with_known(rest, packed.head, ids[0])
    if not packed.cuts:
        return body
    parts: list[bytes] = []
    taken = done = 0
    for begin, size, stream in packed.cuts:
        parts += (body[taken : taken + begin - done], read(stream, size))
        taken += begin - done
        done = begin + size
    return b"".join((*parts, body[taken:]))


def unpack_head(packed: Packed, trace_id: str) -> Head:
    """Return the head of a packed body that has one. Raises PackingError."""
    return _read_head(packed.head, unhexlify(trace_id))


def _without_known(body: bytes, cuts: Sequence[Cut]) -> tuple[bytes, bytes]:
    """What of a body is deflated, and its head."""
    trace_id, rest = body[_TRACE_ID], _without(body, cuts)
    taken = None if cuts else take_head(rest)
    if taken is None:
        return _without_hex(rest, trace_id), b""
    parts: list[bytes] = []
    at = 0
    for begin, end, place in taken[1]:
        parts += (_without_hex(rest[at:begin], trace_id), _ESCAPE, bytes((_TOLD + place,)))
        at = end
    packed, head = b"".join((*parts, _without_hex(rest[at:], trace_id))), _without_hex(taken[0], trace_id)
    if _with_known(packed, head, trace_id) != rest:  # senders are not all SDKs
        return _without_hex(rest, trace_id), b""
    return packed, head


def _with_known(packed: bytes, head: bytes, trace_id: bytes) -> bytes:
    """Undoes `_without_known`, but for what is cut out. Raises PackingError."""
    return _with_hex(packed, trace_id, attributes_of(_read_head(head, trace_id)) if head else ())


def _read_head(packed: bytes, trace_id: bytes) -> Head:
    try:
        return read_head(_with_hex(packed, trace_id))
    except ValueError as error:
        raise PackingError(f"not as it was packed: {error}") from None


def _without(body: bytes, cuts: Sequence[Cut]) -> bytes:
    """A body without its ids and what is cut out."""
    if not cuts:
        return body[_IDS_BYTES:]
    begins = (_IDS_BYTES, *(cut.begin + cut.size for cut in cuts))
    ends = (*(cut.begin for cut in cuts), len(body))
    return b"".join(body[begin:end] for begin, end in zip(begins, ends, strict=True))


def _inflated(packed: bytes, dictionary: bytes) -> bytes:
    try:
        inflate = zlib.decompressobj(-15, dictionary)
        rest = inflate.decompress(packed)
    except zlib.error as error:
        raise PackingError(f"not as it was packed: {error}") from None
    if not inflate.eof:
        raise PackingError("cut off")
    return rest


def _without_hex(rest: bytes, trace_id: bytes) -> bytes:
    """Ids in hex digits as bytes, and the trace id of the span, which its row has, as a sign."""
    trace_hex = hexlify(trace_id)

    def packed(found: re.Match[bytes]) -> bytes:
        digits = found[0]
        if digits == _ESCAPE:
            return _ESCAPE + b"\0"
        if digits == trace_hex:
            return _ESCAPE + bytes((_OWN_HEX,))
        return _ESCAPE + bytes((len(digits) // 2,)) + unhexlify(digits)

    return (_ESCAPE + bytes((_OWN,))).join(_HEX.sub(packed, part) for part in rest.split(trace_id))


def _with_hex(packed: bytes, trace_id: bytes, told: Sequence[bytes] = ()) -> bytes:
    """Undoes `_without_hex`, and puts what the head tells where it was. Raises PackingError."""
    parts = iter(packed.split(_ESCAPE))
    found = [next(parts)]
    try:
        for part in parts:
            size = part[0]
            if size == _OWN:
                found += (trace_id, part[1:])
            elif size == _OWN_HEX:
                found += (hexlify(trace_id), part[1:])
            elif size >= _TOLD:
                found += (told[size - _TOLD], part[1:])
            elif size:
                while len(part) <= size:  # a byte of the id is the same as the sign
                    part += _ESCAPE + next(parts)
                found += (hexlify(part[1 : size + 1]), part[size + 1 :])
            else:
                found += (_ESCAPE, part[1:])
    except (IndexError, StopIteration):
        raise PackingError("cut off") from None
    return b"".join(found)
