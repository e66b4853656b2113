"""Contents: digest, size, ref and, if content capture is on, the redacted preview for a span."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from opentelemetry.util.types import AttributeValue

from memtrace_otel.capture.config import CaptureConfig, config, redaction
from memtrace_otel.capture.values import as_text, record_id, words
from memtrace_otel.model import content_digest, make_ref, split_ref
from memtrace_otel.semconv import Incomplete, RefKind

if TYPE_CHECKING:  # loaded only when content capture is on
    from memtrace_otel.capture.redact import Redaction

_OWN_KEY = secrets.token_hex(16)  # of this process and its forked children


def _encodable(text: str) -> str:
    """`text` with `?` for each lone surrogate (a completion cut inside an emoji), which UTF-8 cannot encode."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def utf8_bytes(text: str) -> int:
    """Bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def preview(text: str, limit: int) -> tuple[str, bool]:
    """Cut `text` to at most `limit` UTF-8 bytes at a character border; return (cut text, was cut)."""
    if len(text) * 4 <= limit:
        return text, False
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text, False
    return data[:limit].decode("utf-8", "ignore"), True


class Described(NamedTuple):
    """A content as a span shows it: digest and bytes of the whole content, the part that may be shown, and the reasons
    why that part is less than the content (values of `memtrace.incomplete`)."""

    digest: str
    size: int
    shown: str = ""
    reasons: tuple[str, ...] = ()


def describe(text: str, limits: CaptureConfig, *, inline: bool) -> Described:
    """Describe a whole content; `inline`: the span may show it (a version is shown only on the span that wrote it)."""
    if not text:
        return Described("", 0)
    if text.isascii():
        size, may_leave = len(text), text
    else:
        size, may_leave = len(text.encode("utf-8", "surrogatepass")), _encodable(text)
    reasons = () if may_leave == text else (Incomplete.UNSERIALISABLE,)
    if not inline or not limits.content:
        return Described(digest(text, limits), size)
    key = limits.digest_key
    if limits.redaction is not None:
        may_leave, why = limits.redaction.apply(may_leave, limits.preview_bytes)
        key = key or _key_after(lambda: why, limits.redaction)
        reasons += why
    shown, cut = preview(may_leave, limits.preview_bytes)
    if cut:
        reasons = (*reasons, Incomplete.TRUNCATED)
    return Described(content_digest(text, key), size, shown, reasons)


def plain(texts: list[str], limits: CaptureConfig) -> bool:
    """Whether all of `texts` may go on a span unchanged: a fast test. If it is False, each text needs `describe`."""
    if not all(map(str.isascii, texts)):
        return False
    if not limits.content:
        return limits.redaction is None
    if len("".join(texts)) > limits.preview_bytes < max(map(len, texts)):
        return False
    return limits.redaction is None or limits.redaction.passes(texts, limits.preview_bytes)


def digest(text: str, limits: CaptureConfig) -> str:
    """The digest of a content on spans.

    A plain digest would let the removed part of a short content be guessed: one that redaction changes is keyed, by a
    key that only this process knows when there is no MEMTRACE_DIGEST_KEY.
    """
    key, rules = limits.digest_key, limits.redaction
    if rules is not None and not key:
        key = _key_after(lambda: rules.apply(_encodable(text), limits.preview_bytes).reasons, rules)
    return content_digest(text, key)


def _key_after(reasons: Callable[[], tuple[str, ...]], rules: Redaction) -> str:
    """The key of a digest. With a callback always the process's own key: a late callback must not change the digest."""
    changed = rules.callback is not None or reasons() not in ((), (Incomplete.TRUNCATED,))
    return _OWN_KEY if changed else ""


def show(text: str, limits: CaptureConfig, most: int = 0) -> str:
    """The redacted form of a text that is not a variable (an error message, an attribute), cut at `most` UTF-8 bytes
    (0: the preview limit)."""
    text = _encodable(text)
    if (rules := limits.redaction or redaction()) is not None:
        text, _ = rules.apply(text, most or limits.preview_bytes)
    return preview(text, most or limits.preview_bytes)[0]


def show_value(value: object, limits: CaptureConfig) -> AttributeValue:
    """The redacted form of an attribute value: numbers unchanged, everything else as text by `show`, also in a list."""
    if isinstance(value, list | tuple):
        return cast(AttributeValue, [_show_one(item, limits) for item in cast("Sequence[object]", value)])
    return _show_one(value, limits)


def _show_one(value: object, limits: CaptureConfig) -> bool | int | float | str:
    return value if isinstance(value, bool | int | float) else show(as_text(value)[0], limits)


def variable_ref(kind: str, content: object, id: object = None) -> str:
    """Ref of a variable: by `id`; else by the `id` field of a stored record, chunk, document, message or query; else by
    the digest of its text."""
    if id is None and not isinstance(content, str):
        id = record_id(kind, content)
    if id is not None and (name := _id_text(id)):
        return make_ref(kind, name)
    text, faithful = words(content)
    if not faithful:  # two unreadable values must not have one ref
        return make_ref(kind, _unreadable())
    return make_ref(kind, digest(text, config()))


def said(ref: str, said_in: str, number: int = 1) -> str:
    """Ref of a text without an id in one call: `<kind>:<digest>.<call>[.<number>]`."""
    kind, digest = split_ref(ref)
    return make_ref(kind, ".".join(filter(None, (digest, said_in, str(number) if number > 1 else ""))))


def message_refs(messages: Iterable[tuple[object, object]], said_in: str) -> Iterator[str]:
    """Refs of messages, (content, id) each. One without an id is named by its text and `said_in`, the call it was given
    to: equal texts of two calls, or two of one call, are two messages, and every step of the call finds the same names.
    """
    equal: Counter[str] = Counter()
    for content, id in messages:
        ref = variable_ref(RefKind.MESSAGE, content, id)
        if not id:
            equal[ref] += 1
            ref = said(ref, said_in, equal[ref])
        yield ref


def scope_id(
    store: str = "", *, user: object = None, agent: object = None, run: object = None, app: object = None
) -> str:
    """Return the memory owner as 16 hex: a keyed digest over store, user, agent, run and app ids (None = absent)."""
    parts = ["" if part is None else _id_text(part) for part in (store, user, agent, run, app)]
    return content_digest(json.dumps(parts, ensure_ascii=False), config().digest_key)


def _id_text(id: object) -> str:
    """An id as text; an unreadable id gets a unique text."""
    try:
        return str(id)
    except Exception:  # a hostile __str__ of the observed program
        return _unreadable()


def _unreadable() -> str:
    return f"{Incomplete.UNSERIALISABLE}-{secrets.token_hex(8)}"
