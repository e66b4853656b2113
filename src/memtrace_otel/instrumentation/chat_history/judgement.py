"""Judge calls: whether a prompt asks for a judgement, and the judgement in a reply."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from memtrace_otel import semconv, settings

_LABEL_KEYS = ("label", "verdict", "judgement", "judgment", "result", "grade")
_FLAG_KEYS = ("correct", "is_correct", "passed", "pass")
_SCORE_KEYS = ("score", "rating")
_WHY_KEYS = ("explanation", "reason", "reasoning", "rationale", "justification")
_LABELS = semconv.FAILING_LABELS | semconv.PASSING_LABELS
_ANSWER = r"\b(?:the|this|that|its|given|generated|\w+'s)\s+(?:\w+\s+)?(?:answer|response|reply)\b"
_QUALITY = r"\b(?:right|wrong|relevant|helpful|supported)\b"
_JUDGING = re.compile(
    r"\b(?:grad(?:e|es|er|ing)|judg\w+|evaluat\w+|assess\w*|rate (?:the|this|how|it|whether)|rating|scor(?:e|es|ing)"
    r"|verdict|critiqu\w+|pass(?:ed|es)?\W{0,3}(?:or )?fail\w*|(?:in)?(?:correct|accurate)(?:ness)?|(?:in)?accuracy"
    r"|hallucinat\w+|faithful\w*"
    r"|bewert\w+|beurteil\w+|[ée]valu\w+|jug(?:e|er|ez)|calific\w+|valut\w+)\b"
    rf"|{_ANSWER}[^.?!\n]{{0,60}}{_QUALITY}|{_QUALITY}[^.?!\n]{{0,60}}{_ANSWER}"
    r"|评估|评判|评价|评分|判断|評価|判定|採点|평가",
    re.IGNORECASE,
)
"""Words of a prompt that ask for a judgement."""
_YES = frozenset({"yes", "ja", "oui", "si", "sí", "sim", "да", "はい"})
_NO = frozenset({"no", "nein", "non", "não", "нет", "いいえ"})
_ASKS_IF_RIGHT = re.compile(
    r"\b(?:right|accurate|match\w*|agree\w*|same|equal\w*|equivalent|consistent|acceptable|corre[ck]\w*|richtig|stimm\w+"
    r"|igual|m[êe]me)\b",
    re.IGNORECASE,
)
_ASKS_IF_WRONG = re.compile(
    r"\b(?:wrong|incorrect|inaccurate|hallucinat\w+|contradict\w*|error\w*|differ\w*)\b", re.IGNORECASE
)
_SCALE = re.compile(
    r"\b(?:from|between|scale(?: of| from)?|scor(?:e|es|ing)|rat(?:e|ing)|points?)\b\W{0,3}"
    r"([01])\s?(?:to|and|-|–|through)\s?(100|10|[2-9])\b|\bout of (100|10|[2-9])\b|\([01]\s?[-–]\s?(100|10|[2-9])\)",
    re.IGNORECASE,
)
"""A scale of scores that a prompt names: "from 1 to 5", "(1-10)", "out of 100"."""
_BARE_SCORE = re.compile(r"\W*(?:[a-z]+ ?:\W*)?(\d{1,3}(?:\.\d+)?)(?:\s?(?:/|out of)\s?\d{1,3})?\W*", re.IGNORECASE)
_LETTER = re.compile(r"(?:.*[^\w\s]\s*|\W*)([A-Z])\W*")
_INITIALS = {"C": "I", "R": "W", "P": "F", "T": "F", "Y": "N"}
"""First letters of a passing label and of its failing label."""
_OBJECT = re.compile(r"\{.*\}", re.DOTALL)
_STATEMENTS = re.compile(r"[.:;,!\n]|\s[-\u2013\u2014]\s")
_END_TAG = re.compile(r"</\w+>\s*$")
_MAX_REPLY = 20_000
_MAX_PROMPT = 100_000


@dataclass(frozen=True, slots=True)
class Judgement:
    """A judgement: a label ('' without one), a score and an explanation."""

    label: str = ""
    score: float | None = None
    explanation: str = ""


def parse_judgement(reply: str, prompt: str = "") -> Judgement | None:
    """Read a judgement from a reply to a prompt, None if the reply is no judgement.

    Accepted: a JSON object (alone or within text) with a label, a correct/passed flag or a score, or a reply whose
    first statement or last line is only a label of the conventions ("Wrong, she ...", not "This is not right").

    The prompt tells what other replies mean: yes or no, a letter ("C for correct"), a number on a scale ("from 1 to
    5"). A score on a scale also gets a label: half of the scale passes by default (MEMTRACE_EVALUATION_THRESHOLD).
    """
    found = _parse(reply)
    if found is None and prompt and 0 < len(reply.strip()) <= _MAX_REPLY:
        found = _by_prompt(reply, prompt[:_MAX_PROMPT])
    if found is None or found.label or found.score is None:
        return found
    return replace(found, label=_on_scale(found.score, prompt[:_MAX_PROMPT]))


def _parse(reply: str) -> Judgement | None:
    if not reply or len(reply) > _MAX_REPLY:
        return None
    found = _OBJECT.search(reply)
    if found:
        try:
            value = json.loads(found.group())
        except ValueError:
            value = None
        if isinstance(value, Mapping):
            return _from_object(cast(Mapping[str, Any], value))
    label = _leading_label(reply) or _label(reply.strip().splitlines()[-1].rpartition(":")[2] if reply.strip() else "")
    return Judgement(label, explanation="" if label == _folded(reply) else reply) if label else None


def _by_prompt(reply: str, prompt: str) -> Judgement | None:
    """Read a yes or no, a letter or a number, alone in the first statement or the last line."""
    lines = reply.strip().splitlines()
    first, last = _STATEMENTS.split(lines[0], maxsplit=1)[0], lines[-1]
    for text in (first, last):
        word = text.rpartition(":")[2].strip(" *_.!\"'").casefold()
        if word in _YES | _NO and _ASKS_IF_RIGHT.search(prompt) and not _ASKS_IF_WRONG.search(prompt):
            return Judgement("correct" if word in _YES else "incorrect", explanation=reply)
    if (letter := _LETTER.fullmatch(last)) and (label := _label_of_letter(letter[1], prompt)):
        return Judgement(label, explanation=reply)
    for text in (last, lines[0]):
        number = _BARE_SCORE.fullmatch(text)
        if number and _on_scale(float(number[1]), prompt):
            return Judgement(score=float(number[1]), explanation=reply)
    return None


def _label_of_letter(letter: str, prompt: str) -> str:
    """Return the label that the prompt gives to a letter: "A: CORRECT", "C for correct", "incorrect (I)".

    Else the letter begins its label, if the prompt offers both letters of a pair: "GRADE: C or GRADE: I"."""
    known = "|".join(sorted(_LABELS - {"false", "true"}, key=len, reverse=True)).replace("_", "[ _]")
    after = re.search(rf"\b{letter}\b\W{{0,4}}(?:for |if |means |is )?\W?({known})\b", prompt, re.IGNORECASE)
    before = re.search(rf"\b({known})\W{{1,4}}{letter}\b", prompt, re.IGNORECASE)
    if meant := after or before:
        return _label(meant[1])
    for passing, failing in _INITIALS.items():
        if letter in (passing, failing) and all(re.search(rf"\b{one}\b", prompt) for one in (passing, failing)):
            return "correct" if letter == passing else "incorrect"
    return ""


def _on_scale(score: float, prompt: str) -> str:
    """Return the label of a score on the scale that the prompt names, '' without a scale."""
    scale = _SCALE.search(prompt)
    if scale is None:
        return ""
    low, high = float(scale[1] or 0), float(next(filter(None, scale.groups()[1:])))
    if not low <= score <= high:
        return ""
    return "fail" if (score - low) / (high - low) < settings.EVALUATION_THRESHOLD.read() else "pass"


def _leading_label(reply: str) -> str:
    """The label at the start of a reply: "WRONG", "Incorrect. She ...", "Verdict: correct"."""
    first, *rest = _STATEMENTS.split(reply.strip(), maxsplit=2)
    return _label(rest[0]) if rest and _folded(first) in _LABEL_KEYS else _label(first)


def _from_object(value: Mapping[str, Any]) -> Judgement | None:
    lowered = {str(key).lower(): item for key, item in value.items()}
    why = next((str(lowered[key]) for key in _WHY_KEYS if lowered.get(key)), "")
    score = next((float(lowered[key]) for key in _SCORE_KEYS if _is_number(lowered.get(key))), None)
    for key in _LABEL_KEYS:
        label = lowered.get(key)
        if isinstance(label, str) and _label(label):
            return Judgement(_label(label), score, why)
    for key in _FLAG_KEYS:
        if isinstance(lowered.get(key), bool):
            return Judgement("correct" if lowered[key] else "incorrect", score, why)
    return Judgement("", score, why) if score is not None else None


def _label(text: str) -> str:
    """The label of a text ('NOT RELEVANT.' is `not_relevant`), '' for another text."""
    folded = _folded(text)
    return folded if folded in _LABELS else ""


def _folded(text: str) -> str:
    return "_".join(re.findall(r"[a-z]+", text.lower()[:80]))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def asks_to_judge(prompt: str, *quoted: str) -> bool:
    """Whether a prompt asks for a judgement, outside the `quoted` texts.

    A prompt that only quotes an answer continues a chat: "True or false: ...?" has the answer "False".
    """
    for text in sorted(quoted, key=len, reverse=True):
        prompt = prompt.replace(text.strip(), " ") if text.strip() else prompt
    return bool(_JUDGING.search(prompt[:_MAX_PROMPT]))


def expected_answer(prompt: str) -> str:
    """The expected answer in the prompt of a judge, by MEMTRACE_JUDGE_EXPECTED; '' without one."""
    try:
        found = re.search(settings.JUDGE_EXPECTED.read(), prompt[:_MAX_PROMPT])
        return _END_TAG.sub("", found.group("expected")).strip().strip("\"'") if found else ""
    except (re.error, IndexError):  # the pattern of the user is invalid or lacks the group
        return ""
