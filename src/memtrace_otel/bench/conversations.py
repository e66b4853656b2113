"""Stories from recorded conversations in the shape of LoCoMo: sessions of two speakers, facts per message, questions.

A story is a part of a conversation around the message that answers a question. Values are not corrected there, so that
U3 and U4 do not apply. No text of such a file is part of this package.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping
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
_SHORT_WORD = 3


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
        told, speakers = document["conversation"], [document["conversation"][f"speaker_{s}"] for s in "ab"]
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

    def _question(self, entry: Mapping[str, Any]) -> Iterator[_Question]:
        """Yield the question of an entry, if one message with one fact answers."""
        places = [self.places[name] for name in entry["evidence"] if name in self.places]
        if entry["category"] == _UNANSWERED or len(places) != 1 or len(self.said[places[0]].facts) != 1:
            return
        (fact,), answer, said = self.said[places[0]].facts, str(entry["answer"]), self.said[places[0]]
        wording = Wording.WORDS
        if entry["category"] == _DATE:
            day, wording = f"{said.time:%-d %B %Y}", Wording.DATE
            fact, value = f"{fact} (told on {day})", Value(day, answer, slip=_slip(answer))
        elif at := re.search(re.escape(answer), fact, re.IGNORECASE):
            value = Value(at.group(), answer, slip=_slip(answer))
        elif any(len(word) > _SHORT_WORD for word in words(answer) & words(fact)):
            return
        else:
            value, wording = Value(fact, answer, answer, _slip(answer)), Wording.PARAPHRASE
        yield _Question(entry["question"], places[0], fact, value, wording)


def _slip(answer: str) -> str:
    """Return the answer with another number or without its last item, '' where there is neither."""
    changed = re.sub(r"\d+", lambda number: str(int(number.group()) + 1), answer, count=1)
    return changed if changed != answer else answer.rpartition(", ")[0]


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
        others = [q for q in conversation.questions if q.wording == wording and q.value.answer != asked.value.answer]
        if len(after) < 2 or len(with_fact) < 4 or len(others) < 2:
            return None
        aside, cleanup = rng.sample(after, 2)
        free = [i for i in with_fact if i not in (aside, cleanup)]
        obsolete, elsewhere = free[0], said[free[-1]].facts[-1]
        if obsolete > cleanup:
            return None
        wrong, brother = rng.sample(others, 2)
        foreign = [q for q in others if conversation.said[q.place].speaker != owner]
        strangers = [i for i, one in enumerate(said) if one.speaker != owner]
        if not foreign or not strangers:
            return None
        theirs = max(foreign, key=lambda question: len(words(question.fact) & words(asked.text)))
        stranger = rng.choice(strangers)  # the other speaker tells something similar there
        said[stranger] = replace(conversation.said[theirs.place], time=said[stranger].time, facts=[theirs.fact])
        garbled = asked.fact.replace(asked.value.told, wrong.value.told)
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
        for question in (brother, theirs, asked):
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
            neighbours=(brother.value,), texts=texts,
            readings=tuple(sorted(readings.items(), key=lambda reading: -len(reading[0]))), resolved=(),
        )  # fmt: skip
