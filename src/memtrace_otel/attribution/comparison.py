"""Compare the texts of a memory with one question: topic, person, and supported pieces of the answer."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from memtrace_otel.attribution.dates import periods
from memtrace_otel.attribution.entailment import Reading
from memtrace_otel.attribution.expectation import Expectation, Need, carries
from memtrace_otel.attribution.lineage import Version
from memtrace_otel.attribution.source_messages import Source
from memtrace_otel.attribution.text import (
    Lexicon,
    denies,
    leading_name,
    likes,
    named,
    names,
    negated,
    numbers,
    statements,
    terms,
)

AS_MUCH_ABOUT = 0.75
"""A text is about the question when its similarity is at least this share of the similarity of the best source."""


class Comparison:
    """Compares texts with a question; terms weigh by how rare they are among `texts`. A reading of the case decides
    about the texts that were read."""

    def __init__(self, wish: Expectation, texts: Iterable[str], reading: Reading | None = None) -> None:
        texts = list(texts)
        self.lexicon = Lexicon(texts)
        self._reading = reading
        self._about: dict[str, float] = {}
        self.question = frozenset(term for term in wish.question_terms if self.lexicon.knows(term))
        """Words of the question that some text holds; the other words distinguish no texts."""
        self._names = names(texts)
        self._asked_names = named(wish.question, self._names)

    def about(self, text: str) -> float:
        """Return the share of the question that the text holds: 0 to 1."""
        if text not in self._about:
            self._about[text] = self.lexicon.share(self.question, terms(text))
        return self._about[text]

    def held(self, texts: Iterable[str], wanted: frozenset[str]) -> float:
        """Return the share of the words that several texts hold together: 0 to 1."""
        return self.lexicon.share(wanted, terms("\n".join(texts)))

    def supports(self, text: str, need: Need, day: date | None, *, undated: bool = True) -> bool:
        """Return whether a text of that day carries the need."""
        if self._reading and need.text == self._reading.piece:
            read = self._reading.carries(text)
            if read is not None:
                return read
        return bool(text) and carries(text, need, self.lexicon, day, undated=undated)

    def of_another(self, text: str, sources: Iterable[Source]) -> bool:
        """Return whether a memory is about another person: it begins with a name and holds no name of the question.

        A memory that repeats one of its messages word for word is not noted of another person.
        """
        if any(text == source.message.content for source in sources):
            return False
        if not self._asked_names or not leading_name(text, self._names):
            return False
        return not self._asked_names & named(text, self._names)


def told_piece(source: Source, compare: Comparison) -> Need | None:
    """Return what a message adds to the question and memory took of the message; all that it adds when nothing was
    taken. Times count more than numbers, numbers more than words. None for a message that adds nothing.

    Of several statements, those closest to the question count.
    """
    parts = statements(source.message.content)
    most = max(map(compare.about, parts), default=0.0)
    told = " ".join(part for part in parts if compare.about(part) >= most)
    added = terms(told) - compare.question
    added = (added & numbers(told)) or added
    taken = terms("\n".join(version.content for version in (*source.facts, *source.written)))
    times = tuple(periods(told, source.message.day))
    return Need(told, added & taken or added, times, in_part=True) if added else None


def turned_round(text: str, need: Need, sources: Iterable[Source]) -> bool:
    """Return whether a text likes what its messages dislike, dislikes what they like, or affirms a piece of the
    expected answer that answer and messages deny."""
    messages = [source.message.content for source in sources]
    liked = likes(text, need.terms)
    if liked is not None and {likes(message, need.terms) for message in messages} == {not liked}:
        return True
    named = need.terms | need.asked
    denied = negated(need.text) and all(denies(message, named, of=need.text) for message in messages)
    return denied and not denies(text, named, of=need.text)


def renewed(before: Version, after: Version, messages: Iterable[Source], compare: Comparison) -> bool:
    """Return whether a message told what a version says beyond the version before: a correction, no loss."""
    trace = after.span.trace_id  # a correction may be a call of the application beside the ingestion
    written = (s for s in messages if s.message.span.trace_id == trace or any(after.key == v.key for v in s.written))
    told = terms("\n".join(source.message.content for source in written))
    return compare.lexicon.share(terms(after.content) - terms(before.content) - compare.question, told) >= AS_MUCH_ABOUT
