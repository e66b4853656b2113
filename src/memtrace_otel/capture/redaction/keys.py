"""Redaction by key: values of secret keys in JSON contents at any depth, and in JSON-like pieces of any other text.

A key stands before its value, or beside it: `["authorization", ...]`, `{"name": "cookie", "value": ...}`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from memtrace_otel.capture.redaction.patterns import any_in, note
from memtrace_otel.capture.redaction.values import KEY, PAIR, end_of_value, is_closed, named_beside

SECRETS = (
    *("password", "passwd", "pwd", "passphrase", "secret", "token", "credentials", "authorization", "cookie"),
    *("api_key", "access_key", "account_key", "secret_key", "private_key", "connection_string"),
    *("access_token", "api_token", "auth_token", "bearer_token", "id_token", "refresh_token", "session_token"),
)
_ONE_WORD = frozenset({"secret", "token", *(name for name in SECRETS if name.endswith(("_key", "_token")))})
"""Unquoted values of these hold no space; those of all others are the rest of their line."""
_COUNTS = frozenset({"tokens"})  # what models use and users pay
_LONG = 6  # letters: names from here on are found at the end of longer words, `PGPASSWORD`
_DEPTH = 32  # JSON inside JSON strings counts, too
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_A-Za-z]+")
_NOTE = re.compile(re.escape(note("\0")).replace("\0", r"[^\]]*"))
_MOST_WORDS = 16  # of a name
_NAMED_BY, _VALUES = ("name", "key", "header", "field"), ("value", "val")
_NOTHING = frozenset({"null", "None", "true", "false", "True", "False"})

Redact = Callable[[str, Counter[str], int], str]


@dataclass(frozen=True, slots=True)
class Keys:
    """Names of keys whose values are removed: names without case and separators -> names as notes say them.

    A key matches when its last words are those of a name, in singular or plural, or when it ends with a long name:
    `password` matches `dbPassword`, `DB-PASSWORDS` and `PGPASSWORD`, not `password_hint`. Empty, null and boolean
    values stay.
    """

    names: Mapping[str, str] = field(default_factory=dict[str, str])
    hints: tuple[str, ...] = ()
    long: tuple[str, ...] = ()

    def may_occur(self, text: str) -> bool:
        """Whether a key may occur in `text`: quick, and never wrong when it says no."""
        if ":" in text or "=" in text or "<" in text or "--" in text or '",' in text or "'," in text:
            return any_in(self.hints, text.lower().replace("_", "").replace("-", ""))
        return False

    def name_of(self, key: str) -> str:
        """The name that `key` matches, '' for none."""
        words = [word.lower() for word in _WORD.findall(key)]
        for start in range(max(0, len(words) - _MOST_WORDS), len(words)):
            if found := self._named("".join(words[start:])):
                return found
        whole = "".join(words).removesuffix("s")
        if not whole.endswith(self.long):
            return ""
        return next(self.names[flat] for flat in self.long if whole.endswith(flat))

    def _named(self, flat: str) -> str:
        return self.names.get(flat) or ("" if flat in _COUNTS else self.names.get(flat.removesuffix("s"), ""))

    def apply_text(self, text: str, found: Counter[str]) -> str:
        """Remove values after `"key":`, `key=`, `key:` and `["key",` in a text that is not JSON as a whole."""
        if not self.may_occur(text):
            return text
        pieces: list[str] = []
        done = 0
        for match in KEY.finditer(text):
            key = match["quoted"] or match["bare"] or match["tag"] or match["option"] or match["first"]
            start = match.end()
            if match.start() < done:
                continue
            name = self.name_of(key) or (self.name_of(named_beside(text, match.start())) if key in _VALUES else "")
            if not name:
                continue
            end = end_of_value(text, match, spaces=name not in _ONE_WORD)
            if match["first"] and not is_closed(text, start, end):
                continue
            value = text[start:end].strip(" \t\r\n\"'\\")
            if not value or value in _NOTHING or _NOTE.fullmatch(value):
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
            made = {key: self.hide(key, value, found) for key, value in items}
            names = (made[name] for name in _NAMED_BY if name in made)
            if secret := next((name for name in names if isinstance(name, str) and self.name_of(name)), ""):
                made |= {key: self.hide(secret, made[key], found) for key in _VALUES if key in made}
            if len(made) < len(items):
                found["duplicate_key"] += 1  # what it hides was not looked at: the JSON is written anew, without it
            return made

        try:
            walked = self._walk(json.loads(text, object_pairs_hook=pairs), found, redact, depth)
        except (ValueError, RecursionError):
            return None
        return json.dumps(walked, ensure_ascii=False) if found.total() > before else text

    def hide(self, key: str, value: Any, found: Counter[str]) -> Any:
        """A note in the place of the value of a secret key, any other value itself."""
        if value is None or value == "" or isinstance(value, bool) or not (name := self.name_of(key)):
            return value
        found[name] += 1
        return note(name)

    def _walk(self, value: Any, found: Counter[str], redact: Redact, depth: int) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if depth > _DEPTH:
            found["depth"] += 1
            return note("depth")
        if isinstance(value, str):
            return redact(value, found, depth + 1)
        if isinstance(value, dict):
            members = cast("dict[str, Any]", value)
            return {redact(k, found, depth + 1): self._walk(v, found, redact, depth + 1) for k, v in members.items()}
        if isinstance(value, list):
            items = cast("list[Any]", value)
            if len(items) == 2 and isinstance(items[0], str) and PAIR.fullmatch(items[0]):
                items = [items[0], self.hide(items[0], items[1], found)]
            return [self._walk(item, found, redact, depth + 1) for item in items]
        written = str(value)
        redacted = redact(written, found, depth + 1)
        return value if redacted == written else redacted


def read_keys(setting: str) -> Keys:
    """Understand a setting: names between commas; `secrets` stands for the built-in ones, `none` for none."""
    names: dict[str, str] = {}
    hints: set[str] = set()
    for item in filter(None, (part.strip() for part in re.split(r"[,;\n]", setting))):
        for name in SECRETS if item == "secrets" else () if item == "none" else (item,):
            if words := [word.lower() for word in _WORD.findall(name)]:
                flat = "".join(words)
                names |= {flat: "_".join(words), flat.removesuffix("s"): "_".join(words)}
                hints.add(words[-1].removesuffix("s"))
    return Keys(names, tuple(sorted(hints)), tuple(flat for flat in names if len(flat) >= _LONG))
