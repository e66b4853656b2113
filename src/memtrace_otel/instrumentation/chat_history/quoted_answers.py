"""Replies of earlier calls of the turn that a prompt hands on in a text of its own: what was made of each document, in
the call that puts it all together.

Nothing but the words of such a reply says where it is from, so only one is taken that cannot be there by chance: it is
long, and its own prompt did not say the same (a template, a formula). Instructions hand nothing on.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from memtrace_otel.capture import recall
from memtrace_otel.capture.quotes import Recalled, fold
from memtrace_otel.capture.turn import Answer
from memtrace_otel.instrumentation.chat_history.alignment import REPEATED_BY_CHANCE

LABELLED = re.compile(r"^[^:?.!]{1,40}: *")
_END = 64
"""Characters of a question, its end, and as many between it and its answer: who speaks, say."""


class Partial(NamedTuple):
    """Answers that a prompt hands on, and those that it repeats as what was `said_before`.

    `whole`: all were looked for. `certain`: one turn, and no choice between equal ones. `known`: it can be told of each
    such text whose it is."""

    answers: Sequence[Answer] = ()
    whole: bool = True
    certain: bool = True
    known: bool = True
    said_before: Sequence[Answer] = ()


def is_telling(reply: str, prompt: str) -> bool:
    """Whether a reply to this prompt is known by its words alone."""
    text = fold(reply)
    return len(text) > REPEATED_BY_CHANCE and len(prompt) <= recall.PROMPT and text not in fold(prompt)


def introduced(message: str, answers: Iterable[Answer]) -> Answer | None:
    """The answer, however short, that a message gives behind words of its own ("Here is a summary: ..."), the first of
    these; nothing but its place says so."""
    text = message.strip()
    for answer in answers:
        reply = answer.text.strip()
        if reply and text.endswith(reply) and text[: -len(reply)].rstrip(" ").endswith((":", "\n")):
            return answer
    return None


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

    `joined`: all of them are of its turn, for sure; else their words alone say so, and those of another owner are none
    of it. Of more equal ones than the prompt holds, those of the owners of all else in it and of its own context are
    taken, then the newest; where the turn is not sure, none.
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
    texts = sorted(places.keys() - remembered, key=lambda text: places[text][0])  # as the prompt has them
    alone = [equal[text] for text in texts if len(equal[text]) <= len(places[text])]
    owners = {*scopes, *(one.scope for likely in alone for one in likely if one.scope)}
    found: list[Answer] = []
    certain, known = joined, True
    for text in texts:
        likely, times = equal[text], len(places[text])
        if len(likely) > times:
            certain = False
            likely = _likely(likely, owners)
        if len(likely) > times and not joined:
            known = False
            continue
        found += likely[:times]
    before = _said_before(found, prompt, places)
    found = [answer for answer in found if answer not in before]
    return Partial(found, whole, certain or not found, known, before)


def _likely(equal: list[Answer], owners: Collection[str]) -> list[Answer]:
    """Those of equal answers that are of one of these owners and of this context, as far as there are any."""
    here = recall.answered_here.get()
    equal = [one for one in equal if one.scope in owners] or equal
    return [one for one in equal if one.origin in here] or equal


def _said_before(found: Sequence[Answer], prompt: str, places: Mapping[str, Sequence[int]]) -> list[Answer]:
    """Answers that a prompt repeats as a chat that is written down: each stands behind its own question, and was given
    when those before it had been said. Parts of an answer did not know each other, and may be those of one question."""
    behind = [one for one in found if _stands_behind(one.question, prompt, places[fold(one.text)])]
    known = {origin for one in behind for origin in one.given}
    if len(behind) > 1:
        return behind if any(one.origin in known for one in behind) else []
    asked = [_asked_last(one.question) for one in found]
    return [one for one in behind if asked.count(_asked_last(one.question)) == 1]


def _asked_last(question: str) -> str:
    """The last line of a question, without labels ("Question: ...", "Assistant:")."""
    lines = (fold(LABELLED.sub("", line.strip() + " ")) for line in reversed(question.splitlines()))
    return next(filter(None, lines), "")


def _stands_behind(question: str, prompt: str, places: Sequence[int]) -> bool:
    """Whether an answer stands behind its own question."""
    end = _asked_last(question)[-_END:]
    return bool(end) and any(end in prompt[max(at - len(end) - _END, 0) : at] for at in places)
