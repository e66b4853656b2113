"""Replies of earlier calls of the turn that a prompt hands on in a text of its own: what was made of each document, in
the call that puts it all together.

Nothing but the words of such a reply says where it is from, so only one is taken that cannot be there by chance: it is
long, and its own prompt did not say the same (a template, a formula). Instructions hand nothing on.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

from memtrace_otel.capture import recall
from memtrace_otel.capture.recall import Answer, Recalled, fold
from memtrace_otel.instrumentation.openai.conversations import REPEATED_BY_CHANCE

LABELLED = re.compile(r"^[^:?.!]{1,40}: *")
_END = 64
"""Characters of a question, its end, and as many between it and its answer: who speaks, say."""


class Partial(NamedTuple):
    """Answers that a prompt hands on. `whole`: all were looked for. `certain`: one turn, and no choice between equal
    ones. `known`: it can be told of each such text whose it is."""

    answers: Sequence[Answer] = ()
    whole: bool = True
    certain: bool = True
    known: bool = True


def is_telling(reply: str, prompt: str) -> bool:
    """Whether a reply to this prompt is known by its words alone."""
    text = fold(reply)
    return len(text) > REPEATED_BY_CHANCE and len(prompt) <= recall.PROMPT and text not in fold(prompt)


def handed_on(
    given: str,
    answers: Sequence[Answer],
    hits: Collection[Recalled],
    user: str,
    scopes: Collection[str],
    *,
    joined: bool,
) -> Partial:
    """Which of these answers, the newest first, a prompt hands on that gives this to the model and holds these hits.

    `joined`: all of them are of its turn, for sure; else the execution context alone says so, and those of another
    owner are none of it. Of more equal ones than the prompt holds, those of its own owner and context are taken, then
    the newest; where the turn is not sure, none.
    """
    equal: dict[str, list[Answer]] = {}
    for answer in answers:
        if answer.may_be_of(user, () if joined else scopes):
            equal.setdefault(fold(answer.text), []).append(answer)
    remembered = {fold(hit.text) for hit in hits}
    if not equal:
        return Partial()
    prompt = fold(given[: recall.PROMPT])
    places, whole = recall.places_in(prompt, dict.fromkeys((*equal, *remembered)))
    found: list[Answer] = []
    certain, known, here = joined, True, recall.answered_here.get()
    for text, times in sorted(places.items(), key=lambda found: found[1][0]):  # as the prompt has them
        if text in remembered:
            continue
        likely = equal[text]
        if len(likely) > len(times):
            certain = False
            likely = [one for one in likely if one.scope in scopes] or likely
            likely = [one for one in likely if one.origin in here] or likely
        if len(likely) > len(times) and not joined:
            known = False
            continue
        found += likely[: len(times)]
    asked = Counter(_asked_last(answer.question) for answer in found)
    found = [
        answer
        for answer in found
        if asked[question := _asked_last(answer.question)] > 1
        or not _stands_behind(question, prompt, places[fold(answer.text)])
    ]
    return Partial(found, whole, certain or not found, known)


def _asked_last(question: str) -> str:
    """The last line of a question, without labels ("Question: ...", "Assistant:")."""
    lines = (fold(LABELLED.sub("", line.strip() + " ")) for line in reversed(question.splitlines()))
    return next(filter(None, lines), "")


def _stands_behind(question: str, prompt: str, places: Sequence[int]) -> bool:
    """Whether an answer stands behind its own question, as in a chat that is written down: that was said before. What
    several answers of one question stand behind is asked of all of them."""
    end = question[-_END:]
    return bool(end) and any(end in prompt[max(at - len(end) - _END, 0) : at] for at in places)
