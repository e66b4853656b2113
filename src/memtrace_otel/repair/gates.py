"""Gates: what a candidate has to pass. Each rejection has the name of its gate and a reason."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any, NamedTuple, cast

from memtrace_otel.attribution.expectation import AnswerForm, expectation
from memtrace_otel.attribution.text import script, terms, words
from memtrace_otel.repair.running import Outcome
from memtrace_otel.repair.subjects import Case

_PLACEHOLDER = re.compile(r"\{[A-Za-z_][\w.]*\}")
_KEY = re.compile(r'"(\w+)"\s*:')
_JSON = re.compile(r"\bjson\b", re.IGNORECASE)
_QUOTED_WORDS = 6
"""Words of a question in a row that make a prompt remember the question."""
_WORDS = """the a of to and or from with for on by as at is are be that this these those it its not no if when which
what who has have do does you your they their them each every any all only"""  # function words that are no German words
_ENGLISH_WORDS = frozenset(_WORDS.split())
_ENGLISH, _FOREIGN = 0.2, 0.1
"""Share of English function words from which a text is English, and below which a text is not."""


class Rejection(NamedTuple):
    """Which gate a candidate failed, and why."""

    gate: str
    reason: str


@dataclass(frozen=True, slots=True)
class Gates:
    """Limits. `lost`: right answers of a minibatch that may turn wrong. `length`: longest text as a multiple of the
    text in use; `short` characters are always allowed. `cost`: tokens per run as a multiple of the system in use.
    `p`: largest p of the paired test on validation questions."""

    lost: int = 0
    length: float = 1.5
    short: int = 400
    cost: float = 1.5
    p: float = 0.05

    def text(self, used: str, parent: str, new: str, cases: Sequence[Case]) -> Rejection | None:
        """Check a proposed text before the first run: `used` is the text of the user, `parent` the text changed."""
        if not new.strip() or new.strip() == parent.strip():
            return Rejection("unchanged", "the reflection returned no new text")
        if (parameters := _json(used)) is not None:
            return _same_form(parameters, _json(new))
        if missing := set(_PLACEHOLDER.findall(used)) ^ set(_PLACEHOLDER.findall(new)):
            return Rejection("placeholders", f"missing or new: {', '.join(sorted(missing))}")
        if _JSON.search(used) and (lost := _lost_form(used, new)):
            return Rejection("json", f"the reply format of the prompt lacks {lost}")
        if script(used) != script(new) or (_english(used) >= _ENGLISH and _english(new) < _FOREIGN):
            return Rejection("language", "the text is in another language")
        if len(new) > (most := max(self.short, round(self.length * len(used)))):
            return Rejection("length", f"{len(new)} characters, at most {most}")
        if told := next((case for case in cases if _remembers(new, used, case)), None):
            return Rejection("memorised", f"the text holds the question or the answer of case {told.id}")
        return None

    def minibatch(
        self, before: Sequence[Outcome], after: Sequence[Outcome], scores: tuple[float, float], tokens: float
    ) -> Rejection | None:
        """Check the runs of a minibatch: its scores before and after, and the tokens per run of the system in use."""
        lost = sum(a.right and not b.right for a, b in zip(before, after, strict=True))
        if lost > self.lost:
            return Rejection("lost", f"{lost} right answers turned wrong, at most {self.lost} may")
        if scores[1] <= scores[0]:
            return Rejection("no improvement", "no more answers are right, and no fact comes further than before")
        spent = mean(one.spent.tokens for one in after)
        if tokens and spent > self.cost * tokens:
            return Rejection("cost", f"{spent:.0f} tokens per run, at most {self.cost * tokens:.0f}")
        return None


def _json(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _same_form(used: dict[str, Any], new: dict[str, Any] | None) -> Rejection | None:
    if new is None:
        return Rejection("json", "the parameters are no JSON object")
    if set(new) != set(used):
        return Rejection("json", f"other parameters: {', '.join(sorted(set(new) ^ set(used)))}")
    wrong = [name for name, value in used.items() if not _same_type(value, new[name])]
    return Rejection("json", f"wrong type, a negative number or a count of 0: {', '.join(wrong)}") if wrong else None


def _same_type(used: Any, new: Any) -> bool:
    if isinstance(used, bool) or not isinstance(used, int | float):
        return type(used) is type(new)
    kinds = int if isinstance(used, int) else int | float
    least = 1 if isinstance(used, int) and used else 0  # k = 0 finds nothing
    return isinstance(new, kinds) and not isinstance(new, bool) and least <= new < float("inf")


def _lost_form(used: str, new: str) -> str:
    """Return which part of the JSON contract of a prompt is gone: the word JSON, or a key of the reply."""
    keys = [f'"{key}"' for key in dict.fromkeys(_KEY.findall(used)) if f'"{key}"' not in new]
    return ", ".join(keys if _JSON.search(new) else ["JSON", *keys])


def _english(text: str) -> float:
    found = re.findall(r"[^\W\d_]+", text.lower())
    return sum(word in _ENGLISH_WORDS for word in found) / max(1, len(found))


def _remembers(new: str, used: str, case: Case) -> bool:
    """Return whether a text names the answer or quotes the question of a case, and the text in use does not."""
    question = words(case.question)
    phrases = [question[i : i + _QUOTED_WORDS] for i in range(len(question) - _QUOTED_WORDS + 1)]
    is_polar = expectation(case.question, case.expected).form is AnswerForm.POLAR  # every prompt may say yes and no
    if terms(case.expected) and not is_polar:
        phrases.append(words(case.expected))
    held, before = (f" {' '.join(words(text))} " for text in (new, used))
    return any(f" {' '.join(phrase)} " in held and f" {' '.join(phrase)} " not in before for phrase in phrases)


def tokens_per_run(outcomes: Iterable[Outcome]) -> float:
    """Return the mean tokens of the runs that ended, 0 when no usage was captured."""
    return mean([one.spent.tokens for one in outcomes if one.spent.tokens] or [0])
