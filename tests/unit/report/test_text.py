"""Untrusted text: cutting and comparing."""

from __future__ import annotations

import pytest

from memtrace_otel.report.text import Mark, Run, changes, width, wrap


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


def test_text_that_no_line_can_hold_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []

    def counting(text: str, size: float, *, bold: bool = False) -> float:
        measured.append(len(text))
        return width(text, size, bold=bold)

    monkeypatch.setattr("memtrace_otel.report.text.width", counting)
    [first, last] = wrap((Run("漢" * 30_000),), 200, 12, 2)
    assert (first[0].text, last[0].text[-1]) == ("漢" * 13, "…")
    assert max(measured) < 300
