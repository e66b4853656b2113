"""Stories from recorded conversations in the shape of LoCoMo: sessions of two speakers, facts per message, questions.

A story is a part of a conversation around the message that answers a question. Values are not corrected there, so that
U3 and U4 do not apply. No text of such a file is part of this package.

A question is used if its message tells the answer: annotated answers often come from another message or from a picture.
Words cannot show whether a message tells an answer in other words, so that no story has a paraphrase.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, cast

from memtrace_otel.bench.faults import Fault
from memtrace_otel.bench.simulated import words
from memtrace_otel.bench.stories import RECORD, Asking, Item, Story, Turn, Value, Wording, vocabulary
from memtrace_otel.semconv import Action

_TIME = "%I:%M %p on %d %B, %Y"
_DATE, _UNANSWERED = 2, 5
"""Categories of questions: the answer is a time; the conversation does not answer."""
_TIMES = re.compile(
    r"(?:[\w ]*(?:January|February|March|April|May|June|July|August|September|October|November|December)[ ,\d]*"
    r"|[^\W\d]\D*)?\b(?:19|20)\d\d"
)
_MONTH = timedelta(days=31)
_AROUND = re.compile(r"\b(?:before|after|week|weekend)\b", re.IGNORECASE)
_RELATIVE = re.compile(
    r"\b(?:(?:the )?(?:day before )?yesterday|today|tonight|tomorrow|(?:the )?next day|last night"
    r"|(?:last|next|this|past|coming) (?:week(?:end)?|month|year|(?:mon|tues|wednes|thurs|fri|satur|sun)day)"
    r"|\w+ (?:days?|weeks?|weekends?|months?|years?) (?:ago|later))\b",
    re.IGNORECASE,
)


@dataclass(slots=True)
class _Said:
    """A message; `speaker` is 0 or 1."""

    speaker: int
    time: datetime
    text: str
    facts: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class _Question:
    """A question that one message answers: the place of the message, its fact and the value in the fact."""

    text: str
    place: int
    fact: str
    value: Value
    wording: Wording


class _Conversation:
    """One conversation of a file. Raises KeyError, ValueError, TypeError for another shape."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.said: list[_Said] = []
        self.places: dict[str, int] = {}
        told = document["conversation"]
        self.speakers = speakers = [str(told[f"speaker_{s}"]) for s in "ab"]
        number = 1
        while messages := told.get(f"session_{number}"):
            start = datetime.strptime(told[f"session_{number}_date_time"] + " +0000", f"{_TIME} %z")
            for minute, message in enumerate(messages):
                self.places[message["dia_id"]] = len(self.said)
                time = start + timedelta(minutes=minute)
                self.said.append(_Said(speakers.index(message["speaker"]), time, message["text"]))
            number += 1
        for session in document["observation"].values():
            for speaker, facts in session.items():
                for fact, place in facts:
                    said = self.said[self.places[place]] if isinstance(place, str) and place in self.places else None
                    if said and speakers[said.speaker] == speaker:
                        said.facts.append(fact)
        asked = document["qa"]
        self.unanswered = [str(entry["question"]) for entry in asked if entry["category"] == _UNANSWERED]
        self.questions = [question for entry in asked for question in self._question(entry)]

    def differs(self, question: _Question, other: _Question) -> bool:
        """Return whether two answers differ: times that were told in one month may be the same."""
        if question.wording is not Wording.DATE:
            return question.value.answer != other.value.answer
        return abs(self.said[question.place].time - self.said[other.place].time) > _MONTH

    def _question(self, entry: Mapping[str, Any]) -> Iterator[_Question]:
        """Yield the question of an entry, if one message with one fact answers."""
        places = [self.places[name] for name in entry["evidence"] if name in self.places]
        if entry["category"] == _UNANSWERED or len(places) != 1 or len(self.said[places[0]].facts) != 1:
            return
        said, asked, answer = self.said[places[0]], str(entry["question"]), str(entry["answer"]).strip(" .")
        (fact,), other = said.facts, self.speakers[1 - said.speaker]
        if other in asked and self.speakers[said.speaker] not in asked:
            return  # the question names the wrong person
        if entry["category"] == _DATE and _TIMES.fullmatch(answer):
            if _tells_time(said, answer):
                fact = _RELATIVE.sub(answer, fact, 1) if _RELATIVE.search(fact) else f"{fact} ({answer})"
                yield _Question(asked, places[0], fact, Value(answer, answer, slip=_slip(answer, 10)), Wording.DATE)
        elif words(answer) <= words(said.text) and (at := _whole(answer).search(fact)):
            yield _Question(asked, places[0], fact, Value(at.group(), answer, slip=_slip(answer)), Wording.WORDS)


def _whole(answer: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(answer)}(?!\w)", re.IGNORECASE)


def _tells_time(said: _Said, answer: str) -> bool:
    """Return whether a message tells a time: relative to its day, or by its day alone."""
    own = {str(said.time.day), str(said.time.year)}
    own_day = f"{said.time:%B}" in answer and set(re.findall(r"\d+", answer)) <= own and not _AROUND.search(answer)
    return own_day or _RELATIVE.search(said.text) is not None


def _slip(answer: str, step: int = 1) -> str:
    """Return the answer with another number or without its last item, '' where there is neither.

    `step` of a day: the Friday before the 9th is the Friday before the 10th, too.
    """

    def another(number: re.Match[str]) -> str:
        value = int(number.group())
        return str(value + 1 if value > 31 else value + step if value + step <= 28 else value - step)

    changed = re.sub(r"\d+", another, answer, count=1)
    return changed if changed != answer else answer.rpartition(", ")[0]


def _untold(question: _Question, texts: Iterable[frozenset[str]]) -> bool:
    """Return whether no text, given by its words, tells the answer of a question."""
    return all(not words(question.value.answer) <= text for text in texts)


class Conversations:
    """The conversations of a file: JSON or JSON with gzip, one conversation or a list."""

    def __init__(self, path: Path) -> None:
        content = path.read_bytes()
        document: Any = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
        documents = cast(list[Any], document) if isinstance(document, list) else [document]
        self.all = [_Conversation(one) for one in documents]

    @cached_property
    def _known(self) -> list[tuple[_Conversation, _Question]]:
        return [(conversation, question) for conversation in self.all for question in conversation.questions]

    def wordings(self, fault: Fault) -> frozenset[Wording]:
        """Return the wordings in which a fault applies."""
        if fault.needs_correction or (fault.code == "N3" and not all(one.unanswered for one in self.all)):
            return frozenset()
        found = {q.wording for _, q in self._known if q.value.slip or not fault.needs_slip}
        return frozenset(found & fault.wordings)

    def story(self, rng: Random, messages: int, wording: Wording, *, slip: bool = False) -> Story | None:
        """Return a story of up to `messages` messages, None where the part that was chosen has too few facts."""
        conversation, asked = rng.choice(
            [(c, q) for c, q in self._known if q.wording == wording and (q.value.slip or not slip)]
        )
        count = min(messages, len(conversation.said))
        first = max(0, min(asked.place - rng.randrange(2, max(3, count - 6)), len(conversation.said) - count))
        said = conversation.said[first : first + count]
        gold, owner = asked.place - first, conversation.said[asked.place].speaker
        with_fact = [i for i, one in enumerate(said) if one.facts and one.speaker == owner and i != gold]
        after = [i for i in with_fact if i > gold]
        others = [q for q in conversation.questions if q.wording == wording and conversation.differs(q, asked)]
        foreign = [q for q in others if conversation.said[q.place].speaker != owner]
        strangers = [i for i, one in enumerate(said) if one.speaker != owner]
        if len(after) < 2 or len(with_fact) < 4 or not foreign or not strangers:
            return None
        aside, cleanup = rng.sample(after, 2)
        free = [i for i in with_fact if i not in (aside, cleanup)]
        obsolete, elsewhere = free[0], said[free[-1]].facts[-1]
        if obsolete > cleanup:
            return None
        theirs = max(foreign, key=lambda question: len(words(question.fact) & words(asked.text)))
        stranger = rng.choice(strangers)  # the other speaker tells something similar there
        similar = conversation.said[theirs.place].text
        if wording is Wording.DATE:  # "last week" tells a time on the day of its message only
            similar = theirs.fact
        said[stranger] = replace(said[stranger], text=similar, facts=[theirs.fact])
        told = [words(" ".join((one.text, *one.facts))) for i, one in enumerate(said) if i != gold]
        never = [q for q in others if q is not theirs and _untold(q, told)]
        if not never or not _untold(asked, told):
            return None
        wrong = rng.choice(never)
        garbled = asked.fact.replace(asked.value.told, wrong.value.told)
        if not _untold(asked, [words(garbled)]):
            return None
        related = said[aside].facts[0]
        keys = {gold: "asked", obsolete: "obsolete", stranger: "theirs"}
        turns = list[Turn]()
        for i, one in enumerate(said):
            items = [Item(fact, Action.ADD, f"other {i} {n}") for n, fact in enumerate(one.facts)]
            if i == gold:
                items = [Item(asked.fact, Action.ADD, "asked")]
            elif i == aside:
                items[0] = Item(related, Action.UPDATE, "asked", f"{RECORD}; {related}")
            elif i in keys:
                items[0] = Item(one.facts[0], Action.ADD, keys[i])
            if i == cleanup:
                items.append(Item(said[obsolete].facts[0], Action.DELETE, "obsolete"))
            reply = str(rng.choice(vocabulary("en")["replies"]))
            thread = 1 + 3 * i // count
            turns.append(Turn(int(one.speaker != owner), thread, one.time, (one.text,), reply, tuple(items)))
        readings = {garbled: wrong.value}
        for question in (theirs, asked):
            readings |= {question.fact: question.value, conversation.said[question.place].text: question.value}
        texts = {
            "vague": asked.fact.replace(asked.value.told, "something"), "lost": related, "garbled": garbled,
            "replaced": garbled, "spoiled": f"{garbled}; {related}", "elsewhere": elsewhere, "beside": elsewhere,
            "unasked": rng.choice(conversation.unanswered or [""]), "reply": "{v}.",
            "unknown": str(vocabulary("en")["unknown"]), "opening": str(rng.choice(vocabulary("en")["openings"])),
        }  # fmt: skip
        day = turns[-1].time + timedelta(days=rng.randint(1, 20))
        return Story(
            language="en", template="conversation", kind="date" if wording is Wording.DATE else "fact",
            wording=wording, turns=tuple(turns),
            asking=Asking(asked.text, asked.value.answer, day, rng.randint(3, 7), None),
            gold=gold, aside=aside, cleanup=cleanup, corrected=False, value=asked.value, wrong=wrong.value,
            neighbours=(theirs.value,), texts=texts,
            readings=tuple(sorted(readings.items(), key=lambda reading: -len(reading[0]))), resolved=(),
        )  # fmt: skip
