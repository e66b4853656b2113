"""Untrusted text made safe to show: control characters, terminal sequences and invisible characters removed or escaped.

`printable` and `one_line` are for people (terminal, report), `escape_invisible` and `printable_json` for machines.
"""

from __future__ import annotations

import json
import re
from typing import Any

_INVISIBLE = (
    "\x7f-\x9f\xad"  # DEL, C1 controls, soft hyphen
    "\u061c\u200b\u200c\u200e\u200f\u202a-\u202e\u2060-\u2069"  # zero width, direction marks and overrides
    "\u115f\u1160\u180e\u3164\uffa0"  # fillers
    "\ufeff\ufffe\uffff\U000e0000-\U000e007f"  # byte order mark, noncharacters, tags
)
_EMOJI = "[\u2600-\u27bf\ufe0f\U0001f000-\U0001faff]"
_JOINER = rf"(?<!{_EMOJI})\u200d|\u200d(?!{_EMOJI})"  # between two emoji the joiner makes one picture of them
_REMOVED = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # terminal sequences: colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # window titles, hyperlinks
    rf"|[\x00-\x08\x0b-\x1f{_INVISIBLE}]|{_JOINER}"
)
_ESCAPED = re.compile(rf"[\x00-\x08\x0b-\x1f\u2028\u2029{_INVISIBLE}]|{_JOINER}")
_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")


def printable(text: str) -> str:
    """Return the text without control characters, terminal sequences and invisible characters.

    Tabs and line breaks stay. A lone surrogate becomes U+FFFD.
    """
    return _LONE_SURROGATE.sub("\ufffd", _REMOVED.sub("", text.replace("\r\n", "\n")))


def one_line(text: str, limit: int = 0) -> str:
    """Return the printable text with runs of white space as one space, cut with an ellipsis at `limit` characters."""
    line = " ".join(printable(text).split())
    return line if not limit or len(line) <= limit else line[: limit - 1].rstrip() + "…"


def escape_invisible(text: str) -> str:
    """Return the text with each control or invisible character as its JSON escape, such as `\\u200b`.

    Tabs and line breaks stay. A lone surrogate becomes `?`.
    """
    escaped = _ESCAPED.sub(lambda found: json.dumps(found[0])[1:-1], text)
    return escaped.encode("utf-8", "replace").decode("utf-8")


def escape_invisible_xml(text: str) -> str:
    """Return XML text with each invisible character that XML allows as a character reference, such as `&#x200b;`."""
    return _ESCAPED.sub(lambda found: f"&#x{ord(found[0]):x};", text)


def printable_json(value: Any, *, indent: int | None = None) -> str:
    """Return JSON text that is safe on a terminal: letters of every script stay, invisible characters are escaped.

    Raises ValueError for a number that JSON cannot hold.
    """
    return escape_invisible(json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False))
