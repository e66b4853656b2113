"""Evidence for one failed answer: the messages that held the expected answer, and how far each piece got."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from math import inf

from memtrace_otel.attribution.comparison import AS_MUCH_ABOUT, Comparison, renewed, told_piece, turned_round
from memtrace_otel.attribution.entailment import Reading
from memtrace_otel.attribution.expectation import (
    AnswerForm,
    Expectation,
    Need,
    answered,
    expectation,
    given_answer,
    same_answer,
)
from memtrace_otel.attribution.failures import expected_known
from memtrace_otel.attribution.lineage import Lineage, Loss, Version, overwriting
from memtrace_otel.attribution.prompt_memory import own_prompt, prompt_memory
from memtrace_otel.attribution.search_results import Hit, search_results
from memtrace_otel.attribution.source_messages import Source, dictated, sources_of
from memtrace_otel.attribution.text import abstains, numbers, script, stated, terms
from memtrace_otel.graph import VersionKey
from memtrace_otel.model import Failure, OperationSpan, ref_kind
from memtrace_otel.semconv import OpKind, RefKind, Role

_OWN = 0.5  # a text extracted from the source message may leave out more of the question
_UNSOURCED = 0.5  # without a source message to compare with, a text must share half of the question
_TOLD = 0.5  # a piece of which less was ever said is not searched by its few common words
_HELD = 1 / 4
_FEW = 2  # a correction in other words than the question is a source, if its words are in few messages
REDACTED_MARK = "[redacted: "
_BESIDE = frozenset({Role.CANDIDATE, Role.HISTORY})  # a candidate or an earlier message feeds no search and no answer


@dataclass(frozen=True, slots=True)
class Life:
    """How far one piece of the expected answer got. `need` is None when only identity can be followed."""

    need: Need | None
    sources: tuple[Source, ...]
    """Messages that held the piece."""
    said: bool
    """The words of the piece (or the gold evidence, followed by identity) are in the messages."""
    facts: tuple[Version, ...]
    """Extracted facts that carry the piece."""
    versions: tuple[Version, ...]
    """Record versions that carried the piece at any time before the question."""
    surviving: tuple[Version, ...]
    """Those that were the last version of a live record when the question came."""
    returned: tuple[Hit, ...]
    """Hits that carry the piece and reached the answering model."""
    answered: bool
    """The given answer holds the piece."""
    overwritten: tuple[Version, Version] | None = None
    """Without contents: the last version known to carry the piece, and the update from other facts that replaced the
    version. The records named above may still carry the piece."""
    guessed: bool = False
    """The messages are only those closest to the question: neither evidence nor words name them."""
    translated: bool = False
    """The records are in another script than the messages: identity alone tells that they carry the piece."""

    @property
    def furthest(self) -> int:
        """0 nowhere, 1 said, 2 extracted or written, 3 survived, 4 returned."""
        reached = (self.said, self.facts or self.versions, self.surviving, self.returned)
        return max((i + 1 for i, there in enumerate(reached) if there), default=0)


class Evidence:
    """Everything that the rules read. Built once per failure; pure apart from caching."""

    def __init__(
        self, lineage: Lineage, failure: Failure, *, everywhere: bool = False, reading: Reading | None = None
    ) -> None:
        self.failure = failure
        self.reading = reading
        """What a model said of the texts of the case; None: words are compared."""
        self.lineage = lineage
        self.answer_span = failure.answer_span
        self.results = search_results(lineage, failure.answer_span)
        self.wish: Expectation = expectation(failure.question, failure.expected, known=expected_known(failure))
        asked = max(self.answer_span.start, self.answer_span.end)
        told = [s for s in sources_of(lineage) if s.message.span.start <= asked and not s.only_asks(failure.question)]
        self.named = tuple(s for s in told if s.message.ref in failure.evidence)
        """Sources named as gold evidence."""
        searched = {*self.results.scopes, *(s.scope for s in self.named)} - {""}
        within = [s for s in told if not searched or s.scope in searched or not s.scope]
        self.scopes = searched if within and not everywhere else set[str]()
        """Memory scopes concerned: searched, or of the named evidence; empty means every one."""
        self.everywhere = everywhere
        """Memory scopes that were not searched count, too: their owner may be another one."""
        self.messages = tuple(within if self.scopes else told)
        """Sources of these scopes, told before the answer."""
        self._prompts: tuple[Version, ...] = ()
        if memory := prompt_memory(lineage, self.answer_span, self.results):
            self._prompts, self.results = memory.versions, memory.results
            self.messages = (*memory.messages, *self.messages)
        self._asked: tuple[Version, ...] = ()
        if memory := own_prompt(lineage, failure, self.results, self.messages, everywhere=everywhere):
            self._asked, self.results = memory.versions, memory.results
            self.messages = (*memory.messages, *self.messages)
        self.compare = Comparison(self.wish, self._texts(), reading)
        if reading:
            form = AnswerForm.TERMS if reading.refutes else self.wish.form
            self.wish = replace(self.wish, form=form, needs=(reading.need,))

    # --- what the trace holds ------------------------------------------------------------------------------------
    @cached_property
    def records(self) -> tuple[tuple[Version, ...], ...]:
        """Histories, up to the search, of the records of the scopes concerned, with replacements by other scopes."""
        asked = self.results.asked_at
        histories = (history for ref in self.lineage.records() for history in self.lineage.histories(ref, asked))
        kept = (tuple(self._kept(history)) for history in histories)
        found = tuple((*history, *self._trimmed(history[-1])) for history in kept if history)
        found += tuple((version,) for version in self._asked)
        return (*found, self._prompts) if self._prompts else found

    def _trimmed(self, last: Version) -> list[Version]:
        """Return the deletion of a message that the turn of the question took out of the conversation.

        A checkpoint saves the shorter conversation after the call of the model, so the deletion follows the answer.
        """
        if ref_kind(last.ref) != RefKind.STATE or all(hit.ref != last.ref for hit in self.results.dropped):
            return []
        turn = self.answer_span.trace_id
        later = (v for v in self.lineage.history(last.ref) if v.span.start > self.results.asked_at)
        return [v for v in later if v.deleted and v.span.trace_id == turn and self.lineage.replaces(v, last)][:1]

    def _kept(self, history: Iterable[Version]) -> Iterator[Version]:
        last: Version | None = None
        for version in history:
            if (self._concerned(version.span) and not self._of_another_conversation(version)) or (
                last is not None and self.lineage.replaces(version, last)
            ):
                yield (last := version)

    def _concerned(self, span: OperationSpan) -> bool:
        scope = self.lineage.scope(span)
        return not self.scopes or not scope or scope in self.scopes

    def _of_another_conversation(self, version: Version) -> bool:
        """Whether a version only repeats a message of another conversation, and the answer has a memory."""
        read = self.results.scopes if self.everywhere else ()
        own = (self.lineage.scope(self.answer_span),) if self._prompts else read
        return bool(own) and ref_kind(version.ref) == RefKind.STATE and self.lineage.scope(version.span) not in own

    @cached_property
    def readable(self) -> bool:
        """Contents were captured, so words can be compared."""
        held = (version for history in self.records for version in history)
        return any(item.content for item in (*(s.message for s in self.messages), *self.results.hits, *held))

    @cached_property
    def complete(self) -> bool:
        """Nothing that the verdict depends on is known to be missing.

        Every verdict depends on contents and on the path to the model. A missing operation whose record or fact was
        read matters too, unless each piece of the expected answer
        - is in the given answer, or
        - was told by a known message, and records without missing versions brought the piece to the model, still held
          the piece when the question came, or lost the piece last.
        Only a complete trace proves that a piece was nowhere.
        """
        return self.whole or (self._shown and all(not self._may_hide(life) for life in self.lives))

    @cached_property
    def whole(self) -> bool:
        """Nothing at all is known to be missing. Only then does absence prove that a piece was never told or stored."""
        recorded = all(version.recorded for history in self.records for version in history)
        return self._shown and recorded and not self._unwritten

    @cached_property
    def _shown(self) -> bool:
        """Contents, the writers of the hits and the links from answer to search are recorded."""
        spans = {self.answer_span.origin: self.answer_span}
        spans.update((v.origin, v.span) for history in self.records for v in history if v.recorded)
        spans.update((source.extraction.origin, source.extraction) for source in self.messages)
        spans.update((span.origin, span) for span in self.results.searches)
        flagged = any(self.lineage.gaps(span) for span in spans.values())
        orphaned = any(
            not hit.origin and hit.ref not in {s.message.ref for s in self.messages} for hit in self.results.hits
        )
        silent = any(not source.message.content for source in self.messages)
        reads = (read for span in (self.answer_span, *self.results.searches) for read in self.lineage.reads(span))
        cut = any(self.lineage.is_missing(version.origin) for read, version in reads if read.role not in _BESIDE)
        known = not (silent or flagged or orphaned or cut or self.lineage.lost)
        return bool(self.messages) and self.results.linked and known

    @cached_property
    def _unwritten(self) -> dict[VersionKey, float]:
        """Records and facts of missing operations -> when they were replaced (ns, infinity: never).

        The time of writing is unknown: records that only later operations read count too.
        """
        known = {v.origin for history in self.records for v in history if v.recorded}
        known |= {span.origin for span in (self.answer_span, *self.results.searches)}
        found: dict[VersionKey, float] = {}
        for span, version in self.lineage.unwritten:
            if span.origin in known or self._concerned(span):
                writes = (written for written in self.lineage.written_by(span) if written.ref == version.ref)
                replaces = any(version in self.lineage.replaced(written) for written in writes)
                found[version] = min(found.get(version, inf), span.start if replaces else inf)
        return found

    def _may_hide(self, life: Life) -> bool:
        """Return whether a missing operation may explain how far a piece got, see `complete`."""
        if life.answered:
            return False
        if life.guessed or not life.sources:
            return True
        if kept := {hit.ref for hit in life.returned} or {version.ref for version in life.surviving}:
            unrecorded = {version.ref for version in (*self._unwritten, *(v for v in life.versions if not v.recorded))}
            return not kept.isdisjoint(unrecorded)
        loss = self.last_loss(life)
        return (
            loss is None
            or not loss.before.recorded
            or any(
                version.ref == loss.after.ref or replaced >= loss.after.span.start
                for version, replaced in self._unwritten.items()
            )
        )

    @cached_property
    def is_right(self) -> bool:
        """The given answer says what was expected."""
        if self.reading and self.reading.answered is not None:
            return self.reading.answered
        return same_answer(self.failure.answer, self.wish)

    @cached_property
    def abstained(self) -> bool:
        """The given answer says that nothing is known."""
        return abstains(self.failure.answer) or self._given.form is AnswerForm.ABSTAIN

    def record(self, item: Version | Hit) -> str:
        """Return the name of the record of a version or a hit, see `Lineage.record`."""
        return item.record if isinstance(item, Hit) else self.lineage.record(item.key)

    def about_source(self, source: Source) -> float:
        """Return how close a message or a fact extracted from the message is to the question: 0 to 1."""
        return max(self.compare.about(version.content) for version in (source.message, *source.facts))

    # --- the walk ------------------------------------------------------------------------------------------------
    @cached_property
    def redacted(self) -> Source | None:
        """The message closest to the question, if redaction took a part of it that no fact or record repeats.

        None when a message is known to hold a piece of the answer.
        """
        if any(self.tellers(need) for need in self.wish.needs):
            return None
        for source in self.named or self._nearest():
            taken = (v.content for v in (*source.facts, *source.written))
            if REDACTED_MARK in source.message.content and not any(REDACTED_MARK in text for text in taken):
                return source
        return None

    @cached_property
    def _given(self) -> Expectation:
        return given_answer(self.wish.question, self.failure.answer)

    @cached_property
    def given(self) -> tuple[Need, ...]:
        """The pieces of the given answer, in the words that memory knows; none of an answer that abstains."""
        if self.abstained or self._given.form not in (AnswerForm.TERMS, AnswerForm.TIME):
            return ()
        knows, needs = self.compare.lexicon.knows, self._given.needs
        known = (replace(n, terms=frozenset(t for t in n.terms if knows(t) or t in numbers(t))) for n in needs)
        return tuple(need for need in known if need.periods or need.terms)

    def gives(self, text: str, day: date | None) -> bool:
        """Return whether a text of that day carries the whole given answer."""
        return bool(self.given) and all(self.compare.supports(text, n, day, undated=False) for n in self.given)

    @cached_property
    def lives(self) -> tuple[Life, ...]:
        """The life of each needed piece; one life by identity without contents."""
        if self.wish.form is AnswerForm.MISSING and self.readable:
            nearest = [(self.compare.about(s.message.content), s) for s in self._nearest()]
            most = max((about for about, _ in nearest), default=0.0)
            return self._lives_as_told(self.named or [source for about, source in nearest if about == most])
        if self.wish.form is AnswerForm.ABSTAIN or not self.readable:
            return (self.life_of_evidence,)
        lives = tuple(self._life(need) for need in self.wish.needs)
        told = tuple(life for life in lives if life.furthest)
        if told and (self.wish.inference or self.whole):
            return told  # a piece that was never said cannot be lost
        if not told and (self.wish.inference or self.whole):
            return self._lives_as_told(self.named)
        return lives

    def _lives_as_told(self, sources: Iterable[Source]) -> tuple[Life, ...]:
        """Return the lives of the pieces in the words of these messages; that of the evidence without a piece, or where
        a later message corrected a piece that was only guessed."""
        pieces = [(source, told_piece(source, self.compare)) for source in sources]
        lives = tuple(self._life(piece, (source,)) for source, piece in pieces if piece)
        losses = [loss for life in lives if life.guessed and (loss := self.last_loss(life))]
        corrected = any(renewed(loss.before, loss.after, self.messages, self.compare) for loss in losses)
        return (self.life_of_evidence,) if corrected or not lives else lives

    @cached_property
    def missing(self) -> tuple[Life, ...]:
        """The lives of the pieces that the given answer lacks; none when the right answer was to abstain."""
        if self.wish.form is AnswerForm.ABSTAIN:
            return ()
        return tuple(life for life in self.lives if not life.answered)

    def last_loss(self, life: Life) -> Loss | None:
        """Return the loss after which no record carried the piece; None when a record still does or no record did."""
        if life.surviving:
            return None
        carrying = {version.key for version in life.versions}
        losses: list[Loss] = []
        for history in self.records:
            held = [i for i, v in enumerate(history) if v.key in carrying]
            if held and held[-1] + 1 < len(history):
                losses.append(Loss(history[held[-1]], history[held[-1] + 1]))
        return max(losses, key=lambda loss: (loss.after.span.start, loss.after.span.origin), default=None)

    @cached_property
    def borrowed(self) -> bool:
        """The named messages say what was answered, but about another person or thing."""
        texts = [(v.content, v.day) for s in self.named for v in (s.message, *s.facts)]
        return bool(self.given) and all(any(self.compare.supports(t, n, day) for t, day in texts) for n in self.given)

    @cached_property
    def life_of_evidence(self) -> Life:
        """Follow the named messages by identity alone: every record written from them counts as carrying the answer.

        Without named messages, the messages closest to the question are followed. Without contents, a record that was
        updated from other messages may have lost the answer.
        """
        sources = self.named or self._nearest()
        facts = tuple(fact for source in sources for fact in source.facts)
        records = {self.record(v) for source in sources for v in (source.message, *source.written)}
        histories = [history for history in self.records if self.record(history[-1]) in records]
        versions = tuple(v for history in histories for v in history if not v.deleted)
        surviving = tuple(history[-1] for history in histories if not history[-1].deleted)
        returned = tuple(hit for hit in self.results.hits if hit.record in records)
        overwritten = None
        if not self.readable and surviving:
            written = {v.key for source in sources for v in source.written}
            ends = [overwriting(history, written) for history in histories if not history[-1].deleted]
            whole = tuple(v for v, end in zip(surviving, ends, strict=True) if end is None)
            known = [end for end in ends if end is not None]
            surviving = whole or surviving
            overwritten = None if whole else max(known, key=lambda end: end[1].span.start)
        return Life(
            None,
            sources,
            bool(sources),
            facts,
            versions,
            surviving,
            returned,
            answered=False,
            overwritten=overwritten,
            guessed=not self.named,
        )

    def _nearest(self) -> tuple[Source, ...]:
        best = max((self.about_source(source) for source in self.messages), default=0.0)
        return tuple(s for s in self.messages if best > 0 and self.about_source(s) == best)

    def _life(self, expected: Need, given: tuple[Source, ...] = ()) -> Life:
        need = expected if self.reading or given else self._as_told(self.decisive(expected))
        sources = given or self._sources_of(need)
        silent = need.denies is not None and not self.reading and not any(self._tells(s, need) for s in sources)
        if silent:  # no message says yes or no: the words of the question are followed
            sources = self._sources_of(need := replace(need, denies=None))
        own = {self.record(v) for s in sources for v in (s.message, *s.facts, *s.written)}
        taken = [v for s in sources for v in (*s.facts, *s.written) if self.compare.supports(v.content, need, v.day)]
        bar_own = _OWN * max((self.compare.about(v.content) for v in taken), default=0.0)
        bar = AS_MUCH_ABOUT * max((self.compare.about(s.message.content) for s in sources), default=_UNSOURCED)

        spoken = "" if self.reading else script(need.text)  # a model reads every script
        spoken = spoken if any(script(s.message.content) == spoken for s in sources) else ""

        def translated(item: Version | Hit) -> bool:
            return bool(spoken) and self.record(item) in own and script(item.content) not in (spoken, "")

        def carrying(item: Version | Hit) -> bool:
            if self.reading and (read := self.reading.carries(item.content)) is not None:
                return read
            taken_here = self.record(item) in own
            if translated(item):
                return True
            undated = taken_here and self.compare.about(item.content) > 0
            held = self.compare.supports(item.content, need, item.day, undated=undated)
            held = held and (taken_here or not need.in_part)
            turned = turned_round(item.content, need, sources if taken_here else ())
            if not held or turned or self.compare.of_another(item.content, sources):
                return False
            return self.compare.about(item.content) >= (bar_own if taken_here else bar)

        versions = tuple(v for history in self.records for v in history if not v.deleted and carrying(v))
        last = {history[-1].key for history in self.records}
        surviving = tuple(v for v in versions if v.key in last and (v.origin, v.digest) not in self._resummarised)
        if not all(ref_kind(v.ref) == RefKind.STATE for v in versions):  # a conversation only quotes a stored record
            surviving = tuple(v for v in surviving if ref_kind(v.ref) != RefKind.STATE)
        return Life(
            need=need,
            sources=sources,
            said=any(self.compare.supports(s.message.content, need, s.message.day) for s in sources),
            facts=tuple(fact for source in sources for fact in source.facts if carrying(fact)),
            versions=versions,
            surviving=surviving,
            returned=tuple(hit for hit in self.results.hits if carrying(hit)),
            answered=self._answered(expected),
            guessed=silent or (bool(given) and not self.named),
            translated=any(translated(v) for v in versions),
        )

    @cached_property
    def _resummarised(self) -> frozenset[tuple[str, str]]:
        """(origin, digest) of the summaries that were rewritten: the records of one summary are one text."""
        earlier = (v for history in self.records for v in history[:-1])
        return frozenset((v.origin, v.digest) for v in earlier if v.span.kind == OpKind.CONSOLIDATE and v.digest)

    def _answered(self, need: Need) -> bool:
        if self.reading and (self.reading.refutes or self.reading.answered is not None):
            return bool(self.reading.answered)
        given, told = self.failure.answer, stated(self.failure.answer)
        in_list = len(self.wish.needs) > 1 and need.terms <= terms(told)  # before "I do not know the third"
        return answered(told if in_list else given, need, self.wish.form, self.compare.lexicon)

    def _sources_of(self, need: Need) -> tuple[Source, ...]:
        """Return the named messages that carry a need, else all named; without names those with most of the need."""

        def carry(sources: Iterable[Source]) -> list[Source]:
            return [s for s in sources if self._tells(s, need)]

        carrying = carry(self.named or self.messages) or carry(dictated(self.lineage, self.messages))
        if self.named:
            return tuple(carrying or self.named)
        if self.reading:
            return tuple(carrying)
        whole = self.compare.question.union(*(n.terms for n in self.wish.needs if not n.periods))
        piece = self.compare.question | need.terms
        held = [
            (self._held(source, whole), source)
            for source in carrying
            if need.periods or self._held(source, piece) >= _HELD
        ]
        if not held and len(carrying) <= _FEW:
            return tuple(carrying)
        best = max((share for share, _ in held), default=0.0)
        return tuple(source for share, source in held if share >= AS_MUCH_ABOUT * best)

    def _held(self, source: Source, wanted: frozenset[str]) -> float:
        """Return the share of the words that a message and its facts hold: one common word alone makes no source."""
        return self.compare.held((v.content for v in (source.message, *source.facts)), wanted)

    def tellers(self, need: Need) -> tuple[Source, ...]:
        """Return the messages that hold a piece of the answer, however little else they share with the question."""
        return tuple(source for source in self.messages if self._tells(source, need))

    def _tells(self, source: Source, need: Need) -> bool:
        """Return whether a message holds the need. Its own day tells the time of what the question asks about only."""
        message, about = source.message, self.compare.about(source.message.content)
        if not about and need.is_on(message.day):
            return False
        return self.compare.supports(message.content, need, message.day, undated=about >= _OWN * self._most_about)

    @cached_property
    def _most_about(self) -> float:
        return max((self.compare.about(source.message.content) for source in self.messages), default=0.0)

    def decisive(self, need: Need) -> Need:
        """Return the need. If no message holds the need, return the words that the given answer lacks: "room" decides
        nothing between "room 245" and "room 101". Numbers of one digit are too common to decide alone."""
        if self.reading:
            return need
        lacking = need.terms - terms(self.failure.answer)
        long = any(len(number) > 1 for number in lacking & numbers(need.text))
        return replace(need, terms=lacking) if long and not need.periods and not self.tellers(need) else need

    def _as_told(self, need: Need) -> Need:
        """Return the need without the words that were never said, unless too little of the need is left."""
        kept = need.terms & (self._vocabulary | numbers(need.text))
        if need.periods or self.compare.lexicon.mass(kept) < _TOLD * self.compare.lexicon.mass(need.terms):
            return need
        return replace(need, terms=kept)

    @cached_property
    def _vocabulary(self) -> frozenset[str]:
        texts = [v.content for s in self.named or self.messages for v in (s.message, *s.facts)]
        return frozenset(term for text in texts for term in terms(text))

    def _texts(self) -> list[str]:
        texts = [v.content for s in self.messages for v in (s.message, *s.facts)]
        texts += [v.content for history in self.records for v in history]
        return texts + [hit.content for hit in self.results.hits]
