"""Untrusted text: cleaning, cutting, comparing."""

from __future__ import annotations

import pytest

from memtrace_otel.report.text import Mark, Run, changes, one_line, printable, width, wrap


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
        ("naïve 記憶 👩‍👧", "naïve 記憶 👩‍👧"),
    ],
)
def test_only_what_can_be_seen_stays(text: str, shown: str) -> None:
    assert printable(text) == shown
    printable(text).encode()


def test_one_line_is_cut_with_an_ellipsis() -> None:
    assert one_line("  one\n two\tthree ") == "one two three"
    assert one_line("abcdefgh", 5) == "abcd…"


def test_changes_mark_words_lost_and_new_and_ignore_punctuation() -> None:
    runs = changes("The key is under the pot.", "The key is under the mat now")
    assert runs == (Run("The key is under the"), Run("pot.", Mark.LOST), Run("mat now", Mark.NEW))
    assert changes("Same words, same.", "same words same") == (Run("same words same"),)


def test_texts_that_share_little_are_not_compared_word_by_word() -> None:
    assert changes("alpha beta gamma", "one two three four") == (
        Run("alpha beta gamma", Mark.LOST),
        Run("one two three four", Mark.NEW),
    )


def test_lines_are_no_wider_than_their_room_and_the_rest_is_an_ellipsis() -> None:
    lines = wrap((Run("one two three four five six seven"), Run("eight nine ten", Mark.LOST)), 90, 12, 3)
    assert len(lines) == 3
    assert all(sum(width(run.text, 12) for run in line) <= 90 for line in lines)
    assert lines[-1][-1].text.endswith("…")


def test_a_word_wider_than_a_line_is_broken() -> None:
    lines = wrap((Run("x" * 50),), 60, 12, 100)
    assert "".join(run.text for line in lines for run in line) == "x" * 50
    assert len(lines) > 3


def test_marks_survive_the_wrapping() -> None:
    assert wrap((Run("a b"), Run("c d", Mark.NEW)), 500, 12, 2) == [(Run("a b"), Run("c d", Mark.NEW))]


def test_nothing_is_no_line() -> None:
    assert wrap((Run("  "),), 100, 12, 2) == []
