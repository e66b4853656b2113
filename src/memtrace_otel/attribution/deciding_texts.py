"""Choose the texts of a large memory that decide about an answer, so that the rest of the memory stays unread.

A text carries a piece of the expected answer only with most of the weight of its words. So every such text is among the
texts with the rare words of the piece. Where that does not hold, the whole memory is read.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from memtrace_otel.attribution.apply_rules import attribute, is_open
from memtrace_otel.attribution.expectation import CARRIED, AnswerForm, expectation
from memtrace_otel.attribution.failures import expected_known, find_failures
from memtrace_otel.attribution.text import terms
from memtrace_otel.attribution.vocabulary import NUMBER_WORDS, SYMBOLS, TENS, UNITS
from memtrace_otel.graph import EvolutionGraph
from memtrace_otel.model import Failure
from memtrace_otel.semconv import FailureType

_MOST = 60
"""Most traces to load for their words."""
_MOST_DIGITS = 15  # of a number with separators
_SPARE = 0.8  # the weights of words differ between a part and the whole of a memory
_UNITS = terms(" ".join((*UNITS.values(), *SYMBOLS.values())))
"""Words that a text may write in other letters: "km", "€"."""
_SPELLED = {str(value): [word] for word, value in (NUMBER_WORDS | TENS).items()}
_BY_ABSENCE = (FailureType.ANNOTATION, FailureType.UNKNOWN)


class DecidingTexts:
    """The `graph.Choice` for the failing answers of one trace."""

    def __init__(self, trace_id: str) -> None:
        self._trace_id = trace_id
        self._needs: list[tuple[frozenset[str], frozenset[str]]] = []
        """The words of each piece of an expected answer, and the words to search where no text holds the former."""
        self._forms: dict[str, list[str]] = {}

    def words(self, graph: EvolutionGraph) -> Collection[str] | None:
        """Return the words of questions and expected answers as texts write them, None where words do not decide: an
        answer that should abstain, no expected answer, a date that no named message tells."""
        failures = self._failures(graph)
        words: set[str] = set()
        for failure in failures:
            wish = expectation(failure.question, failure.expected, known=expected_known(failure))
            asked = wish.question_terms if failure.evidence else frozenset[str]()  # the message is known by its name
            if wish.form in (AnswerForm.TERMS, AnswerForm.POLAR):
                self._needs += ((need.terms, asked) for need in wish.needs)
            elif wish.form is AnswerForm.TIME and asked:  # texts write a date in any words
                self._needs.append((asked, asked))
            else:
                return None
            words |= wish.question_terms.union(*(need.terms for need in wish.needs))
        self._forms = {word: _forms(word) for word in sorted(words - _UNITS)}
        return {form for forms in self._forms.values() for form in forms}

    def traces(self, found: Mapping[str, set[str]]) -> Collection[str] | None:
        """Return the traces with the rarest words, those of the expected answer first; None where the traces without
        such a word may carry a piece of the expected answer."""
        having = {
            word: {trace_id for trace_id, held in found.items() if not held.isdisjoint(forms)}
            for word, forms in self._forms.items()
        }
        needed = frozenset[str]().union(*(wanted for wanted, _ in self._needs))
        chosen: set[str] = set()
        common: set[str] = set()
        for word in sorted(having, key=lambda word: (word not in needed, len(having[word]), word)):
            if len(chosen | having[word]) <= _MOST:
                chosen |= having[word]
            else:
                common.add(word)

        def mass(words: Collection[str]) -> float:
            return sum(math.log((len(found) + 2) / (len(having[word]) + 1)) for word in sorted(words))

        for wanted, instead in self._needs:
            told = {word for word in wanted if having.get(word)} or {word for word in instead if having.get(word)}
            if not told or mass(told & common) >= CARRIED * _SPARE * mass(told):
                return None
        return chosen

    def is_enough(self, graph: EvolutionGraph) -> bool:
        """Return whether every verdict is sure, complete and shown by what is there."""
        verdicts = [attribute(graph, failure) for failure in self._failures(graph)]
        sure = (v.complete and not is_open(v) and v.failure_type not in _BY_ABSENCE for v in verdicts)
        return bool(verdicts) and all(sure)

    def _failures(self, graph: EvolutionGraph) -> list[Failure]:
        return [failure for failure in find_failures(graph) if failure.trace_id == self._trace_id]


def _forms(word: str) -> list[str]:
    """Return how texts write a stem: a number also in words and with separators of groups."""
    number = word.lstrip("-")
    if not number.isdecimal() or len(number) > _MOST_DIGITS:
        return [number]
    grouped = (f"{int(number):,}".replace(",", separator) for separator in ",. '’")
    return [number, *grouped, *_SPELLED.get(number, ())]
