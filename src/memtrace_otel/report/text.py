"""Untrusted text made fit to show: no control characters, one line or a few, never longer than its place."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum

from memtrace_otel.model.printable import one_line


class Mark(StrEnum):
    """What a piece of text is in the evolution of a fact."""

    PLAIN = "plain"
    LOST = "lost"
    """Was there and is gone; shown struck through."""
    NEW = "new"
    """Was not there before."""
    KEPT = "kept"
    """The record that the story is about."""
    NOTE = "note"
    """Said by the report, not by the trace."""


@dataclass(frozen=True, slots=True)
class Run:
    """A piece of text with one mark."""

    text: str
    mark: Mark = Mark.PLAIN


Paragraph = tuple[Run, ...]


def changes(before: str, after: str) -> Paragraph:
    """Return `after` word by word, with the words of `before` that it lost and the words that are new.

    Texts that share little are not compared: the old one is lost as a whole, the new one follows.
    """
    old, new = one_line(before).split(), one_line(after).split()
    matcher = SequenceMatcher(None, [_bare(w) for w in old], [_bare(w) for w in new], autojunk=False)
    if len(old) > 400 or len(new) > 400 or matcher.ratio() < 0.3:
        return (Run(" ".join(old), Mark.LOST), Run(" ".join(new), Mark.NEW))
    runs: list[Run] = []
    for tag, i, j, k, m in matcher.get_opcodes():
        if tag == "equal":
            runs.append(Run(" ".join(new[k:m])))
            continue
        runs += [Run(" ".join(words), mark) for words, mark in ((old[i:j], Mark.LOST), (new[k:m], Mark.NEW)) if words]
    return tuple(runs)


def _bare(word: str) -> str:
    return word.strip(".,;:!?\"'()").casefold() or word


# Advance widths in em of DejaVu Sans, the widest of the usual system fonts: a line that fits there fits everywhere.
_WIDTHS = {
    character: width
    for width, characters in (
        (0.30, "ijlI|'‘’"),
        (0.34, " .,:;/\\"),
        (0.41, "frt()[]{}-!·"),
        (0.59, 'ckszvxyJ"“”*?FL'),
        (0.70, "ABCEKPRSTVXYZ"),
        (0.79, "DGHNOQU&"),
        (0.84, "w+=<>~#"),
        (1.00, "mMW@%…—→"),
    )
    for character in characters
}


_NARROWEST = min(_WIDTHS.values())
_BOLD = 1.12
_BOLD_MARKS = frozenset({Mark.KEPT, Mark.LOST, Mark.NEW})


def width(text: str, size: float, *, bold: bool = False) -> float:
    """Return an upper estimate of the width of the text, in the unit of the font size."""
    return size * sum(_WIDTHS.get(c) or _width_of(c) for c in text) * (_BOLD if bold else 1.0)


def _width_of(character: str) -> float:
    if unicodedata.combining(character):
        return 0.0
    return 1.25 if unicodedata.east_asian_width(character) in "WF" else 0.64 if character.isascii() else 0.72


def wrap(paragraph: Sequence[Run], room: float, size: float, lines: int) -> list[Paragraph]:
    """Break the runs into at most `lines` lines no wider than `room`; a cut text ends in an ellipsis.

    Join the runs of a line by spaces. The time does not grow with text that no line can hold.
    """
    shown = _shortened(paragraph, int((lines + 1) * room / (_NARROWEST * size)) + 1)
    done: list[Paragraph] = []
    line: list[Run] = []
    used = 0.0
    for word, mark in ((piece, run.mark) for run in shown for piece in _pieces(run, room, size)):
        own = width(word, size, bold=mark in _BOLD_MARKS)
        needed = own + (width(" ", size, bold=True) if line else 0.0)
        if line and used + needed > room:
            if len(done) == lines - 1:
                return [*done, _ended(line, room, size)]
            done.append(tuple(line))
            line, used, needed = [], 0.0, own
        if line and line[-1].mark == mark:
            line[-1] = Run(f"{line[-1].text} {word}", mark)
        else:
            line.append(Run(word, mark))
        used += needed
    return [*done, tuple(line)] if line else done


def _shortened(paragraph: Sequence[Run], characters: int) -> Iterator[Run]:
    """Yield the runs up to so many characters: measuring a long word costs the square of its length."""
    for run in paragraph:
        if characters <= 0:
            return
        yield Run(run.text[:characters], run.mark)
        characters -= len(run.text)


def _pieces(run: Run, room: float, size: float) -> list[str]:
    """Words, those wider than a whole line cut to fit."""
    bold = run.mark in _BOLD_MARKS
    pieces: list[str] = []
    for word in one_line(run.text).split():
        while len(word) > 1 and width(word, size, bold=bold) > room:
            cut = next(i for i in range(1, len(word) + 1) if width(word[: i + 1], size, bold=bold) > room)
            pieces.append(word[:cut])
            word = word[cut:]
        pieces.append(word)
    return pieces


def _ended(line: list[Run], room: float, size: float) -> Paragraph:
    """The line with an ellipsis in the room it has."""
    *head, last = line
    bold = last.mark in _BOLD_MARKS
    taken = sum(width(f"{run.text} ", size, bold=run.mark in _BOLD_MARKS) for run in head)
    text = last.text
    while text and taken + width(f"{text}…", size, bold=bold) > room:
        text = text[:-1]
    return (*head, Run(f"{text.rstrip(' ,;.')}…", last.mark))
