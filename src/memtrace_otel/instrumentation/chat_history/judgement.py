"""Judge calls: whether a prompt asks for a judgement, and the judgement in a reply."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
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
_OBJECT = re.compile(r"\{.*\}", re.DOTALL)
_STATEMENTS = re.compile(r"[.:;,!\n]|\s[-\u2013\u2014]\s")
_MAX_REPLY = 20_000
_MAX_PROMPT = 100_000


@dataclass(frozen=True, slots=True)
class Judgement:
    """A judgement: a label ('' without one), a score and an explanation."""

    label: str = ""
    score: float | None = None
    explanation: str = ""


def parse_judgement(reply: str) -> Judgement | None:
    """Read a judgement from a reply, None if the reply is no judgement.

    Accepted: a JSON object (alone or within text) with a label, a correct/passed flag or a score, or a reply whose
    first statement or last line is only a label of the conventions ("Wrong, she ...", not "This is not right").
    """
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
        return found.group("expected").strip().strip("\"'") if found else ""
    except (re.error, IndexError):  # the pattern of the user is invalid or lacks the group
        return ""
