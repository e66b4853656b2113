"""The walk for one failed answer: which messages held the answer, and how far each piece of it got."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from memtrace_otel.attribution.expectation import AnswerForm, Expectation, Need, answered, carries, expectation
from memtrace_otel.attribution.lineage import Lineage, Source, Version
from memtrace_otel.attribution.recall import Hit, Recall, recall
from memtrace_otel.attribution.text import Lexicon, abstains, terms
from memtrace_otel.model import Failure, content_digest
from memtrace_otel.semconv import Role

_EMPTY = content_digest("")

AS_MUCH_ABOUT = 0.75
"""A text counts as being about the question when it shares at least this part of what its best source shares with it."""


@dataclass(frozen=True, slots=True)
class Life:
    """How far one piece of the expected answer got. `need` is None when only identity can be followed."""

    need: Need | None
    sources: tuple[Source, ...]
    """Messages that held it."""
    said: bool
    """Its words (or the gold evidence, followed by identity) are in the messages."""
    facts: tuple[Version, ...]
    """Extracted facts that carry it."""
    versions: tuple[Version, ...]
    """Record versions that carried it at any time before the question."""
    surviving: tuple[Version, ...]
    """Those that were the last version of a live record when the question came."""
    returned: tuple[Hit, ...]
    """Hits that carry it and reached the answering model."""
    answered: bool
    """The given answer holds it."""

    @property
    def furthest(self) -> int:
        """0 nowhere, 1 said, 2 extracted or written, 3 survived, 4 returned."""
        reached = (self.said, self.facts or self.versions, self.surviving, self.returned)
        return max((i + 1 for i, there in enumerate(reached) if there), default=0)


class Evidence:
    """Everything the rules look at. Built once per failure; pure apart from caching."""

    def __init__(self, lineage: Lineage, failure: Failure) -> None:
        self.failure = failure
        self.lineage = lineage
        self.answer_span = failure.answer_span
        self.recall: Recall = recall(lineage, failure.answer_span)
        self.wish: Expectation = expectation(failure.question, failure.expected, known=_expected_known(failure))
        everything = lineage.sources
        self.named = tuple(s for s in everything if s.message.ref in failure.evidence)
        """Sources named as gold evidence."""
        scopes = {*self.recall.scopes, *(s.scope for s in self.named)} - {""}
        within = [s for s in everything if s.scope in scopes or not s.scope or not scopes]
        self.messages = tuple(
            s for s in within if s.message.span.start <= (self.answer_span.end or s.message.span.start)
        )
        """Sources of the scopes concerned, told before the answer."""
        self.scopes = scopes
        self.lexicon = Lexicon(self._texts())

    @cached_property
    def records(self) -> tuple[tuple[Version, ...], ...]:
        """Histories, up to the question, of the records of the scopes concerned."""
        histories = (self.lineage.history(ref, None, self.answer_span.start) for ref in self.lineage.records())
        kept = (
            tuple(v for v in h if not self.scopes or not v.span.scope or v.span.scope in self.scopes) for h in histories
        )
        return tuple(history for history in kept if history)

    @cached_property
    def lives(self) -> tuple[Life, ...]:
        """The life of each needed piece; one life by identity when there is nothing to read."""
        if self.wish.form in (AnswerForm.MISSING, AnswerForm.ABSTAIN) or not self.readable:
            return (self.life_of_evidence(),)
        return tuple(self._life(need) for need in self.wish.needs)

    @cached_property
    def readable(self) -> bool:
        """Contents were captured, so words can be compared."""
        return any(s.message.content for s in self.messages) or any(h.content for h in self.recall.hits)

    @cached_property
    def complete(self) -> bool:
        """Nothing is known to be missing: contents, origins of the hits, links from answer to search."""
        spans = {self.answer_span.origin: self.answer_span}
        for version in (v for history in self.records for v in history):
            spans[version.span.origin] = version.span
        for source in self.messages:
            spans[source.extraction.origin] = source.extraction
        flagged = any(span.incomplete for span in (*spans.values(), *self.recall.searches))
        orphaned = any(not hit.origin and not self.lineage.history(hit.ref) for hit in self.recall.hits)
        return self.readable and self.recall.linked and not flagged and not orphaned and bool(self.messages)

    @cached_property
    def missing(self) -> tuple[Life, ...]:
        """The pieces that the given answer lacks."""
        return tuple(life for life in self.lives if not life.answered)

    @property
    def absence_proves_nothing(self) -> bool:
        """The trace does not hold every message: what is in none of them may have been told all the same."""
        return not self.complete

    def about(self, text: str) -> float:
        """How much of the question the text shares: 0..1."""
        return self.lexicon.share(self.wish.question_terms, terms(text))

    def supports(self, text: str, need: Need, day: object = None) -> bool:
        """Tell whether the text carries the need."""
        return bool(text) and carries(text, need, self.lexicon, day)  # type: ignore[arg-type]

    def life_of_evidence(self) -> Life:
        """Follow the named messages by identity alone: every record written from them counts as carrying the answer."""
        facts = tuple(f for s in self.named for f in s.facts)
        refs = dict.fromkeys(v.ref for s in self.named for v in s.written)
        histories = [h for h in self.records if h[-1].ref in refs]
        versions = tuple(v for h in histories for v in h if not v.deleted)
        surviving = tuple(h[-1] for h in histories if not h[-1].deleted)
        returned = tuple(
            hit for hit in self.recall.hits if hit.ref in refs or hit.ref in {s.message.ref for s in self.named}
        )
        return Life(None, self.named, bool(self.named), facts, versions, surviving, returned, False)

    def _life(self, need: Need) -> Life:
        sources = self._sources_of(need)
        said = any(self.supports(s.message.content, need, s.message.day) for s in sources)
        own = {v.ref for s in sources for v in s.written} | {s.message.ref for s in sources}
        bar = AS_MUCH_ABOUT * max((self.about(s.message.content) for s in sources), default=0.0)

        def carrying(ref: str, content: str, day: object) -> bool:
            return self.supports(content, need, day) and (ref in own or self.about(content) >= bar)

        facts = tuple(f for s in sources for f in s.facts if self.supports(f.content, need, f.day))
        versions = tuple(v for h in self.records for v in h if not v.deleted and carrying(v.ref, v.content, v.day))
        last = {h[-1].ref: h[-1] for h in self.records}
        surviving = tuple(v for v in versions if last[v.ref] is v)
        returned = tuple(hit for hit in self.recall.hits if carrying(hit.ref, hit.content, hit.day))
        held = answered(self.failure.answer, need, self.wish.form, self.lexicon)
        return Life(need, sources, said, facts, versions, surviving, returned, held)

    def _sources_of(self, need: Need) -> tuple[Source, ...]:
        """The messages that hold a need: of the named ones when any does, else those most about the question that carry it."""
        carrying = [s for s in self.named if self.supports(s.message.content, need, s.message.day)]
        if carrying or self.named:
            return tuple(carrying or self.named)
        found = [s for s in self.messages if self.supports(s.message.content, need, s.message.day)]
        best = max((self.about(s.message.content) for s in found), default=0.0)
        return tuple(s for s in found if self.about(s.message.content) >= AS_MUCH_ABOUT * best)

    def _texts(self) -> list[str]:
        texts = [s.message.content for s in self.messages]
        texts += [f.content for s in self.messages for f in s.facts]
        texts += [v.content for history in self.records for v in history]
        return texts + [hit.content for hit in self.recall.hits]

    @cached_property
    def abstained(self) -> bool:
        """The given answer says that nothing is known."""
        return abstains(self.failure.answer)


def _expected_known(failure: Failure) -> bool:
    """An expected answer with no content and no digest is an empty one; with a digest it was not captured."""
    judge = failure.judge_span
    empty = judge is not None and any(v.role == Role.EXPECTED and v.digest in ("", _EMPTY) for v in judge.inputs)
    return bool(failure.expected) or (empty and bool(failure.answer))
