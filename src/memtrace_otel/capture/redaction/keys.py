"""Redaction by key: values of secret keys in JSON contents at any depth, and in JSON-like pieces of any other text."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from memtrace_otel.capture.redaction.patterns import any_in, note

SECRETS = (
    *("password", "passwd", "pwd", "passphrase", "secret", "token", "credential", "credentials"),
    *("api_key", "access_key", "secret_key", "private_key", "authorization", "cookie"),
)
_DEPTH = 32  # JSON inside JSON strings counts, too
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_A-Za-z]+")
_KEY = re.compile(
    r"""\\{0,7}(["'])(?P<quoted>[\w .-]{1,64})\\{0,7}\1\s{0,8}:\s{0,8}"""  # "key": in JSON, Python, escaped JSON
    r"""|(?<![\w.-])(?P<bare>[\w.-]{1,64})[ \t]{0,2}(?:=(?!=)|:)[ \t]{0,2}"""  # KEY=value, key: value
)
_INNER = r"""(?![\s,;:&)}\]"'`<\\]|\Z)"""  # after a quote that ends nothing
_QUOTED = rf""""(?:[^"\\]|\\.|"{_INNER})*(?:"|\Z)|'(?:[^'\\]|\\.|'{_INNER})*(?:'|\Z)"""
_VALUE = re.compile(
    rf"""(?s:(?P<escape>\\{{1,7}})".*?(?:(?<!\\)(?P=escape)"|\Z)|{_QUOTED})"""
    r"""|(?:(?i:bearer|basic|digest|token)[ ]{1,4})?[^\s,;&}\]]+"""
)
_BRACKET = re.compile(rf"(?s:{_QUOTED})|(?P<open>[{{\[])|(?P<close>[}}\]])")
_NOTE = note("")[:-1]
_NOTHING = frozenset({"null", "None", '""', "''", "true", "false", "True", "False"})

Redact = Callable[[str, Counter[str], int], str]


@dataclass(frozen=True, slots=True)
class Keys:
    """Names of keys whose values are removed. A key matches when its words end with those of a name: `password`
    matches `dbPassword` and `DB-PASSWORD`, not `password_hint`. Empty, null and boolean values stay."""

    names: frozenset[tuple[str, ...]] = frozenset()
    hints: tuple[str, ...] = ()

    def may_occur(self, text: str) -> bool:
        """Whether a key may occur in `text`: quick, and never wrong when it says no."""
        return (":" in text or "=" in text) and any_in(self.hints, text.lower())

    def name_of(self, key: str) -> str:
        """The name that `key` matches, '' for none."""
        words = tuple(word.lower() for word in _WORD.findall(key))
        for start in range(len(words)):
            if words[start:] in self.names:
                return "_".join(words[start:])
        return ""

    def apply_text(self, text: str, found: Counter[str]) -> str:
        """Remove values after `"key":`, `key=` and `key:` in a text that is not JSON as a whole."""
        if not self.may_occur(text):
            return text
        pieces: list[str] = []
        done = 0
        for match in _KEY.finditer(text):
            start = match.end()
            if match.start() < done or not (name := self.name_of(match["quoted"] or match["bare"])):
                continue
            end = _end_of_value(text, start)
            if end == start or text[start:end] in _NOTHING or text.startswith(_NOTE, start):
                continue
            found[name] += 1
            pieces += text[done:start], note(name)
            done = end
        return "".join((*pieces, text[done:])) if pieces else text

    def apply_json(self, text: str, found: Counter[str], redact: Redact, depth: int) -> str | None:
        """Redact a JSON object or array: values of secret keys, and every other string by `redact`.

        Returns None when `text` is neither; the text itself, unchanged to the byte, when there is nothing to remove.
        """
        before = found.total()

        def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
            made = {key: self._value(key, value, found) for key, value in items}
            if len(made) < len(items):
                found["duplicate_key"] += 1  # what it hides was not looked at: the JSON is written anew, without it
            return made

        try:
            walked = _walk(json.loads(text, object_pairs_hook=pairs), found, redact, depth)
        except (ValueError, RecursionError):
            return None
        return json.dumps(walked, ensure_ascii=False) if found.total() > before else text

    def _value(self, key: str, value: Any, found: Counter[str]) -> Any:
        if value is None or value == "" or isinstance(value, bool) or not (name := self.name_of(key)):
            return value
        found[name] += 1
        return note(name)


def _walk(value: Any, found: Counter[str], redact: Redact, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if depth > _DEPTH:
        found["depth"] += 1
        return note("depth")
    if isinstance(value, str):
        return redact(value, found, depth + 1)
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {redact(k, found, depth + 1): _walk(v, found, redact, depth + 1) for k, v in members.items()}
    if isinstance(value, list):
        return [_walk(item, found, redact, depth + 1) for item in cast("list[Any]", value)]
    written = str(value)
    redacted = redact(written, found, depth + 1)
    return value if redacted == written else redacted


def _end_of_value(text: str, start: int) -> int:
    """Where the value that begins at `start` ends: a quoted text, a bracket with all it holds, or a word."""
    if text[start : start + 1] in ("{", "["):
        level = 0
        for token in _BRACKET.finditer(text, start):
            level += (token["open"] is not None) - (token["close"] is not None)
            if not level:
                return token.end()
        return len(text)
    match = _VALUE.match(text, start)
    return match.end() if match else start


def read_keys(setting: str) -> Keys:
    """Understand a setting: names between commas; `secrets` stands for the built-in ones, `none` for none."""
    names: set[str] = set()
    for name in filter(None, (part.strip() for part in re.split(r"[,;\n]", setting))):
        names.update(SECRETS if name == "secrets" else () if name == "none" else (name,))
    words = {found for name in names if (found := tuple(word.lower() for word in _WORD.findall(name)))}
    return Keys(frozenset(words), tuple(sorted({last for *_, last in words})))
