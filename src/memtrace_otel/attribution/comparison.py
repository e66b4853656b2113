"""Texts of one memory against one question: what they are about, whom they are about, what they carry."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from memtrace_otel.attribution.expectation import Expectation, Need, carries
from memtrace_otel.attribution.text import Lexicon, leading_name, named, names, terms

AS_MUCH_ABOUT = 0.75
"""A text is about the question when it shares with it at least this part of what the best source shares."""


class Comparison:
    """Compares texts with a question; terms weigh by how rare they are among `texts`."""

    def __init__(self, wish: Expectation, texts: Iterable[str]) -> None:
        texts = list(texts)
        self.lexicon = Lexicon(texts)
        self._about: dict[str, float] = {}
        self.question = frozenset(term for term in wish.question_terms if self.lexicon.knows(term))
        """Words of the question that some text holds; the others tell no text from another."""
        self._names = names(texts)
        self._asked_names = named(wish.question, self._names)

    def about(self, text: str) -> float:
        """How much of the question the text shares: 0..1."""
        if text not in self._about:
            self._about[text] = self.lexicon.share(self.question, terms(text))
        return self._about[text]

    def held(self, texts: Iterable[str], wanted: frozenset[str]) -> float:
        """How much of the words several texts hold together: 0..1."""
        return self.lexicon.share(wanted, terms("\n".join(texts)))

    def supports(self, text: str, need: Need, day: date | None, *, undated: bool = True) -> bool:
        """Tell whether a text of that day carries the need."""
        return bool(text) and carries(text, need, self.lexicon, day, undated=undated)

    def of_another(self, text: str) -> bool:
        """Tell whether a memory begins with a name that the question does not hold, and holds none that it does."""
        if not self._asked_names or not leading_name(text, self._names):
            return False
        return not self._asked_names & named(text, self._names)
