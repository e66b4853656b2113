"""What a blamed operation was given and what the operation left: the two texts whose answers a replay compares."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memtrace_otel.attribution.evidence import Evidence
from memtrace_otel.attribution.expectation import AnswerForm
from memtrace_otel.attribution.lineage import Version
from memtrace_otel.attribution.replay.replayer import Write
from memtrace_otel.attribution.text import terms
from memtrace_otel.model import OperationSpan, ref_kind
from memtrace_otel.semconv import FailureType, RefKind

_STAMP = re.compile(r"\[[^\]\n]{1,60}\]\s*")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
MEMORY_TYPES = (FailureType.EXTRACTION, FailureType.UPDATE, FailureType.DELETION)


@dataclass(frozen=True, slots=True)
class Repair:
    """`given`: texts that the operation had; `left`: texts that stayed; `replaced`: memories that the repair takes out
    of the prompt. `corrected`: what each version, by (ref, origin), should say (None: the version was never written).
    `added`: texts to store at `time` (ns)."""

    given: tuple[str, ...]
    left: tuple[str, ...] = ()
    replaced: frozenset[str] = frozenset()
    corrected: tuple[tuple[tuple[str, str], str | None], ...] = ()
    added: tuple[str, ...] = ()
    time: int = 0


def repair(evidence: Evidence, failure_type: str, operation: OperationSpan, variable: str) -> Repair | None:
    """Return how a fault is undone, None where the trace does not tell."""
    if failure_type == FailureType.EXTRACTION:
        return _extraction(evidence, operation, variable)
    if failure_type in (FailureType.UPDATE, FailureType.DELETION):
        return _write(evidence, operation, variable)
    if failure_type == FailureType.RETRIEVAL:
        return _retrieval(evidence, variable)
    return Repair(_before_model(evidence)) if failure_type == FailureType.RESPONSE else None


def best_texts(evidence: Evidence) -> tuple[str, ...]:
    """Return, for each missing piece, the text nearest to the answer that carries the piece."""
    found: list[str] = []
    for life in evidence.missing or evidence.lives:
        texts = [item.content for items in (life.returned, life.surviving, life.versions, life.facts) for item in items]
        texts += [source.message.content for source in life.sources]
        found += [text for text in texts if text][:1]
    return tuple(dict.fromkeys(found))


def _before_model(evidence: Evidence) -> tuple[str, ...]:
    """Return the texts to answer from: the hits that hold the words of the answer, else the messages."""
    lives = evidence.missing or evidence.lives
    is_shown = all(life.need is not None and life.returned for life in lives)
    return best_texts(evidence) if is_shown else told_texts(evidence)


def told_texts(evidence: Evidence) -> tuple[str, ...]:
    """Return the messages that told the missing pieces, else the best texts."""
    lives = evidence.missing or evidence.lives
    told = [life.sources[0].message.content for life in lives if life.sources]
    return tuple(dict.fromkeys(text for text in told if text)) or best_texts(evidence)


def sentences(text: str) -> tuple[str, ...]:
    """Return the sentences of a message, each with the stamp before the message: facts that leave nothing out."""
    stamp = found[0] if (found := _STAMP.match(text)) else ""
    parts = (part.strip() for part in _SENTENCE.split(text.removeprefix(stamp)))
    return tuple(stamp + part for part in parts if part)


def recorded_writes(evidence: Evidence, change: Repair | None = None) -> list[Write]:
    """Return the writes of the searched memory before the question, in time order, as recorded or with a repair.

    A later write that holds the recorded text of its record holds the corrected text in its place.
    """
    corrected = dict(change.corrected) if change else {}
    writes: list[Write] = []
    searched = {*evidence.results.scopes, ""}
    for history in evidence.records:
        if evidence.lineage.scope(history[-1].span) not in searched:
            continue
        before, now = "", ""
        for version in history:
            key = version.ref, version.origin
            text = corrected[key] if key in corrected else _carried(version.content, before, now)
            if text is None or (version.deleted and key in corrected):
                text = now  # the version was never written
            elif version.deleted:
                writes.append(Write(evidence.record(version), "", version.span.start))
                text = ""
            elif text:
                writes.append(Write(evidence.record(version), text, version.span.start))
            before, now = version.content or before, text
    if change:
        writes += [Write(f"added {i}", text, change.time) for i, text in enumerate(change.added)]
    return sorted(writes, key=lambda write: write.time)


def _carried(text: str, before: str, now: str) -> str:
    return text.replace(before, now) if before and now and before in text else text


def _extraction(evidence: Evidence, operation: OperationSpan, variable: str) -> Repair | None:
    own = [s for s in evidence.messages if s.extraction.origin == operation.origin and s.message.content]
    own = [s for s in own if s.message.ref == variable] or own
    if not own:
        return None
    facts = tuple(part for source in own for part in sentences(source.message.content))
    written = [v for source in own for v in source.written if not v.deleted and v.content]
    taken = [v.content for source in own for v in source.facts]
    nearest = {v.content: max(facts, key=lambda part: len(terms(part) & terms(v.content))) for v in written}
    corrected = tuple(((v.ref, v.origin), nearest[v.content]) for v in written)
    return Repair(
        tuple(source.message.content for source in own),
        tuple(dict.fromkeys(filter(None, taken or [v.content for v in written]))),
        _texts_of(evidence, {evidence.record(v) for v in written}),
        corrected,
        tuple(part for part in facts if part not in nearest.values()),
        own[0].message.span.start,
    )


def _write(evidence: Evidence, operation: OperationSpan, variable: str) -> Repair | None:
    below = {span.origin for span in evidence.lineage.subtree(operation)}
    changes = [(old, new) for old, new in _changes(evidence) if new.origin in below]
    changes = [change for change in changes if change[1].ref == variable] or changes
    if ref_kind(variable) == RefKind.FACT:  # the fact was not written
        facts = (fact for source in evidence.messages for fact in source.facts if fact.ref == variable)
        if (fact := next(facts, None)) is None or not fact.content:
            return None
        left = tuple(new.content for _, new in changes if new.content)
        return Repair((fact.content,), left, added=(fact.content,), time=fact.span.start)
    replacing = [(old, new) for old, new in changes if old is not None]
    if replacing and all(old.content for old, _ in replacing):
        return Repair(
            tuple(old.content for old, _ in replacing),
            tuple(new.content for _, new in replacing if new.content),
            _texts_of(evidence, {evidence.record(new) for _, new in replacing}),
            tuple(((new.ref, new.origin), None) for _, new in replacing),
        )
    return _not_renewed(evidence, variable, [new for old, new in changes if old is None and new.content])


def _not_renewed(evidence: Evidence, variable: str, created: Sequence[Version]) -> Repair | None:
    """A new record was stored beside the outdated one: the repair lets the new text replace the old record."""
    kept = _live(evidence, variable)
    if kept is None or not created:
        return None
    removed = tuple(((v.ref, v.origin), "") for history in evidence.records for v in history if v.ref == variable)
    return Repair(
        tuple(v.content for v in created), (), _texts_of(evidence, {evidence.record(kept)}), corrected=removed
    )


def _retrieval(evidence: Evidence, variable: str) -> Repair | None:
    if evidence.wish.form is AnswerForm.ABSTAIN:
        hits = frozenset(hit.content for hit in evidence.results.hits if hit.ref == variable)
        return Repair((), (), hits) if hits else None
    record = _live(evidence, variable)
    if record is None or not record.content:
        return None
    return Repair((record.content,), (), _texts_of(evidence, {evidence.record(record)}))


def _live(evidence: Evidence, ref: str) -> Version | None:
    """Return the last version of a live record."""
    found = (history[-1] for history in evidence.records if history[-1].ref == ref and not history[-1].deleted)
    return next(found, None)


def _changes(evidence: Evidence) -> Iterator[tuple[Version | None, Version]]:
    """Yield every version with the version before, None for the first one."""
    for history in evidence.records:
        for place, version in enumerate(history):
            yield (history[place - 1] if place else None), version


def _texts_of(evidence: Evidence, records: set[str]) -> frozenset[str]:
    """Return every text that the prompt may show of some records."""
    versions = (v.content for history in evidence.records for v in history if evidence.record(v) in records)
    hits = (hit.content for hit in evidence.results.hits if hit.record in records)
    return frozenset(filter(None, (*versions, *hits)))
