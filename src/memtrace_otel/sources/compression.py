"""Compression of span bodies: zlib with a fixed dictionary of attribute names, and bounded decompression."""

from __future__ import annotations

import re
import zlib

MAX_BODY_BYTES = 32 << 20
"""Most bytes of one decompressed span."""
_FREE_BYTES, _MAX_RATIO = 4096, 50
"""A body is stored compressed only if it has at most so many bytes, plus so many times its compressed bytes. A reader
refuses anything larger, so a small file cannot fill the memory."""
_COMPRESSED = b"\x78"
"""First byte of a zlib stream; a protobuf span begins with its trace id, 0x0a."""
_NAMES = re.findall(
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
_BEFORE, _AFTER = b"J\x20\n", b"\x12\x12*\x10\n\x08\n\x06"
DICTIONARY = b"".join(_BEFORE + bytes((len(name),)) + name.encode() + _AFTER for name in _NAMES)
"""Attribute names as protobuf writes them. A part of file format 1: another dictionary is another schema version."""
_deflate = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_DEFAULT_STRATEGY, DICTIONARY)


class BodyError(ValueError):
    """A stored body that cannot be decompressed, or is larger than a body may be."""


def compress(body: bytes) -> bytes:
    """Return a body compressed, or as it is where that is not shorter or much shorter than usual."""
    deflate = _deflate.copy()
    packed = deflate.compress(body) + deflate.flush()
    return packed if len(packed) < len(body) <= _limit(packed) else body


def decompress(stored: object) -> bytes:
    """Return the body that `compress` was given. Raises BodyError, also for a value of another type."""
    if not isinstance(stored, bytes):
        raise BodyError(f"a body is {type(stored).__name__} instead of bytes")
    if stored[:1] != _COMPRESSED:
        return stored
    inflate = zlib.decompressobj(zdict=DICTIONARY)
    try:
        body = inflate.decompress(stored, _limit(stored))
    except zlib.error as error:
        raise BodyError(f"a body cannot be decompressed: {error}") from None
    if not inflate.eof:
        raise BodyError("a body is cut off, or larger than a body may be")
    return body


def _limit(packed: bytes) -> int:
    return min(MAX_BODY_BYTES, _FREE_BYTES + _MAX_RATIO * len(packed))
