"""Untrusted text made safe to show."""

from __future__ import annotations

import json

import pytest

from memtrace_otel.model.printable import escape_invisible, one_line, printable, printable_json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://evil\x1b\\link", "link"),
        ("a\x00b\x08c\x7fd\x9be", "abcde"),
        ("safe\u202egnp.exe", "safegnp.exe"),
        ("line\r\nbreak\tkept", "line\nbreak\tkept"),
        ("lone \ud800 half", "lone \ufffd half"),
        ("a\u061cb\u200bc\u200dd\u200ff\u3164g\U000e0041h", "abcdfgh"),
        ("naïve 記憶 👩‍👧", "naïve 記憶 👩‍👧"),
    ],
)
def test_printable_text_has_no_control_and_no_invisible_characters(text: str, shown: str) -> None:
    assert printable(text) == shown
    printable(text).encode()


def test_one_line_is_cut_with_an_ellipsis() -> None:
    assert one_line("  one\n two\tthree ") == "one two three"
    assert one_line("abcdefgh", 5) == "abcd…"


@pytest.mark.parametrize("character", ["\x1b", "\x7f", "\x9b", "\u061c", "\u200b", "\u200f", "\u3164", "\U000e007f"])
def test_json_shows_invisible_characters_as_escapes_and_keeps_them(character: str) -> None:
    value = {f"name{character}": [f"記憶{character}", 1]}
    for indent in (None, 1):
        text = printable_json(value, indent=indent)
        assert character not in text
        assert "記憶" in text
        assert json.loads(text) == value


def test_escaping_keeps_line_breaks_and_replaces_lone_surrogates() -> None:
    assert escape_invisible("a\n\tb\x00\ud800") == "a\n\tb\\u0000?"
