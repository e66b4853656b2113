"""Redaction: removes secrets from a content before the content leaves the process, and names the rules that matched."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from memtrace_otel import settings
from memtrace_otel.capture.guard import note_drop, note_error
from memtrace_otel.capture.redact_callback import Callback, CallbackRunner, load_callback
from memtrace_otel.capture.redact_keys import Keys, read_keys
from memtrace_otel.capture.redact_patterns import Patterns, read_patterns
from memtrace_otel.semconv import Incomplete

SEARCHED = 1_000_000
"""Characters of a content that the rules search; the rest is withheld."""
OWN_SEARCHED = 1 << 15
"""Characters of a text that regular expressions of the user search; the rest is withheld."""
EDGE = 4096
"""Longest secret that a cut never shows in part, in characters."""
_SHORT = 512  # the bench row "operation" needs the cache of short texts
_BACKSLASHES = re.compile(r"\\{2,15}(?=[nrtbfu/])")
_ESCAPES = {r"\n": "\n", r"\r": "\r", r"\t": "\t", r"\b": " ", r"\f": " ", r"\/": "/"}
_CODE = re.compile(r"\\u([0-9a-fA-F]{4})")

_logger = logging.getLogger("memtrace_otel.capture")


class Redacted(NamedTuple):
    """The part of a content that may leave, and why that is not all (values of `memtrace.incomplete`)."""

    text: str
    reasons: tuple[str, ...] = ()


class Redaction:
    """The rules of this process. With `problems` (settings that cannot be understood) no content may leave."""

    def __init__(
        self, patterns: Patterns, keys: Keys, callback: Callback | None = None, *, problems: tuple[str, ...] = ()
    ) -> None:
        self.patterns, self.keys = patterns, keys
        self.callback = CallbackRunner(callback) if callback is not None else None
        self.problems = (*patterns.problems, *problems)
        self._short_may_change = lru_cache(4096)(self._search)
        self._name_of = lru_cache(1024)(keys.name_of)

    def apply(self, text: str, most: int = 0) -> Redacted:
        """Return the part of `text` that may leave; never raises. Text that was not searched does not leave.

        `most` is the number of characters that the caller can use, 0 for all.
        """
        if self.problems:
            note_drop("redaction_misconfigured")
            return Redacted("", (Incomplete.WITHHELD,))
        searched = min(SEARCHED, most + EDGE) if most else SEARCHED
        try:
            if len(text) <= searched and self.callback is None and not self._may_change(text):
                return Redacted(text)
            return self._redact(text, searched)
        except Exception as error:
            note_error("redaction", error)
            return Redacted("", (Incomplete.WITHHELD,))

    def passes(self, texts: Iterable[str], longest: int) -> bool:
        """Whether `texts`, each of at most `longest` characters, may leave unchanged: fast, never wrongly True."""
        if self.problems or self.callback is not None or longest > SEARCHED:
            return False
        return not any(map(self._may_change, texts))

    def of_attribute(self, name: str, value: object) -> object:
        """The value of an attribute, or a note if `name` is a secret key."""
        return self.keys.hide(name, value, Counter()) if self._name_of(name) else value

    def _may_change(self, text: str) -> bool:
        return self._short_may_change(text) if len(text) <= _SHORT else self._search(text)

    def _search(self, text: str) -> bool:
        return "\\" in text or self.patterns.may_occur(text) or self.keys.may_occur(text)  # an escape may hide a secret

    def _redact(self, text: str, searched: int) -> Redacted:
        found: Counter[str] = Counter()
        if searched < len(text) <= SEARCHED and _like_json(text):  # a cut would make the JSON unreadable
            text = self._text(text, found, 0)
        cut = len(text) > searched
        redacted = self._text(text[:searched], found, 0)
        if cut:  # a secret across the cut must not be shown in part
            redacted = redacted[: -min(EDGE, searched * 2 // 3)]
        if self.callback is not None:
            answer = self.callback(redacted)
            if answer is None:
                note_drop("redaction_callback")
                return Redacted("", (*_reasons(found), Incomplete.WITHHELD))
            found["callback"] = int(answer != redacted)
            redacted = answer
        return Redacted(redacted, (*_reasons(found), *((Incomplete.TRUNCATED,) if cut else ())))

    def _text(self, text: str, found: Counter[str], depth: int) -> str:
        if not self._may_change(text):
            return text
        if _like_json(text) and (done := self.keys.apply_json(text, found, self._text, depth)) is not None:
            return done
        text = self._plain(text, found)
        if "\\" in text and (shown := _unescaped(text)) != text:  # JSON or source code inside the text
            before = found.total()
            shown = self._plain(shown, found)
            return shown if found.total() > before else text
        return text

    def _plain(self, text: str, found: Counter[str]) -> str:
        if self.patterns.may_occur(text):
            long = self.patterns.own and len(text) > OWN_SEARCHED
            text = self.patterns.apply(text[:OWN_SEARCHED] if long else text, found)
            if long:
                found["length"] += 1
                text = text[:-EDGE]
        return self.keys.apply_text(text, found)


def _like_json(text: str) -> bool:
    return text[:32].lstrip().startswith(("{", "[", '"'))


def _unescaped(text: str) -> str:
    """`text` with JSON escapes resolved, at any depth. Quotes, brackets and backslashes stay escaped: they mark where
    values end."""
    if r"\\" in text:
        text = _BACKSLASHES.sub(r"\\", text)
    for escape, char in _ESCAPES.items():
        text = text.replace(escape, char)
    return _CODE.sub(_character, text) if r"\u" in text else text


def _character(code: re.Match[str]) -> str:
    char = chr(int(code[1], 16))
    return code[0] if char in "\"'\\`{}[]" or "\ud800" <= char <= "\udfff" else char


def _reasons(found: Counter[str]) -> tuple[str, ...]:
    return tuple(f"{Incomplete.REDACTED}:{name}" for name, count in found.items() if count)


def read_redaction(callback: Callback | None = None) -> Redaction | None:
    """The redaction of the settings, None for no redaction. `callback` replaces the callback of the settings."""
    problems: list[str] = []
    path = settings.REDACT_CALLBACK.read()
    if callback is None and path:
        try:
            callback = load_callback(path)
        except Exception as error:
            problems.append(f"{settings.REDACT_CALLBACK.env} cannot be loaded ({type(error).__name__})")
    patterns = read_patterns(settings.REDACT_PATTERNS.read())
    keys = read_keys(settings.REDACT_KEYS.read())
    redaction = Redaction(patterns, keys, callback, problems=tuple(problems))
    for problem in redaction.problems:
        _logger.warning(
            "redaction: %s; no content of ours leaves this process, contents on spans of other instrumentations do "
            "(`memtrace-otel doctor` names them)",
            problem,
        )
    return redaction if redaction.problems or patterns.rules or keys.names or callback is not None else None
