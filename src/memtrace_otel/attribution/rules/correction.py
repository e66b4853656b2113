"""Find the message that corrects the expected answer: the expected answer is then outdated."""

from __future__ import annotations

import re
from itertools import takewhile

from memtrace_otel.attribution.evidence import Evidence
from memtrace_otel.attribution.rules.owner import told_by_another
from memtrace_otel.attribution.source_messages import Source
from memtrace_otel.attribution.text import capitalised, clause_denies, terms, without_questions, words
from memtrace_otel.attribution.vocabulary import CORRECTS, EARLIER

_ABOUT = 0.5  # a correction repeats a part of the question only
_OWNED = re.compile(
    r"\b(?:my|our|mein(?:e[mnrs]?)?|unser(?:e[mnrs]?)?|ma|mon|mes|notre|nos|mis?|nuestr[oa]s?) ([^.,;:!?\n]+)"
    r"|\b(his|her|their|seine?[mnrs]?|ihre?[mnrs]?)\b",
    re.IGNORECASE,
)


def correction(evidence: Evidence) -> Source | None:
    """Return the message that corrects the expected answer: told after every message of the expected answer, in words
    of a correction, about no other name or thing, and with the given answer, which it does not deny. None for a
    question about an earlier time."""
    life = next((life for life in evidence.missing if life.need and life.said and not life.guessed), None)
    if life is None or len(evidence.wish.needs) > 1 or evidence.named or EARLIER.search(evidence.wish.question):
        return None
    last = max(life.sources, key=lambda source: source.message.span.start)
    told = f"{evidence.wish.question} {evidence.failure.answer} {last.message.content}"
    known, given = terms(told), frozenset[str]().union(*(need.terms for need in evidence.given))
    bar = _ABOUT * evidence.about_source(last)
    return next(
        (
            source
            for source in evidence.messages
            if source.message.span.start > last.message.span.start
            and (said := without_questions(source.message.content))
            and CORRECTS.search(said)
            and evidence.about_source(source) >= bar > 0
            and evidence.compare.about(said) >= evidence.compare.about(source.message.content)
            and evidence.gives(said, source.message.day)
            and not (clause_denies(said, given) or told_by_another(evidence, source) or _of_another_thing(said, told))
            and all(terms(name) <= known for name in capitalised(source.message.content))
        ),
        None,
    )


def _of_another_thing(text: str, told: str) -> bool:
    """Return whether a text is about a thing of the user, or of a person, that the told text does not name: "my boss",
    "my tea shop", "her"."""
    known = terms(told)
    for owned in _OWNED.finditer(text):
        if owned[2]:
            if owned[2].lower() not in words(told):
                return True
            continue
        thing = takewhile(lambda word: terms(word) and not CORRECTS.fullmatch(word), owned[1].split())
        if not terms(" ".join(thing)) <= known:
            return True
    return False
