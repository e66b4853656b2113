"""Quoted answers: earlier answers of the turn in a prompt, such as summaries of documents for a final answer.

Only its words identify a quoted answer. So the answer must be long, and its own prompt must not hold the words (a
template, a formula). System messages quote no answers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from memtrace_otel.capture import recall
from memtrace_otel.instrumentation.chat_history.alignment import REPEATED_BY_CHANCE

LABEL = re.compile(r"^[^:?.!]{1,40}: *")
"""A speaker or a heading: "Question: "."""
QUESTION_END = 64
"""Characters of the end of a question, and at most as many between the question and its answer."""


class QuotedAnswers(NamedTuple):
    """The answers that a prompt quotes, except those in a written chat.

    `whole`: all answers were looked for. `certain`: no choice between equal ones. `known`: the origin of each quoted
    answer is known."""

    answers: Sequence[recall.Answer] = ()
    whole: bool = True
    certain: bool = True
    known: bool = True


def identifies_itself(reply: str, prompt: str) -> bool:
    """Whether the words of a reply to this prompt identify the reply."""
    text = recall.fold(reply)
    return len(text) > REPEATED_BY_CHANCE and len(prompt) <= recall.PROMPT and text not in recall.fold(prompt)


def introduced(message: str, answers: Iterable[recall.Answer]) -> recall.Answer | None:
    """The first of these answers, however short, that ends the message after a heading ("Here is a summary: ...")."""
    text = message.strip()
    for answer in answers:
        reply = answer.text.strip()
        if reply and text.endswith(reply) and text[: -len(reply)].rstrip(" ").endswith((":", "\n")):
            return answer
    return None


def quoted_answers(
    given: str,
    answers: Sequence[recall.Answer],
    remembered: Collection[str],
    user: str,
    scopes: Collection[str],
    *,
    joined: bool,
) -> QuotedAnswers:
    """Which of these answers, newest first, a prompt quotes in the texts `given`. `remembered` are texts of records.

    `joined`: a trace or a library's run holds the turn together. Else an answer of another owner is left out, and so
    are equal answers of which the prompt holds fewer.
    """
    equal: dict[str, list[recall.Answer]] = {}
    for answer in answers:
        if answer.may_be_of(user, () if joined else scopes):
            equal.setdefault(recall.fold(answer.text), []).append(answer)
    if not equal:
        return QuotedAnswers()
    records = set(map(recall.fold, remembered))
    prompt = recall.fold(given[: recall.PROMPT])
    places, whole = recall.places_in(prompt, dict.fromkeys((*equal, *records)))
    found: list[recall.Answer] = []
    certain, known = joined, True
    for text in sorted(places.keys() - records, key=lambda text: places[text][0]):
        likely, times = equal[text], len(places[text])
        if len(likely) > times:
            certain = False
            likely = [one for one in likely if one.scope in scopes] or likely
            likely = [one for one in likely if one.origin in recall.answered_here.get()] or likely
        if len(likely) > times and not joined:
            known = False
        else:
            found += likely[:times]
    questions = [last_line(one.question) for one in found]
    found = [
        one
        for one, question in zip(found, questions, strict=True)
        if questions.count(question) > 1 or not _stands_behind(question, prompt, places[recall.fold(one.text)])
    ]
    return QuotedAnswers(found, whole, certain or not found, known)


def last_line(question: str) -> str:
    """The last line of a question, without its label."""
    lines = (recall.fold(LABEL.sub("", line.strip() + " ")) for line in reversed(question.splitlines()))
    return next(filter(None, lines), "")


def _stands_behind(question: str, prompt: str, places: Sequence[int]) -> bool:
    """Whether the prompt has the question right before one of these places, as a written chat does."""
    end = question[-QUESTION_END:]
    return bool(end) and any(end in prompt[max(at - len(end) - QUESTION_END, 0) : at] for at in places)
