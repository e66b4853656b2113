"""Tell a judging model call from an answering one, and read what it decided."""

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
"""How a prompt says that it wants a judgement."""
_OBJECT = re.compile(r"\{.*\}", re.DOTALL)
_STATEMENTS = re.compile(r"[.:;,!\n]|\s[-\u2013\u2014]\s")
_MAX_REPLY = 20_000
_MAX_PROMPT = 100_000


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a judge said: a label ('' when it gave none), a score, and why."""

    label: str = ""
    score: float | None = None
    explanation: str = ""


def parse_judgement(reply: str) -> Judgement | None:
    """Read a judgement from a model's reply, None when it is not one.

    Accepted: a JSON object (alone or within text) with a label, a correct/passed flag or a score, or a reply whose
    first statement or last line is nothing but a label of the conventions ("Wrong, she ...", not "This is not right").
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
    """The label that a reply begins with: "WRONG", "Incorrect. She ...", "Verdict: correct"."""
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
    """The label that a whole text is ('NOT RELEVANT.' is `not_relevant`), '' when it says anything else."""
    folded = _folded(text)
    return folded if folded in _LABELS else ""


def _folded(text: str) -> str:
    return "_".join(re.findall(r"[a-z]+", text.lower()[:80]))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def asks_to_judge(prompt: str, *quoted: str) -> bool:
    """Tell whether a prompt wants a judgement, whatever the texts say that it quotes. One that only quotes an answer is
    a chat that goes on: "True or false: ...?" may well be answered "False"."""
    for text in sorted(quoted, key=len, reverse=True):
        prompt = prompt.replace(text.strip(), " ") if text.strip() else prompt
    return bool(_JUDGING.search(prompt[:_MAX_PROMPT]))


def expected_answer(prompt: str) -> str:
    """Find the expected answer in a judge's prompt by MEMTRACE_JUDGE_EXPECTED, '' when it names none."""
    try:
        found = re.search(settings.JUDGE_EXPECTED.read(), prompt[:_MAX_PROMPT])
        return found.group("expected").strip().strip("\"'") if found else ""
    except (re.error, IndexError):  # the user's pattern is broken or lacks its group
        return ""
