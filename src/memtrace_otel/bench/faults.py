"""The faults: each one changes a story at one place and says which operation is decisive.

A fault knows nothing of spans. The system executes the changed story, so that later operations work on what the
faulty one left.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from typing import ClassVar

from memtrace_otel.bench.stories import Item, Story, Wording
from memtrace_otel.semconv import Action, FailureType


class Step(StrEnum):
    """Operations of a system that a fault can lie in."""

    EXTRACT = "extract"
    DECIDE = "decide"
    WRITE = "write"
    SEARCH = "search"
    ASSEMBLE = "assemble"
    RESPOND = "respond"
    JUDGE = "judge"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a fault lies: an operation of a turn, of the question for turn -1."""

    step: Step
    turn: int = -1


class Fault(ABC):
    """One kind of fault. `failure_type` is None where nothing failed; `step` None where no operation is at fault."""

    code: ClassVar[str]
    failure_type: ClassVar[FailureType | None]
    step: ClassVar[Step | None] = None
    answer_is_right: ClassVar[bool] = False
    """The answer is right all the same."""
    needs_correction: ClassVar[bool | None] = None
    """The story corrects a value (True), does not (False), either (None)."""
    needs_slip: ClassVar[bool] = False
    """The value has a wrong form."""
    wordings: ClassVar[frozenset[Wording]] = frozenset(Wording)

    @abstractmethod
    def plant(self, story: Story, rng: Random) -> Story:
        """Return the story with the fault."""

    def place(self, story: Story) -> Place | None:
        """Return the decisive operation."""
        return Place(self.step) if self.step else None


def _change(story: Story, turn: int, change: Callable[[Item], Item | None], key: str = "asked") -> Story:
    """Return the story with the item of `turn` that concerns the record `key` changed or dropped."""
    changed = (change(item) if item.key == key else item for item in story.turns[turn].items)
    new = replace(story.turns[turn], items=tuple(item for item in changed if item is not None))
    return replace(story, turns=(*story.turns[:turn], new, *story.turns[turn + 1 :]))


def _ask(story: Story, **changes: object) -> Story:
    return replace(story, asking=replace(story.asking, **changes))  # type: ignore[arg-type]


class _InExtraction(Fault):
    failure_type, step = FailureType.EXTRACTION, Step.EXTRACT

    def place(self, story: Story) -> Place | None:
        return Place(Step.EXTRACT, story.gold)


class Dropped(_InExtraction):
    """The extraction leaves the fact out."""

    code = "E1"

    def plant(self, story: Story, rng: Random) -> Story:
        return _change(story, story.gold, lambda item: None)


class Garbled(_InExtraction):
    """The extraction gives another value."""

    code = "E2"

    def plant(self, story: Story, rng: Random) -> Story:
        text = story.texts["replaced"] if story.corrected else ""
        return _change(story, story.gold, lambda item: replace(item, fact=story.texts["garbled"], text=text))


class Vague(_InExtraction):
    """The extraction leaves the value out of the fact."""

    code = "E3"

    def plant(self, story: Story, rng: Random) -> Story:
        return _change(story, story.gold, lambda item: replace(item, fact=story.texts["vague"], text=""))


class _InWrite(Fault):
    failure_type, step = FailureType.UPDATE, Step.WRITE

    def place(self, story: Story) -> Place | None:
        return Place(Step.WRITE, story.aside)


class Overwritten(_InWrite):
    """An update replaces the record by something unrelated, or by the related fact alone."""

    code = "U1"

    def plant(self, story: Story, rng: Random) -> Story:
        related = story.texts["lost"] if rng.random() < 0.5 else story.texts["elsewhere"]
        text = f"{related}; {story.texts['beside']}"  # as long as a right update
        return _change(story, story.aside, lambda item: replace(item, text=text))


class Spoiled(_InWrite):
    """An update that adds a related fact changes the value."""

    code = "U2"

    def plant(self, story: Story, rng: Random) -> Story:
        return _change(story, story.aside, lambda item: replace(item, text=story.texts["spoiled"]))


class _InDecision(Fault):
    failure_type, step, needs_correction = FailureType.UPDATE, Step.DECIDE, True

    def place(self, story: Story) -> Place | None:
        return Place(Step.DECIDE, story.gold)


class NotRenewed(_InDecision):
    """The decision about the corrected value is to change nothing."""

    code = "U3"

    def plant(self, story: Story, rng: Random) -> Story:
        return _change(story, story.gold, lambda item: replace(item, action=Action.NONE))


class StoredBeside(_InDecision):
    """The corrected value becomes a second record, and the outdated one stays."""

    code = "U4"

    def plant(self, story: Story, rng: Random) -> Story:
        return _change(story, story.gold, lambda item: replace(item, action=Action.ADD, key="beside", text=""))


class Deleted(Fault):
    """A deletion takes the record asked for in place of an obsolete one."""

    code, failure_type, step = "D1", FailureType.DELETION, Step.WRITE

    def plant(self, story: Story, rng: Random) -> Story:
        return _change(story, story.cleanup, lambda item: replace(item, key="asked"), key="obsolete")

    def place(self, story: Story) -> Place | None:
        return Place(Step.WRITE, story.cleanup)


class _InSearch(Fault):
    failure_type, step = FailureType.RETRIEVAL, Step.SEARCH


class RankedOut(_InSearch):
    """The search ranks the record below its hits."""

    code = "R1"

    def plant(self, story: Story, rng: Random) -> Story:
        return _ask(story, demoted=True)


class FilteredOut(_InSearch):
    """The search looks in another thread, or in the memory of another user."""

    code = "R2"

    def plant(self, story: Story, rng: Random) -> Story:
        if rng.random() < 1 / 3:
            return _ask(story, owner=1, thread=None)
        where = next(turn.thread for turn in story.turns for item in turn.items if item.key == "asked")
        return _ask(story, thread=rng.choice([thread for thread in (1, 2, 3) if thread != where]))


class LostBeforePrompt(Fault):
    """The record is found, and dropped or cut on its way to the prompt."""

    code, failure_type, step = "R3", FailureType.RETRIEVAL, Step.ASSEMBLE

    def plant(self, story: Story, rng: Random) -> Story:
        return _ask(story, lost=rng.choice(("dropped", "cut")))


class _InResponse(Fault):
    failure_type, step = FailureType.RESPONSE, Step.RESPOND
    manner: ClassVar[str]

    def plant(self, story: Story, rng: Random) -> Story:
        return _ask(story, manner=self.manner)


class Ignored(_InResponse):
    """The model says that nothing is known, with the record before it."""

    code, manner = "A1", "ignored"


class Misread(_InResponse):
    """The model gives the value of another person, or an outdated one."""

    code, manner = "A2", "misread"

    def plant(self, story: Story, rng: Random) -> Story:
        return super().plant(replace(story, neighbours=(rng.choice(story.neighbours),)), rng)


class WrongForm(_InResponse):
    """The model gives the value in a wrong form: a digit, a unit, a day or an item of a list is wrong."""

    code, manner, needs_slip = "A3", "slip", True


class WrongExpected(Fault):
    """The expected answer is wrong; the answer is right."""

    code, failure_type, answer_is_right = "N1", FailureType.ANNOTATION, True

    def plant(self, story: Story, rng: Random) -> Story:
        other = story.wrong
        return _ask(story, expected=other.paraphrase if story.wording is Wording.PARAPHRASE else other.answer)


class WrongJudge(Fault):
    """The judge calls a right answer wrong."""

    code, failure_type, step, answer_is_right = "N2", FailureType.JUDGE, Step.JUDGE, True

    def plant(self, story: Story, rng: Random) -> Story:
        return _ask(story, judged=False)


class NeverTold(Fault):
    """Nothing is wrong: the question is about something never told, and the answer says so."""

    code, failure_type, answer_is_right = "N3", None, True
    wordings = frozenset({Wording.WORDS})

    def plant(self, story: Story, rng: Random) -> Story:
        return _ask(story, question=story.texts["unasked"], expected=story.texts["unknown"])


class Healthy(Fault):
    """Nothing is wrong: the answer is right and is judged right."""

    code, failure_type, answer_is_right = "healthy", None, True

    def plant(self, story: Story, rng: Random) -> Story:
        return story


class Leaked(_InSearch):
    """The search returns the record of another user, and the answer takes the value from there."""

    code = "S1"

    def plant(self, story: Story, rng: Random) -> Story:
        return _ask(story, owner=-1, thread=None)


class NeverAsked(Fault):
    """The system answers without a search in its memory."""

    code, failure_type, step = "M1", FailureType.RETRIEVAL, Step.RESPOND

    def plant(self, story: Story, rng: Random) -> Story:
        return _ask(story, searches=False)


class Two(Fault):
    """Two faults of which each alone makes the answer wrong; the earlier one decides."""

    code = "C1"

    def __init__(self, first: Fault, second: Fault) -> None:
        self.first, self.second = first, second
        self.failure_type, self.step = first.failure_type, first.step  # type: ignore[misc]

    def plant(self, story: Story, rng: Random) -> Story:
        return self.second.plant(self.first.plant(story, rng), rng)

    def place(self, story: Story) -> Place | None:
        return self.first.place(story)


ONE: tuple[Fault, ...] = (
    Dropped(), Garbled(), Vague(), Overwritten(), Spoiled(), NotRenewed(), StoredBeside(), Deleted(), RankedOut(),
    FilteredOut(), LostBeforePrompt(), Ignored(), Misread(), WrongForm(), WrongExpected(), WrongJudge(), NeverTold(),
    Leaked(), NeverAsked(), Healthy(),
)  # fmt: skip
_PAIRS = ((Garbled(), RankedOut()), (Garbled(), Ignored()), (Spoiled(), Ignored()), (Overwritten(), FilteredOut()),
          (Deleted(), FilteredOut()), (RankedOut(), LostBeforePrompt()))  # fmt: skip
CODES = (*(fault.code for fault in ONE), "C1")


def fault_of(code: str, rng: Random) -> Fault:
    """Return the fault with a code of `CODES`; for C1 a pair by chance."""
    if code == "C1":
        return Two(*rng.choice(_PAIRS))
    return next(fault for fault in ONE if fault.code == code)
