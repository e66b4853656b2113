"""Redaction by key: values of secret keys in JSON at any depth, and after `key=`, `key:` and `"key":` in other text."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from memtrace_otel.capture.redact_patterns import any_in, note

SECRETS = (
    *("password", "passwd", "pwd", "passphrase", "secret", "token", "credentials", "authorization", "cookie"),
    *("passwort", "kennwort"),
    *("api_key", "access_key", "account_key", "secret_key", "private_key", "connection_string"),
    *("access_token", "api_token", "auth_token", "bearer_token", "id_token", "refresh_token", "session_token"),
)
_ONE_WORD = frozenset({"secret", "token", *(name for name in SECRETS if name.endswith(("_key", "_token")))})
"""Keys whose unquoted values hold no space; the unquoted values of all others end with their line."""
_COUNTS = frozenset({"tokens"})  # the number of tokens that a model used
_LONG = 6  # letters: a name from here on also matches the end of a longer word, `PGPASSWORD`
_DEPTH = 32  # JSON inside JSON strings counts, too
_MOST_WORDS = 16  # of a key
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_A-Za-z]+")
_NOTE = re.compile(re.escape(note("\0")).replace("\0", r"[^\]]*"))
_NAMED_BY, _VALUES = ("name", "key", "header", "field"), ("value", "val")
_PAIR_KEY = re.compile(r"[\w.-]{1,64}")
_NOTHING = frozenset({"null", "None", "true", "false", "True", "False"})

Redact = Callable[[str, Counter[str], int], str]

_KEY = re.compile(
    r"""\\{0,7}(["'])(?P<quoted>[\w .-]{1,64})\\{0,7}\1\s{0,64}:\s{0,64}"""  # "key": in JSON, Python, escaped JSON
    # KEY=value, key = value, key: value, some key: value, **key:** value
    r"""|(?<![\w.-])(?P<bare>[\w.-]{1,64}+(?:[ ][\w.-]{1,64}+){0,2}+)[*`"'\\]{0,9}+"""
    r"""(?:=(?!=)|(?:[ \t]{1,64}+(?P<apart>=)(?!=))|(?:[ \t]{0,64}+(?P<colon>:)))[*`]{0,3}[ \t]{0,64}"""
)
_INNER = r"""(?![\s,;:&)}\]"'`<\\]|\Z)"""  # after a quote inside a value
_QUOTED = rf""""(?:[^"\\]|\\.|"{_INNER})*(?:"|\Z)|'(?:[^'\\]|\\.|'{_INNER})*(?:'|\Z)"""
_ESCAPED = (  # "..." in JSON in JSON: after whole escaped backslashes a quote is the end
    r"""(?P<escape>\\{1,7})".*?(?:(?<!\\)(?:(?P=escape)\\(?P=escape)\\)*(?P=escape)"|\Z)"""
)
_STRING = re.compile(rf"(?s:{_ESCAPED}|{_QUOTED})")
_BRACKET = re.compile(rf"(?s:{_QUOTED})|(?P<open>[{{\[])|(?P<close>[}}\]])")
_ENDS = r"""\\{0,7}["'](?:[\s,;:)}\]]|\Z)|[}\]](?:[\s,;)}\]"'\\]|\Z)|&[\w.%-]{1,64}=|[,;][\w.-]{1,64}="""
_WORD_ENDS = rf"""{_ENDS}|[,;](?:[\s"'\\]|\Z)"""
_LINE_ENDS = rf"""{_ENDS}|[,;](?:\s{{0,8}}\\{{0,7}}["']|[ \t]{{1,8}}[\w.-]{{1,64}}[ ]?[:=])"""
_VALUE_WORD = re.compile(rf"(?:(?i:bearer|basic|digest|token)[ ]{{1,4}})?(?:(?!{_WORD_ENDS})\S)+")
_LINE = re.compile(rf"(?:(?!{_LINE_ENDS})[^\r\n])+")


@dataclass(frozen=True, slots=True)
class Keys:
    """Names of keys whose values are removed: names without case and separators -> names as notes show them.

    A key matches if its last words are those of a name, in singular or plural, or if it ends with a long name:
    `password` matches `dbPassword`, `DB-PASSWORDS` and `PGPASSWORD`, not `password_hint`. Empty, null and boolean
    values stay.
    """

    names: Mapping[str, str] = field(default_factory=dict[str, str])
    hints: tuple[str, ...] = ()
    long: tuple[str, ...] = ()

    def may_occur(self, text: str) -> bool:
        """Whether a key may occur in `text`: fast, never wrongly False."""
        if ":" in text or "=" in text or '",' in text:
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
        """Remove values after `"key":`, `key=` and `key:` in a text that is not JSON as a whole."""
        if not self.may_occur(text):
            return text
        pieces: list[str] = []
        done = 0
        for match in _KEY.finditer(text):
            start = match.end()
            if match.start() < done or not (name := self.name_of(match["quoted"] or match["bare"])):
                continue
            whole_line = name not in _ONE_WORD and bool(match["quoted"] or match["colon"] or match["apart"])
            end = _end_of_value(text, start, whole_line)
            value = text[start:end].strip(" \t\r\n\"'\\")
            if not value or value in _NOTHING or _NOTE.fullmatch(value):
                continue
            found[name] += 1
            pieces += text[done:start], note(name)
            done = end
        return "".join((*pieces, text[done:])) if pieces else text

    def apply_json(self, text: str, found: Counter[str], redact: Redact, depth: int) -> str | None:
        """Redact a JSON object or array: values of secret keys, and every other string by `redact`.

        A key stands before its value, or beside it: `["authorization", ...]`, `{"name": "cookie", "value": ...}`.
        Returns None for a text that is neither object nor array, and the same text if nothing is removed.
        """
        before = found.total()

        def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
            made = {key: self.hide(key, value, found) for key, value in items}
            names = (made[name] for name in _NAMED_BY if name in made)
            if secret := next((name for name in names if isinstance(name, str) and self.name_of(name)), ""):
                made |= {key: self.hide(secret, made[key], found) for key in _VALUES if key in made}
            if len(made) < len(items):
                found["duplicate_key"] += 1  # the first value was not searched: the JSON is written anew without it
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
            if len(items) == 2 and isinstance(items[0], str) and _PAIR_KEY.fullmatch(items[0]):
                items = [items[0], self.hide(items[0], items[1], found)]
            return [self._walk(item, found, redact, depth + 1) for item in items]
        written = str(value)
        redacted = redact(written, found, depth + 1)
        return value if redacted == written else redacted


def read_keys(setting: str) -> Keys:
    """Read a setting: names between commas; `secrets` stands for the built-in ones, `none` for none."""
    names: dict[str, str] = {}
    hints: set[str] = set()
    for item in filter(None, (part.strip() for part in re.split(r"[,;\n]", setting))):
        for name in SECRETS if item == "secrets" else () if item == "none" else (item,):
            if words := [word.lower() for word in _WORD.findall(name)]:
                flat = "".join(words)
                names |= {flat: "_".join(words), flat.removesuffix("s"): "_".join(words)}
                hints.add(words[-1].removesuffix("s"))
    return Keys(names, tuple(sorted(hints)), tuple(flat for flat in names if len(flat) >= _LONG))


def _end_of_value(text: str, start: int, whole_line: bool) -> int:
    """The end of the value that begins at `start`, `start` if there is none: of a quoted text, an object or list in
    brackets, a word, or a line. In doubt the value ends later."""
    if text[start : start + 1] in ("{", "["):
        level = 0
        for token in _BRACKET.finditer(text, start):
            level += (token["open"] is not None) - (token["close"] is not None)
            if not level:
                return token.end()
        return len(text)
    match = _STRING.match(text, start) or (_LINE if whole_line else _VALUE_WORD).match(text, start)
    return match.end() if match else start
