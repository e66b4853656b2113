"""Refs name variables, origins name the spans that produced a version, digests stand for contents."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote, unquote

_UNSAFE = re.compile("[\\s,%|\ud800-\udfff]")
_UNIQUE = re.compile(r"[^:]+:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_BARE = re.compile("[\\s,|\ud800-\udfff]")


def make_ref(kind: str, id: str) -> str:
    """Return `<kind>:<id>` with `id` percent-encoded so that it holds no whitespace, comma, bar or surrogate."""
    if _UNSAFE.search(id):
        id = quote(id, safe=_SAFE, errors="surrogatepass")
    return f"{kind}:{id}"


_SAFE = "".join(chr(c) for c in range(33, 127) if chr(c) not in ",%|")


def encoded_refs(refs: list[str]) -> list[str]:
    """Refs as the wire holds them, made by `make_ref` or by hand: what is encoded stays as it is."""
    all = "".join(refs)  # six quick looks at once; a pattern takes ten times as long
    if all.isascii() and not (" " in all or "," in all or "|" in all or "\n" in all or "\r" in all or "\t" in all):
        return refs
    return [quote(ref, safe=_SAFE + "%", errors="surrogatepass") if _BARE.search(ref) else ref for ref in refs]


def split_ref(ref: str) -> tuple[str, str]:
    """Return (kind, decoded id); a ref without a colon has kind ''."""
    kind, colon, id = ref.partition(":")
    return (kind, unquote(id)) if colon else ("", ref)


def ref_kind(ref: str) -> str:
    """Return the part before the colon, '' without one."""
    return ref.partition(":")[0] if ":" in ref else ""


def is_unique(ref: str) -> bool:
    """Tell whether a ref means one thing in all memories: its id is a UUID."""
    return _UNIQUE.fullmatch(ref) is not None


def make_origin(trace_id: str, span_id: str) -> str:
    """Return `<trace id>-<span id>` (32 and 16 lower-case hex digits)."""
    return f"{trace_id}-{span_id}"


def split_origin(origin: str) -> tuple[str, str]:
    """Return (trace id, span id) of an origin; raises ValueError when it is not 32 hex, a dash and 16 hex."""
    if not is_origin(origin):
        raise ValueError(f"not an origin: {origin!r}")
    return origin[:32], origin[33:]


_TRACE_ID = re.compile(r"(?!0{32})[0-9a-f]{32}")
_ORIGIN = re.compile(r"[0-9a-f]{32}-[0-9a-f]{16}")


def is_trace_id(text: str) -> bool:
    """Tell whether a text is 32 lower-case hex digits, not all of them 0."""
    return _TRACE_ID.fullmatch(text) is not None


def is_origin(origin: str) -> bool:
    """Tell whether `origin` has the form of an origin."""
    return _ORIGIN.fullmatch(origin) is not None


def content_digest(content: str | bytes, key: str = "") -> str:
    """Return the first 16 hex digits of SHA-256 over the whole UTF-8 content, of HMAC-SHA-256 with a key."""
    if isinstance(content, str):
        return _known_digest(content, key) if len(content) <= _SHORT else _digest(content, key)
    if key:
        return hmac.new(key.encode(), content, hashlib.sha256).hexdigest()[:16]
    digest = _sha256.copy()
    digest.update(content)
    return digest.hexdigest()[:16]


_sha256 = hashlib.sha256()  # a copy takes half as long as a new one


def content_digests(contents: Iterable[str], key: str = "") -> list[str]:
    """Return the digest of each content, "" of an empty one."""
    return [
        _known_digest(text, key) if 0 < len(text) <= _SHORT else content_digest(text, key) if text else ""
        for text in contents
    ]


def _digest(text: str, key: str) -> str:
    return content_digest(text.encode("utf-8", "surrogatepass"), key)


_SHORT = 512
"""Characters of a text whose digest is remembered: memories are read again and again."""
_known_digest = lru_cache(4096)(_digest)
