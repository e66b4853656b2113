"""Redaction: removes secrets from a content before it leaves the process, and says which rules removed something."""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from memtrace_otel import settings
from memtrace_otel.capture.guard import note_drop, note_error
from memtrace_otel.capture.redact_keys import Keys, read_keys
from memtrace_otel.capture.redact_patterns import Patterns, read_patterns
from memtrace_otel.capture.redaction_callback import Callback, Watched, load_callback
from memtrace_otel.semconv import Incomplete

CALLBACK = "callback"
SEARCHED = 1_000_000
"""Characters of a content that the built-in rules search; the rest is withheld."""
EDGE = 4096
"""Longest secret that is certainly found at a cut."""
_SLOW = 0.1  # seconds of the processor
_SHRINK = 8
_RECENT, _RECENT_CHARACTERS = 64, 8192
_LOOKED_AT, _SHORT = 4096, 512
"""Cached results for short texts: records are read again and again (the bench row "operation" needs the cache)."""
_NAMES = 1024
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
        self,
        patterns: Patterns,
        keys: Keys,
        callback: Callback | None = None,
        *,
        searched: int = SEARCHED,
        problems: tuple[str, ...] = (),
    ) -> None:
        self.patterns, self.keys = patterns, keys
        self.callback = Watched(callback) if callback is not None else None
        self.searched = min(searched, SEARCHED) if patterns.own else SEARCHED
        self.problems = (*patterns.problems, *problems)
        self._looked_at = lru_cache(_LOOKED_AT)(self._look)
        self._name_of = lru_cache(_NAMES)(keys.name_of)
        self._recent: dict[tuple[str, int], Redacted] = {}  # an operation asks for the same text two or three times

    def apply(self, text: str, most: int = 0, system: str = "") -> Redacted:
        """Return the part of `text` that may leave; never raises. Text that was not searched does not leave.

        `most` is the number of characters that the caller can use, 0 for all. `system` is for the counts of drops.
        """
        if self.problems:
            note_drop("redaction_misconfigured", system=system)
            return Redacted("", (Incomplete.WITHHELD,))
        searched = min(self.searched, most + EDGE) if most else self.searched
        try:
            if len(text) <= searched and self.callback is None and not self._may_change(text):
                return Redacted(text)  # the common case, quickly
            if (known := self._recent.get((text, searched))) is None:
                known = self._checked(text, searched, system)
                if len(text) <= _RECENT_CHARACTERS and Incomplete.WITHHELD not in known.reasons:
                    if len(self._recent) >= _RECENT:
                        self._recent.clear()
                    self._recent[text, searched] = known
            return known
        except Exception as error:
            note_error("redaction", error, system)
            return Redacted("", (Incomplete.WITHHELD,))

    def passes(self, texts: Iterable[str], longest: int) -> bool:
        """Whether `texts`, each of at most `longest` characters, may leave unchanged: a fast test, never wrongly
        True."""
        if self.problems or self.callback is not None or longest > self.searched:
            return False
        return not any(map(self._may_change, texts))

    def of_attribute(self, name: str, value: object) -> object:
        """The value of an attribute, or a note if `name` is a secret key."""
        return self.keys.hide(name, value, Counter()) if self._name_of(name) else value

    def _may_change(self, text: str) -> bool:
        return self._looked_at(text) if len(text) <= _SHORT else self._look(text)

    def _look(self, text: str) -> bool:
        return "\\" in text or self.patterns.may_occur(text) or self.keys.may_occur(text)  # an escape may hide a secret

    def _checked(self, text: str, searched: int, system: str) -> Redacted:
        found: Counter[str] = Counter()
        cut, whole = len(text) > searched, False
        if cut and len(text) <= SEARCHED and _like_json(text) and self._may_change(text):  # half of it is no JSON
            ours = Redaction(self.patterns.built_in(), self.keys)
            if (done := self.keys.apply_json(text, found, ours._text, 0)) is not None:
                text = done
                cut, whole = len(text) > searched, not self.patterns.own
        redacted = text[:searched]
        if not whole:
            redacted = self._timed(redacted, found, system) if self.patterns.own else self._text(redacted, found, 0)
        if cut:  # what a rule would have found beyond the cut must not be shown up to it
            redacted = redacted[: -min(EDGE, searched * 2 // 3)]
        if self.callback is not None:
            answer = self.callback(redacted, system)
            if answer is None:
                note_drop("redaction_callback", system=system)
                return Redacted("", (*_reasons(found), Incomplete.WITHHELD))
            found[CALLBACK] = int(answer != redacted)
            redacted = answer
        return Redacted(redacted, (*_reasons(found), *((Incomplete.TRUNCATED,) if cut else ())))

    def _text(self, text: str, found: Counter[str], depth: int) -> str:
        if not self._may_change(text):
            return text
        if _like_json(text) and (done := self.keys.apply_json(text, found, self._text, depth)) is not None:
            return done
        text = self._plain(text, found)
        if "\\" in text and (shown := _unescaped(text)) != text:  # a piece of JSON, or of code
            before = found.total()
            shown = self._plain(shown, found)
            return shown if found.total() > before else text
        return text

    def _plain(self, text: str, found: Counter[str]) -> str:
        if self.patterns.may_occur(text):
            text = self.patterns.apply(text, found)
        return self.keys.apply_text(text, found)

    def _timed(self, text: str, found: Counter[str], system: str) -> str:
        """Apply the user's expressions. Python cannot interrupt a slow one: later contents are cut shorter."""
        started = time.thread_time()
        try:
            return self._text(text, found, 0)
        finally:
            if time.thread_time() - started > _SLOW and self.searched:
                self.searched = min(self.searched, len(text)) // _SHRINK
                note_drop("redaction_slow", system=system)
                _logger.warning("a redaction pattern is slow: contents are cut at %d characters", self.searched)


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
    redaction = Redaction(
        patterns, keys, callback, searched=settings.REDACT_CHARACTERS.read(), problems=tuple(problems)
    )
    for problem in redaction.problems:
        _logger.warning(
            "redaction: %s; no content of ours leaves this process, what other instrumentations put on their spans "
            "does (`memtrace-otel doctor` names them)",
            problem,
        )
    return redaction if redaction.problems or patterns.rules or keys.names or callback is not None else None
