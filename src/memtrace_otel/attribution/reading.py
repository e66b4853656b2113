"""Choose the texts of a case that a reader is asked about, and make the reading of the case."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from heapq import nlargest
from itertools import islice

from memtrace_otel.attribution.dates import periods
from memtrace_otel.attribution.entailment import Answer, Reader, Reading, Replies, Text
from memtrace_otel.attribution.evidence import Evidence
from memtrace_otel.attribution.expectation import AnswerForm, answered
from memtrace_otel.attribution.lineage import Version
from memtrace_otel.attribution.search_results import Hit
from memtrace_otel.attribution.text import terms

MAX_TEXTS = 30
"""Texts of one call, the given answer among them."""
_PER_RECORD = 8
"""Texts of one record, so that several records are read."""
_NEAR = 0.75
"""A record is about the question when it shares at least this part of the words that the best record shares."""
_RAREST = 5
"""Words that make a message rare."""


def can_read(evidence: Evidence) -> bool:
    """Return whether the trace holds what a reader needs: contents, a question, and an answer to compare with."""
    failure = evidence.failure
    piece = failure.expected or (failure.answer if evidence.wish.form is AnswerForm.MISSING else "")
    return bool(evidence.readable and failure.question and piece and evidence.wish.form is not AnswerForm.ABSTAIN)


def read_case(evidence: Evidence, reader: Reader) -> tuple[Reading | None, Replies]:
    """Ask the reader about one case. There is no reading when no text tells more than the answer."""
    failure = evidence.failure
    refutes = evidence.wish.form is AnswerForm.MISSING
    piece, whole = (failure.answer, False) if refutes else _piece(evidence)
    dated = evidence.wish.form is AnswerForm.TIME and periods(failure.answer)  # dates are compared by the rules
    given = Text(failure.answer) if whole and not dated else None
    chosen = list(islice(_texts(evidence), MAX_TEXTS - 1))
    replies = reader.read(failure.question, piece, [given, *chosen] if given and given.content else chosen)
    answers = {text.content: replies.by_text[text] for text in chosen if text in replies.by_text}
    judged = replies.by_text.get(given) if given else None
    whole_piece = any(reply.answer is Answer.YES for reply in answers.values())
    agrees = refutes and all(reply.answer is not Answer.CONTRADICTS for reply in answers.values())
    if not answers or agrees or (judged and judged.answer is Answer.PARTLY and not whole_piece):
        return None, replies  # no text is known to say more than the given answer
    told = {source.message.content for source in evidence.messages}
    is_right = None if judged is None else judged.answer is Answer.YES
    return Reading(piece, answers, tuple(text for text in answers if text in told), is_right, refutes), replies


def _piece(evidence: Evidence) -> tuple[str, bool]:
    """Return the piece of the answer to ask about, and whether the given answer lacks nothing but this piece.

    Of a list, the piece is an item that the given answer lacks: the item that got least far by its words.
    """
    wish, given = evidence.wish, evidence.failure.answer
    lacking = [need for need in wish.needs if not answered(given, need, wish.form, evidence.compare.lexicon)]
    if len(wish.needs) < 2 or not lacking:
        return wish.expected, True
    reached = {life.need.text: life.furthest for life in evidence.lives if life.need}
    return min(lacking, key=lambda need: reached.get(need.text, 0)).text, len(lacking) == 1


def _texts(evidence: Evidence) -> Iterator[Text]:
    """Yield the texts, each once: the records about the question with their messages, then one message after another,
    those of rare words first: a message in other words than the question is not found by its common words."""
    failure, lexicon = evidence.failure, evidence.compare.lexicon
    wanted = terms(f"{failure.question}\n{failure.expected}\n{failure.answer}")
    groups = _by_record(evidence)
    near = {name: max(lexicon.share(wanted, terms(i.content)) for i in group) for name, group in groups.items()}
    best = max(near.values(), default=0.0)
    seen: set[str] = set()
    for name in sorted(near, key=lambda name: -near[name]):
        if near[name] >= _NEAR * best:
            fresh = (Text(item.content, item.day) for item in groups[name] if item.content not in seen)
            for text in islice(dict.fromkeys(fresh), _PER_RECORD):
                seen.add(text.content)
                yield text

    def rarity(text: Text) -> float:
        rarest = nlargest(_RAREST, map(lexicon.weight, terms(text.content)))
        return lexicon.share(wanted, terms(text.content)) + sum(rarest) / (_RAREST * lexicon.weight(""))

    told = {source.message.content: Text(source.message.content, source.message.day) for source in evidence.messages}
    yield from sorted((text for content, text in told.items() if content and content not in seen), key=rarity)[::-1]


def _by_record(evidence: Evidence) -> dict[str, list[Version | Hit]]:
    """Return the versions and hits of each record, then the messages and the facts made of them."""
    groups: dict[str, list[Version | Hit]] = {
        evidence.record(history[-1]): [version for version in history if version.content]
        for history in evidence.records
    }
    for hit in evidence.results.hits:
        groups.setdefault(hit.record, []).append(hit)
    made: defaultdict[str, list[Version]] = defaultdict(list)
    for source in evidence.messages:
        for name in {evidence.record(version) for version in source.written} & groups.keys():
            groups[name].append(source.message)
            made[name] += source.facts
    return {name: both for name, group in groups.items() if (both := [*group, *made[name]])}
