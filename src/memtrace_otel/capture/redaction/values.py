"""Where keys stand in a text that is not JSON, and where their values end: quoted, in brackets, a word, lines."""

from __future__ import annotations

import re

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
_NAMED_WITHIN, _LONG = 150, 1000  # characters
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
_WORD = re.compile(rf"(?:(?i:bearer|basic|digest|token)[ ]{{1,4}})?(?:(?!{_WORD_ENDS})\S)+")
_LINE = re.compile(rf"(?:(?!{_LINE_ENDS})[^\r\n])+")
_BELOW = re.compile(r"(?:[|>][-+\d]{0,2})?[ \t]{0,64}\r?\n(?:[ \t]{0,64}\r?\n){0,4}(?P<indent>[ \t]{0,64})(?=\S)")
_NEXT_KEY = re.compile(r"""["']?[\w.-]{1,64}["']?(?::(?:\s|\Z)|[ \t]{0,64}=(?![=\s]|\Z))""")


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
    return end - start > _LONG or _CLOSED.match(text, end) is not None


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
    match = _STRING.match(text, start) or (_LINE if whole_line else _WORD).match(text, start)
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
