"""Stories: conversations made from templates and a seed, what a faultless memory does with each turn, one question.

A story is data. A fault changes the data at one place (`faults`), a system executes it (`simulated`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import cache
from importlib.resources import files
from random import Random
from typing import Any

from memtrace_otel.semconv import Action

LANGUAGES = ("en", "de", "zh")
_ENGLISH = 0.6
"""Share of the stories in English; the other languages share the rest."""
_FIRST_DAY = datetime(2025, 1, 6, 8, tzinfo=UTC)
_FRIDAY, _SATURDAY = 4, 5
_LONG_TEXT = 12
"""Sentences before the fact in a long pasted text."""
RECORD = "{record}"
"""In a text to write: the record as it is, with relative days resolved."""


class Wording(StrEnum):
    """How the expected answer is worded."""

    WORDS = "words"  # the words of the fact
    DATE = "date"  # a date, where the fact names a relative day
    PARAPHRASE = "paraphrase"  # no content word in common with the fact


@dataclass(frozen=True, slots=True)
class Value:
    """What is told, asked and answered: as told, as answered, in other words, in a wrong form ('' where none is)."""

    told: str
    answer: str
    paraphrase: str = ""
    slip: str = ""


@dataclass(frozen=True, slots=True)
class Item:
    """One fact of a turn, and what the memory does with the fact: `text` ('': the fact) goes to the record `key`."""

    fact: str
    action: Action
    key: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """One call that stores messages of `owner` in a thread."""

    owner: int
    thread: int
    time: datetime
    messages: tuple[str, ...]
    reply: str
    items: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True)
class Asking:
    """The question and how the system goes about answering. The defaults are a faultless system."""

    question: str
    expected: str
    time: datetime
    hits: int
    thread: int | None
    """Only records of this thread are searched; None: of all."""
    owner: int = 0
    """Whose records are searched; -1: of everybody."""
    searches: bool = True
    demoted: bool = False
    """The record that answers is ranked below the hits."""
    lost: str = ""
    """'dropped' or 'cut': what happens to the record that answers between search and prompt."""
    manner: str = ""
    """'ignored', 'misread' or 'slip': what the model makes of its prompt."""
    judged: bool | None = None
    """What the judge says; None: the truth."""


@dataclass(frozen=True, slots=True)
class Story:
    """A conversation of one or more owners and a question. Indices point into `turns`; owner 0 asks."""

    language: str
    template: str
    kind: str
    wording: Wording
    turns: tuple[Turn, ...]
    asking: Asking
    gold: int
    """The turn that tells the value asked for."""
    aside: int
    """The turn that adds to the record asked for."""
    cleanup: int
    """The turn that deletes a record which is no longer true."""
    corrected: bool
    """The gold turn corrects an earlier one."""
    value: Value
    wrong: Value
    """A value that was never told."""
    neighbours: tuple[Value, ...]
    """Other values that were told: the outdated one, and the one of another person."""
    texts: Mapping[str, str]
    """Texts of the template: vague, garbled, lost, spoiled, elsewhere and beside (unrelated facts), unasked; of
    answers: opening, reply, unknown."""
    readings: tuple[tuple[str, Value], ...]
    """Texts that a model understands, each with the value in the text."""
    resolved: tuple[tuple[str, str], ...]
    """A relative day as told -> the day."""

    def rewritten(self, record: str, text: str) -> str:
        """Return what an update makes of a record."""
        for told, day in self.resolved:
            record = record.replace(told, day)
        return text.replace(RECORD, record)

    def says(self, value: Value) -> str:
        """Return the sentence that answers with `value`."""
        return self.texts["reply"].replace("{v}", value.answer)

    def is_right(self, answer: str) -> bool:
        """Return whether an answer is right, whatever is expected."""
        return answer.endswith(self.texts["unknown"] if self._unasked else self.says(self.value))

    def judges(self, answer: str) -> bool:
        """Return what the judge says of an answer."""
        if self.asking.judged is not None:
            return self.asking.judged
        accepted = {self.value.answer, self.value.paraphrase, self.texts["unknown"] if self._unasked else ""}
        return self.is_right(answer) and self.asking.expected in accepted

    @property
    def _unasked(self) -> bool:
        return self.asking.question == self.texts["unasked"]


@cache
def vocabulary(language: str) -> Mapping[str, Any]:
    """Return the templates and sentences of a language."""
    return json.loads(files("memtrace_otel.bench").joinpath("data", f"{language}.json").read_text("utf-8"))


def make_story(
    rng: Random, messages: int, wording: Wording, *, correction: bool | None = None, slip: bool = False
) -> Story:
    """Return a story of `messages` calls; `slip`: the value can be given in a wrong form.

    `correction`: the value asked for corrects an earlier one (None: by chance).
    """
    return _Writer(rng, max(messages, 10), wording, correction, slip).story()


class _Writer:
    """Writes one story: first the places of its turns, then the texts."""

    def __init__(self, rng: Random, count: int, wording: Wording, correction: bool | None, slip: bool) -> None:
        self.rng = rng
        self.wording = wording
        self.language = "en" if rng.random() < _ENGLISH else rng.choice(LANGUAGES[1:])
        self.words = vocabulary(self.language)
        self.template = rng.choice([t for t in self.words["templates"] if self._fits(t, slip)])
        self.is_date = self.template["kind"] == "date"
        self.corrected = rng.random() < 0.4 if correction is None else correction
        self.known: dict[tuple[int, str], str] = {}
        """(owner, fact) -> record of what was told about other things."""
        self._place(count)
        self.days = self._days(count)

    def _fits(self, template: Mapping[str, Any], slip: bool) -> bool:
        if self.wording is Wording.DATE or template["kind"] == "date":
            return template["kind"] == "date" and self.wording is not Wording.PARAPHRASE
        return not slip or len(template["values"][0]) > 2

    def _place(self, count: int) -> None:
        places = self.rng.sample(range(2, count - 1), 3)
        old, self.gold, self.aside = sorted(places)
        self.old = old if self.corrected else self.gold
        self.cleanup = self.rng.choice([i for i in range(self.gold + 1, count) if i != self.aside])
        free = [i for i in range(1, count) if i not in (self.old, self.gold, self.aside, self.cleanup)]
        self.brother, self.stranger, *others = self.rng.sample(free, max(2, len(free) // 8))
        self.strangers = {self.stranger, *others}
        self.threads = [1 + 3 * i // count for i in range(count)]

    def _days(self, count: int) -> list[datetime]:
        day, days = _FIRST_DAY + timedelta(days=self.rng.randrange(200)), list[datetime]()
        longest = 60 * 24 * 60 // min(count, 200)
        for i in range(count):
            day += timedelta(minutes=self.rng.randint(20, longest))
            if self.is_date and i in (self.old, self.gold):  # on a Saturday all readings of "next Friday" agree
                day += timedelta(days=(_SATURDAY - day.weekday()) % 7)
            days.append(day)
        return days

    def _values(self, *told_at: int) -> list[Value]:
        """Return a value for each turn, all different."""
        if not self.is_date:
            chosen = self.rng.sample(self.template["values"], len(told_at))
            return [Value(told, told, other, *slip) for told, other, *slip in chosen]
        phrases = self.rng.sample(self.words["relative"], len(told_at))
        values = list[Value]()
        for place, (phrase, offset) in zip(told_at, phrases, strict=True):
            day = self.days[place].date()
            day += timedelta(days=(_FRIDAY - day.weekday()) % 7 or 7 if offset == "friday" else int(offset))
            told = phrase if self.wording is Wording.DATE else self._on(self._date(day))
            slip = self._date(day + timedelta(days=self.rng.choice((-1, 1, 7))))
            values.append(Value(told, self._date(day), slip=slip))
        return values

    def _date(self, day: date) -> str:
        return self.words["date"].format(day=day.day, month=self.words["months"][day.month - 1], year=day.year)

    def _on(self, written: str) -> str:
        return self.words["on"].replace("{date}", written)

    def _put(self, name: str, value: str = "") -> str:
        return str(self.template[name]).replace("{v}", value)

    def _noise(self) -> tuple[str, str]:
        """Return a message about something else and its fact."""
        told, fact = self.rng.choice(self.words["noise"])
        places = {"a": self.rng.choice(self.words["a"]), "b": self.rng.choice(self.words["b"])}
        return told.format(**places), fact.format(**places)

    # --- the story -----------------------------------------------------------------------------------------------
    def story(self) -> Story:
        gold, old, wrong, brother = self._values(self.gold, self.old, self.gold, self.brother)
        (stranger,) = [v for v in self._values(self.stranger) if v.told != gold.told] or [brother]
        turns = self._turns(gold, old, brother, stranger)
        resolved = {v.told: self._on(v.answer) for v in (gold, old, wrong) if self.wording is Wording.DATE}
        told = [(name, t, v) for v in (gold, old, wrong, stranger) for t in (v.told, resolved.get(v.told, v.told))
                for name in ("fact", "corrected", "told", "correction")]  # fmt: skip
        spoiled = f"{self._put('fact', resolved.get(wrong.told, wrong.told))}; {self._put('aside_fact')}"
        return Story(
            language=self.language,
            template=self._put("name"),
            kind=self._put("kind"),
            wording=self.wording,
            turns=turns,
            asking=Asking(
                question=self._put("question"),
                expected=gold.paraphrase if self.wording is Wording.PARAPHRASE else gold.answer,
                time=turns[-1].time + timedelta(days=self.rng.randint(1, 20), minutes=self.rng.randrange(600)),
                hits=self.rng.randint(3, 7),
                thread=self.threads[self.old] if self.rng.random() < 0.5 else None,
            ),
            gold=self.gold,
            aside=self.aside,
            cleanup=self.cleanup,
            corrected=self.corrected,
            value=gold,
            wrong=wrong,
            neighbours=(old, brother) if self.corrected else (brother,),
            texts={
                **{name: self._put(name) for name in ("vague", "lost", "unasked")},
                "reply": str(self.template["reply"]),
                "unknown": str(self.words["unknown"]),
                "garbled": self._put("corrected" if self.corrected else "fact", wrong.told),
                "replaced": self._put("fact", wrong.told),
                "spoiled": spoiled,
                "elsewhere": self._noise()[1],
                "beside": self._noise()[1],
                "opening": str(self.rng.choice(self.words["openings"])),
            },
            readings=tuple(sorted({self._put(name, t): v for name, t, v in told}.items(), key=lambda r: -len(r[0]))),
            resolved=tuple(sorted(resolved.items(), key=lambda pair: -len(pair[0]))),
        )

    def _turns(self, gold: Value, old: Value, brother: Value, stranger: Value) -> tuple[Turn, ...]:
        obsolete = self._noise()
        new = Item(self._put("fact", gold.told), Action.ADD, "asked")
        if self.corrected:
            new = Item(self._put("corrected", gold.told), Action.UPDATE, "asked", self._put("fact", gold.told))
        merged = Item(self._put("aside_fact"), Action.UPDATE, "asked", f"{RECORD}; {self._put('aside_fact')}")

        def added(told: str, fact: str, value: Value, key: str) -> tuple[str, Item]:
            return self._put(told, value.told), Item(self._put(fact, value.told), Action.ADD, key)

        told = {
            0: (obsolete[0], Item(obsolete[1], Action.ADD, "obsolete")),
            self.old: added("told", "fact", old, "asked"),
            self.gold: (self._put("correction" if self.corrected else "told", gold.told), new),
            self.aside: (self._put("aside"), merged),
            self.cleanup: (obsolete[0], Item(obsolete[1], Action.DELETE, "obsolete")),
            self.brother: added("other", "other_fact", brother, "brother"),
            self.stranger: added("told", "fact", stranger, "theirs"),
        }
        return tuple(self._turn(i, told.get(i)) for i in range(len(self.days)))

    def _turn(self, place: int, own: tuple[str, Item] | None) -> Turn:
        """Return a turn that tells `own`, something else, or both; of something else, not everything is kept."""
        owner = 1 if place in self.strangers else 0
        parts: list[tuple[str, Item | None]] = [own] if own else []
        for _ in range(self.rng.choice((0, 0, 1)) if own else self.rng.choice((1, 1, 1, 2))):
            text, fact = self._noise()
            if self.rng.random() < 0.2:
                parts.append((text, None))
                continue
            parts.append((text, self._other(owner, fact)))
        self.rng.shuffle(parts)
        texts = [text for text, _ in parts]
        if self.rng.random() < 0.1:  # a long pasted text that ends with what is told
            texts[-1:] = [" ".join([*(self._noise()[0] for _ in range(_LONG_TEXT)), texts[-1]])]
        messages = tuple(texts) if self.rng.random() < 0.5 else (" ".join(texts),)
        items = tuple(item for _, item in parts if item is not None)
        reply = str(self.rng.choice(self.words["replies"]))
        return Turn(owner, self.threads[place], self.days[place], messages, reply, items)

    def _other(self, owner: int, fact: str) -> Item:
        """Return an item about something else. Harmless updates and deletions hide how often faults change records."""
        earlier = [key for (of, _), key in self.known.items() if of == owner]
        chance = self.rng.random()
        if earlier and chance < 0.12:
            return Item(fact, Action.UPDATE, self.rng.choice(earlier), f"{RECORD}; {fact}" if chance < 0.06 else fact)
        if earlier and chance < 0.16:
            return Item(fact, Action.DELETE, self.rng.choice(earlier))
        action = Action.NONE if (owner, fact) in self.known else Action.ADD
        return Item(fact, action, self.known.setdefault((owner, fact), f"other {len(self.known)}"))
