"""Redaction by key: values of secret keys in JSON at any depth, and after keys in any other text.

A key stands before its value, or beside it: `["authorization", ...]`, `{"name": "cookie", "value": ...}`.
"""

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


KEY = re.compile(
    r"""\\{0,7}(["'])(?P<quoted>[\w .-]{1,64})\\{0,7}\1\s{0,64}:\s{0,64}"""  # "key": in JSON, Python, escaped JSON
    r"""|[\[(]\\{0,7}(["'])(?P<first>[\w.-]{1,64})\\{0,7}\3,\s{0,64}(?=[\\"'{\[])"""  # ["key", "value"]
    r"""|<(?P<tag>[\w.:-]{1,64})>"""
    r"""|(?<![\w.-])--(?P<option>[\w.-]{1,64})[ ]{1,8}(?=[^\s-])"""
    # KEY=value, key = value, key: value, some key: value, **key:** value
    r"""|(?<![\w.-])(?P<bare>[\w.-]{1,64}+(?:[ ][\w.-]{1,64}+){0,2}+)[*`"'\\]{0,9}+"""
    r"""(?:=(?!=)|(?:[ \t]{1,64}+(?P<apart>=)(?!=))|(?:[ \t]{0,64}+(?P<colon>:)))[*`]{0,3}[ \t]{0,64}"""
)
PAIR = re.compile(r"[\w.-]{1,64}")
"""A key that stands in a list with its value, no sentence."""
_CLOSED = re.compile(r"\s{0,64}(?:[\])]|\Z)")
_NAMED = re.compile(  # "name": "key", before "value":
    r"""["'](?:name|key|header|field)\\{0,7}["']\s{0,9}:\s{0,9}\\{0,7}["']([\w .-]{1,64})\\{0,7}["']\s{0,9},\s{0,9}\Z"""
)
_NAMED_WITHIN, _LONG_VALUE = 150, 1000  # characters
_INNER = r"""(?![\s,;:&)}\]"'`<\\]|\Z)"""  # after a quote that ends nothing
_QUOTED = (
    r'"{3}.*?(?:"{3}|\Z)|' + r"'{3}.*?(?:'{3}|\Z)|"
    rf""""(?:[^"\\]|\\.|"{_INNER})*(?:"|\Z)|'(?:[^'\\]|\\.|'{_INNER})*(?:'|\Z)"""
)
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
_BELOW = re.compile(r"(?:[|>][-+\d]{0,2})?[ \t]{0,64}\r?\n(?:[ \t]{0,64}\r?\n){0,4}(?P<indent>[ \t]{0,64})(?=\S)")
_NEXT_KEY = re.compile(r"""["']?[\w.-]{1,64}["']?(?::(?:\s|\Z)|[ \t]{0,64}=(?![=\s]|\Z))""")


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


def end_of_value(text: str, key: re.Match[str], *, spaces: bool) -> int:
    """Where the value of `key` (a match of KEY) ends; where it begins (`key.end()`) when there is none.

    `spaces` tells whether an unquoted value may hold spaces: then it is the rest of its line. Errs on the long side.
    """
    if key["tag"]:
        end = text.find("<", key.end())
        return end if end >= 0 else len(text)
    whole_line = spaces and not key["option"] and bool(key["quoted"] or key["colon"] or key["apart"])
    if key["colon"] and (below := _BELOW.match(text, key.end())) is not None:
        return _end_below(text, key, below, whole_line)
    return _end_on_line(text, key.end(), whole_line)


def is_closed(text: str, start: int, end: int) -> bool:
    """Whether a bracket, or the text, is closed after a value. A long one counts as closed: it is not to be searched
    for keys again, each with a value as long."""
    return end - start > _LONG_VALUE or _CLOSED.match(text, end) is not None


def named_beside(text: str, start: int) -> str:
    """The key that stands as `"name": "key",` right before `start`, '' without one."""
    match = _NAMED.search(text[max(0, start - _NAMED_WITHIN) : start])
    return match[1] if match else ""


def _end_on_line(text: str, start: int, whole_line: bool) -> int:
    if text[start : start + 1] in ("{", "["):
        level = 0
        for token in _BRACKET.finditer(text, start):
            level += (token["open"] is not None) - (token["close"] is not None)
            if not level:
                return token.end()
        return len(text)
    match = _STRING.match(text, start) or (_LINE if whole_line else _VALUE_WORD).match(text, start)
    return match.end() if match else start


def _end_below(text: str, key: re.Match[str], below: re.Match[str], whole_line: bool) -> int:
    """The end of a value that begins below its key: the lines indented deeper, the items of a list, or one line."""
    line = text[text.rfind("\n", 0, key.start()) + 1 : key.start()]
    first, indent = below.end(), below["indent"]
    if len(indent) > len(line) - len(line.lstrip()):
        return _end_of_block(text, first, indent)
    if text.startswith("- ", first):
        return _end_of_block(text, first, f"{indent}- ")
    return key.end() if _NEXT_KEY.match(text, first) else _end_on_line(text, first, whole_line)


def _end_of_block(text: str, first: int, begins: str) -> int:
    """The end of the last of the lines from `first` that begin so, with empty lines between them."""
    end = start = _end_of_line(text, first)
    while start < len(text):
        start, after = start + 1, _end_of_line(text, start + 1)
        if text.startswith(begins, start):
            end = after
        elif text[start:after].strip():
            break
        start = after
    return end


def _end_of_line(text: str, start: int) -> int:
    end = text.find("\n", start)
    return end if end >= 0 else len(text)
