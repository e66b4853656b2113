"""Judge calls: whether a prompt asks for a judgement, and the judgement in a reply."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
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
_YES_OR_NO = re.compile(r"\b(?:yes|ja|oui|s[ií]|sim)\b[^.?!\n]{0,12}\b(?:no|nein|non|não)\b", re.IGNORECASE)
_SENTENCES = re.compile(r"(?<=[.?!])\s+|\n")
_OF_USER = re.compile(r"\W*(?:user|human)\b[^\w\n]{0,4}:", re.IGNORECASE)
"""The start of a line that the user of a chat said."""
_ABOUT_ANSWER = re.compile(
    r"\b(?:the|this|that|given|generated|\w+['’]s|die|diese|la|cette|esta|questa)\s+(?:\w+\s+){0,2}"
    r"(?:answer|response|reply|antwort|r[ée]ponse|respuesta|risposta|resposta)\b",
    re.IGNORECASE,
)
_OPEN_QUESTION = re.compile(
    r"\W*(?:what|which|who|whose|where|when|why|how|welche\w*|quel\w*|qué|cuál\w*)\b", re.IGNORECASE
)
_INDIRECT = re.compile(r"\b(?:whether|if|ob|si|se)\b", re.IGNORECASE)
_RIGHT = re.compile(
    r"\b(?:right|accurate(?:ly)?|acceptable|correct(?:ly|e|a)?|korrekt|corret?ta|richtig|stimm(?:t|en))\b",
    re.IGNORECASE,
)
_ALIKE = re.compile(
    r"\b(?:match\w*|agree\w*|same|equal\w*|equivalent|consistent|igual|m[êe]me|gleich\w*|entspr\w+)\b", re.IGNORECASE
)
_EXPECTED = re.compile(
    r"\b(?:expected|reference|gold(?:en)?|ideal|ground[ _-]?truth|erwartet\w*|referenz\w*|attendue?|r[ée]f[ée]rence"
    r"|esperad[ao]|referencia)\b",
    re.IGNORECASE,
)
_WRONG = re.compile(
    r"\b(?:wrong|incorrect\w*|inaccura\w+|hallucinat\w+|contradict\w*|error\w*|differ\w*|falsch)\b", re.IGNORECASE
)
_NEGATED = re.compile(r"(?<!or )\bnot\b|n['’]t\b|(?<!oder )\bnicht\b|\b(?:fails?|failed)\b", re.IGNORECASE)
_OTHER_QUALITY = re.compile(
    r"\b(?:contain\w*|includ\w*(?! (?:a|an|your|the reason)\b)|omit\w*|miss(?:es|ing)?|lack\w*|reveal\w*|leak\w*"
    r"|disclos\w*|expos\w*|toxic\w*|harm\w*|offens\w*|bias\w*|risk\w*|(?:un)?safe\w*|danger\w*|pii|personal"
    r"|private|sensitive|polic(?:y|ies)|language|tone|style|(?<!json )format|length|refus\w*|need\w*|requir\w*"
    r"|enth[aä]lt\w*|fehl\w*|contien\w*|conten\w*)\b",
    re.IGNORECASE,
)
"""Words of a prompt that asks for something else than whether the answer is right."""
_RATING = re.compile(
    r"\b(?:scor(?:e|es|ing)|rat(?:e|ing|ings)|scale|grad(?:e|es|ing)|points?|integer|numbers?(?! of)|evaluat\w+"
    r"|assess\w*|judge|bewert\w+)\b|[分评評]|採点|평가",
    re.IGNORECASE,
)
_SCALE = re.compile(
    r"\b(?:from|between|scale(?: of| from)?|scor(?:e|es|ing)|rat(?:e|ing)|points?)\b\W{0,3}"
    r"([01])\s?(?:to|and|-|–|through)\s?(100|10|[2-9])\b|(?<!\d )\bout of (100|10|[2-9])\b"
    r"|\([01]\s?[-–]\s?(100|10|[2-9])\)",
    re.IGNORECASE,
)
"""A scale of scores that a prompt names: "from 1 to 5", "(1-10)", "out of 100"."""
_NO_SCALE = re.compile(
    r"\b0(?:\.0)?\s?(?:or|to|and|through|oder|ou?|[-–/])\s?1(?:\.0)?\b(?!\.\d)|\b1\s?(?:or|oder|ou?|/)\s?0\b(?!\.\d)"
    r"|\b(?:else|otherwise)\W{0,3}0\b|\b0 otherwise\b"
    r"|\b1 (?:if|for|when)\b[^.\n]{0,80}\b0 (?:if|for|when)\b|\b0 (?:if|for|when)\b[^.\n]{0,80}\b1 (?:if|for|when)\b"
    r"|\b[01]\b[^\w\n]{0,3}(?:is |being |means |for )?(?:the )?(?:best|excellent|perfect|correct|right)\b|schulnote",
    re.IGNORECASE,
)
"""Scores of 0 or 1, and scales whose low end is the best: no half of a scale passes."""
_BARE_SCORE = re.compile(r"\W*(?:[a-z]+ ?:\W*)?(\d{1,3}(?:\.\d+)?)(?:\s?(?:/|out of)\s?\d{1,3})?\W*", re.IGNORECASE)
_LETTER = re.compile(r"(?:.*[^\w\s]\s*|\W*)([A-Z])\W*")
_LETTER_LABELS = "|".join(
    label.replace("_", "[ _]")
    for label in sorted(_LABELS - {"false", "true", "negative", "positive"}, key=len, reverse=True)
)
_INITIALS = {"C": "I", "R": "W", "P": "F"}
"""First letters of a passing label and of its failing label."""
_OBJECT = re.compile(r"\{.*\}", re.DOTALL)
_STATEMENTS = re.compile(r"[.:;,!\n]|\s[-\u2013\u2014]\s")
_END_TAG = re.compile(r"</\w+>\s*$")
_MAX_REPLY = 20_000
_MAX_PROMPT = 100_000
_LEAST_QUOTE, _LONG_QUOTE = 4, 1000
"""Shorter texts stand in a prompt by chance, longer ones in their own lines."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A judgement: a label ('' without one), a score and an explanation."""

    label: str = ""
    score: float | None = None
    explanation: str = ""


def parse_judgement(reply: str, prompt: str = "", *quoted: str) -> Judgement | None:
    """Read a judgement from a reply to a prompt, None if the reply is no judgement.

    Accepted: a JSON object (alone or within text) with a label, a correct/passed flag or a score, or a reply whose
    first statement or last line is only a label of the conventions ("Wrong, she ...", not "This is not right").

    The prompt, outside the `quoted` texts and the expected answer, tells what other replies mean: yes or no, a letter
    ("C for correct"), a number on a scale ("from 1 to 5"). A score on a scale also gets a label: half of the scale
    passes by default (MEMTRACE_EVALUATION_THRESHOLD).
    """
    found = _parse(reply)
    if not prompt or (found and (found.label or found.score is None)) or not 0 < len(reply.strip()) <= _MAX_REPLY:
        return found
    asked = _outside(prompt[:_MAX_PROMPT], (*quoted, expected_answer(prompt)))
    if found is None:
        found = _by_prompt(reply, asked)
    if found is None or found.label or found.score is None:
        return found
    return replace(found, label=_on_scale(found.score, asked))


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
        if word in _YES | _NO and _asks_if_right(prompt):
            return Judgement("correct" if word in _YES else "incorrect", explanation=reply)
    if (letter := _LETTER.fullmatch(last)) and (label := _label_of_letter(letter[1], prompt)):
        return Judgement(label, explanation=reply)
    for text in (last, lines[0]):
        number = _BARE_SCORE.fullmatch(text)
        if number and _on_scale(float(number[1]), prompt):
            return Judgement(score=float(number[1]), explanation=reply)
    return None


def _sentences(prompt: str) -> list[str]:
    """The sentences of a prompt that no user of a chat said."""
    lines = [line for line in prompt.splitlines() if not _OF_USER.match(line)]
    return [sentence for line in lines for sentence in _SENTENCES.split(line)]


def _asks_if_right(prompt: str) -> bool:
    """Whether a prompt asks if the answer is right, in one sentence: "Is the answer correct?".

    No sentence may ask for another quality. "Decide whether the answer is right" needs "yes or no" in the prompt.
    """
    asked, indirect = False, bool(_YES_OR_NO.search(prompt))
    for sentence in _sentences(prompt):
        if not sentence.endswith("?") and not (indirect and _INDIRECT.search(sentence)):
            continue
        if not (about := _ABOUT_ANSWER.search(sentence)) and not re.search(r"\bit\b", sentence):
            continue
        if _OTHER_QUALITY.search(sentence) or _NEGATED.search(sentence):
            return False
        alike = _ALIKE.search(sentence) and _EXPECTED.search(sentence)
        if about and (alike or _RIGHT.search(sentence)) and not _OPEN_QUESTION.match(sentence):
            asked = True
    return asked and not _WRONG.search(prompt)


def _label_of_letter(letter: str, prompt: str) -> str:
    """Return the label that the prompt gives to a letter: "A: CORRECT", "C for correct", "incorrect (I)".

    Else the letter begins its label, if the prompt offers both letters of a pair: "GRADE: C or GRADE: I"."""
    label = rf"((?i:{_LETTER_LABELS}))"
    end = r"\b(?=[^\S\n]*(?:$|[^\w\s]|\n|(?:and|or|if|when|answers?|responses?|ones?|[A-Z])\b))"
    sign = r"(?:[^\w\n]{0,4}[^\w\s,][^\w\n]{0,2}|[^\w\n]{0,3} (?:for|if|means|is) [^\w\n]?)"
    after = re.search(rf"(?<![\w'’]){letter}{sign}{label}{end}", prompt)
    before = re.search(rf"\b{label}[^\w\n]{{0,3}}\([^\w\n]?{letter}[^\w\n]?\)", prompt)
    if meant := after or before:
        return _label(meant[1])
    for pair in _INITIALS.items():
        if letter in pair and all(_offers(one, other, prompt) for one, other in (pair, pair[::-1])):
            return "correct" if letter == pair[0] else "incorrect"
    return ""


def _offers(letter: str, other: str, prompt: str) -> bool:
    """Whether a prompt offers a letter as a grade: "GRADE: C", "GRADE: I or C", or in quotes."""
    graded = rf"(?i:grade)\W{{0,3}}[:=]\W{{0,3}}(?:{other}(?: or |\W{{1,3}}))?{letter}\b"
    return bool(re.search(rf"{graded}|[\"'`“‘]{letter}[\"'`”’]", prompt))


def _on_scale(score: float, prompt: str) -> str:
    """Return the label of a score on the only scale that the prompt names for the answer, '' without one."""
    scales: dict[float, float] = {}
    for sentence in _sentences(prompt):
        for scale in _SCALE.finditer(sentence) if _RATING.search(sentence) else ():
            if _OTHER_QUALITY.search(sentence) or (_WRONG.search(sentence) and not _RIGHT.search(sentence)):
                return ""
            scales.setdefault(float(next(filter(None, scale.groups()[1:]))), float(scale[1] or 0))
    if len(scales) != 1 or _NO_SCALE.search(prompt):
        return ""
    [(high, low)] = scales.items()
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
    return bool(_JUDGING.search(_outside(prompt, quoted)[:_MAX_PROMPT]))


def _outside(prompt: str, quoted: Iterable[str]) -> str:
    """The prompt without the quoted texts; a prompt may break their lines elsewhere."""
    for text in sorted(map(str.strip, quoted), key=len, reverse=True):
        if len(text) > _LONG_QUOTE:
            prompt = prompt.replace(text, " ")
        elif len(text) >= _LEAST_QUOTE:
            words = r"\s+".join(map(re.escape, text.split()))
            prompt = re.sub(rf"(?<!\w){words}(?!\w)", " ", prompt)
    return prompt


def expected_answer(prompt: str) -> str:
    """The expected answer in the prompt of a judge, by MEMTRACE_JUDGE_EXPECTED; '' without one."""
    try:
        found = re.search(settings.JUDGE_EXPECTED.read(), prompt[:_MAX_PROMPT])
        if not found:
            return ""
        label, expected = prompt[found.start() : found.start("expected")], found.group("expected")
        return (_END_TAG.sub("", expected) if label.rstrip().endswith(">") else expected).strip().strip("\"'")
    except (re.error, IndexError):  # the pattern of the user is invalid or lacks the group
        return ""
