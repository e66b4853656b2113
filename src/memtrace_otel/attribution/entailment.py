"""Does a text say a piece of the answer? The answers of a reader (a model), and the reading of one case made of them.

Rules compare words (`Comparison`). Where a reader was asked, `Reading` decides instead: a text carries the piece when
the text says as much of the piece as the best message does. So a loss is a drop between neighbours: the message says
the piece, the record made of the message says less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from typing import Protocol

from memtrace_otel.attribution.expectation import Need
from memtrace_otel.attribution.text import terms


class Answer(StrEnum):
    """What a text says of a piece."""

    YES = "yes"
    PARTLY = "partly"
    NO = "no"
    CONTRADICTS = "contradicts"  # the text answers the question with another value


@dataclass(frozen=True, slots=True)
class Text:
    """A text of a trace and the day on which the text was told or stored, None when unknown."""

    content: str
    day: date | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer on one text. `words`: the decisive words, copied from the text."""

    answer: Answer
    words: str = ""


@dataclass(frozen=True, slots=True)
class Replies:
    """The answers of one call. `problem` says why some or all are missing. `tokens` were spent for this call."""

    by_text: Mapping[Text, Reply] = field(default_factory=dict[Text, Reply])
    tokens: int = 0
    problem: str = ""


class Reader(Protocol):
    """Says of texts what they say of a piece. A reader never raises: `Replies.problem` names the failure."""

    name: str
    """Name of the model."""

    def read(self, question: str, piece: str, texts: Sequence[Text]) -> Replies:
        """Return the answers on texts about one piece of the answer to one question."""
        ...


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reader said of the texts of one case. `piece` is the expected answer, else the given answer, which was
    judged wrong: then a text carries the right answer when the text contradicts the given one (`refutes`)."""

    piece: str
    by_content: Mapping[str, Reply]
    messages: tuple[str, ...]
    """The texts that are messages."""
    answered: bool | None = None
    """The given answer says the whole expected answer; None when not read."""
    refutes: bool = False

    @property
    def need(self) -> Need:
        """The piece, with the words in which the best texts tell the piece."""
        said = [self.by_content[text] for text in self._compared if self._grade(text) >= self._bar]
        return Need(self.piece, frozenset(term for reply in said for term in terms(reply.words)) or terms(self.piece))

    def carries(self, content: str) -> bool | None:
        """Return whether a text says as much of the piece as the best message, None for a text that was not read."""
        return self._grade(content) >= self._bar if content in self.by_content else None

    def contradicts(self, content: str) -> bool:
        """Return whether a text answers the question with another value than the piece."""
        reply = self.by_content.get(content)
        return reply is not None and reply.answer is Answer.CONTRADICTS

    @property
    def _compared(self) -> Sequence[str]:
        """The messages, where one of them tells the piece, else every text."""
        told = [text for text in self.messages if self._grade(text)]
        return told or tuple(self.by_content)

    @property
    def _bar(self) -> int:
        return max((1, *(self._grade(text) for text in self._compared)))

    def _grade(self, content: str) -> int:
        reply = self.by_content.get(content)
        if reply is None:
            return 0
        if self.refutes:
            return 2 * (reply.answer is Answer.CONTRADICTS)
        return {Answer.YES: 2, Answer.PARTLY: 1}.get(reply.answer, 0)
