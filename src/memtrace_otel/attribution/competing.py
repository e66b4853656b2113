"""Find other values beside the expected value in an answer: "in Berlin; she used to live in Munich" is not "Munich"."""

from __future__ import annotations

import re

from memtrace_otel.attribution.text import items, numbers, terms

_NAME_RUN = re.compile(r"\b[^\W\d_a-z][^\W\d_]*(?: [^\W\d_a-z][^\W\d_]*){0,8}")
_PAST = re.compile(
    r"\b(?:used to|formerly|previously|originally|at first|until recently|no longer|any ?more|(?:was|were) before)\b",
    re.IGNORECASE,
)
_OFFERED = re.compile(r"(\w{1,40}),? or (?:an? |the )?(\w{1,40})", re.IGNORECASE)
_OPENINGS = terms("based yes sure indeed certainly yeah")


def competes(given: str, question: str, expected: str) -> bool:
    """Return whether the answer may hold another value: a number, a name, a listed word, an offered alternative.

    Strict on purpose: a harmless aside that looks like a value counts, too.
    """
    wanted, asked = terms(expected), terms(question)
    known = wanted | asked | _OPENINGS
    if numbers(given) - numbers(expected) - numbers(question):
        return True
    if _PAST.search(given) and not _PAST.search(expected) and not _PAST.search(question):
        return True
    offered = frozenset(term for match in _OFFERED.finditer(question) for term in terms(f"{match[1]} {match[2]}"))
    if offered & wanted and offered & terms(given) - wanted:
        return True
    runs = (terms(match[0]) for match in _NAME_RUN.finditer(given))
    if any(run - known and not run & wanted for run in runs):  # "New York City" for "New York" is no other name
        return True
    return any(len(terms(item)) == 1 and not terms(item) & known for item in items(given))
