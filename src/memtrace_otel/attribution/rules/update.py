"""Rule `update`: a record held the answer and was overwritten, or an extracted fact never updated the record."""

from __future__ import annotations

from memtrace_otel.attribution.evidence import Evidence, Life
from memtrace_otel.attribution.lineage import Loss, Version
from memtrace_otel.attribution.rules.finding import (
    POSSIBLE,
    WEAK,
    WHOLE_JSON,
    Finding,
    excerpt,
    leaves_out,
    path,
    quoted,
    strength_of,
    wanted,
)
from memtrace_otel.attribution.rules.stale import stale_record
from memtrace_otel.attribution.source_messages import Source
from memtrace_otel.attribution.text import terms
from memtrace_otel.model import OperationSpan, Step, ref_kind
from memtrace_otel.semconv import FailureType, Incomplete, OpKind, RefKind


def update(evidence: Evidence) -> Finding | None:
    """Blame the write that degraded, contradicted or failed to renew what memory held."""
    for life in evidence.missing:
        reasons = (_overwritten, _condensed, _summed_up, _not_written, _not_renewed)
        finding = next((found for reason in reasons if (found := reason(evidence, life)) is not None), None)
        if finding is not None:
            return finding
    return None


def _overwritten(evidence: Evidence, life: Life) -> Finding | None:
    if life.overwritten is not None:
        return _perhaps_overwritten(life, *life.overwritten)
    loss = evidence.last_loss(life)
    if loss is None or loss.after.deleted:
        return None
    held = "prompt" if ref_kind(loss.before.ref) in (RefKind.PROMPT, RefKind.QUERY) else "record"
    reason = f"The {held} held {wanted(life)}"
    unknown = not loss.after.content  # it may have kept the piece
    if loss.before.content:
        by = "something that the trace does not show" if unknown else quoted(loss.after.content)
        reason += f": {excerpt(loss.before.content, life)}; an update replaced it by {by}"
    step = Step("overwritten", loss.after.ref, loss.after.origin, loss.after.content)
    strength = strength_of(life) if life.need and not unknown else WEAK
    if newer := _told_later(evidence, life, loss.after):
        reason += f", which {quoted(newer.message.content)} told: the expected answer may be outdated"
        strength = min(strength, POSSIBLE)
    return Finding(
        failure_type=FailureType.UPDATE,
        operation=loss.after.span,
        variable=loss.after.ref,
        strength=strength,
        reason=f"{reason}.",
        advice=f"Let the update keep {leaves_out(life)} of the text that it replaces.",
        steps=path(life, step, record=loss.before),
    )


def _told_later(evidence: Evidence, life: Life, after: Version) -> Source | None:
    """Return the message, told after the expected answer, that the update stored and the given answer repeats."""
    if not evidence.gives(after.content, after.day):
        return None
    last = max((source.message.span.start for source in life.sources), default=after.span.start)
    later = (s for s in evidence.messages if last < s.message.span.start <= after.span.start)
    return next((s for s in later if evidence.gives(s.message.content, s.message.day)), None)


def _perhaps_overwritten(life: Life, before: Version, after: Version) -> Finding:
    """Without contents: the update came from other messages, and whether the evidence was kept is unknown."""
    updated = "was since updated from other messages; no contents tell what it kept"
    reason = f"The record written from {wanted(life)} {updated}."
    step = Step("overwritten", after.ref, after.origin)
    return Finding(
        failure_type=FailureType.UPDATE,
        operation=after.span,
        variable=after.ref,
        strength=strength_of(life),
        reason=reason,
        advice="Capture contents, so that the trace tells what the update kept.",
        steps=path(life, step, record=before),
    )


def summary_of(evidence: Evidence, loss: Loss) -> Version | None:
    """Return the record that a message of a conversation was summarised into before the message was deleted, None
    without such a record.

    A write that reads one message may be a reply: a summary is of a consolidation, or of two or more deleted messages.
    It repeats some of their words.
    """
    if not loss.after.deleted or ref_kind(loss.before.ref) != RefKind.STATE:
        return None
    lineage, trace = evidence.lineage, loss.after.span.trace_id
    deleted = {
        history[-1].ref: terms(history[-2].content)
        for history in evidence.records
        if len(history) > 1 and history[-1].deleted and history[-1].span.trace_id == trace
    }
    for span in reversed(lineage.readers(loss.before)):
        read = {variable.ref for variable in span.inputs} & deleted.keys()
        if span.start > loss.after.span.start or (span.kind != OpKind.CONSOLIDATE and len(read) < 2):
            continue
        held = frozenset[str]().union(*(deleted[ref] for ref in read))
        made = [v for v in lineage.written_by(span) if not v.deleted and v.ref not in read and v.content]
        summary = max(made, key=lambda version: len(terms(version.content) & held), default=None)
        if summary and (span.kind == OpKind.CONSOLIDATE or terms(summary.content) & held):
            return summary
    return None


def _condensed(evidence: Evidence, life: Life) -> Finding | None:
    """A summary replaced the messages of a conversation, and left out the piece."""
    loss = evidence.last_loss(life)
    if loss is None or (summary := summary_of(evidence, loss)) is None:
        return None
    reason = f"The summary {quoted(summary.content)} replaced {excerpt(loss.before.content, life)}"
    return _left_out(life, summary, loss.before, reason)


def _summed_up(evidence: Evidence, life: Life) -> Finding | None:
    """The prompt holds a summary in place of the record, and the summary left out the piece."""
    dropped = {hit.record for hit in evidence.results.dropped}
    for record in life.surviving if not life.returned else ():
        summary = _summary(evidence, record) if evidence.record(record) in dropped else None
        if summary is not None:
            reason = (
                f"The prompt holds the summary {quoted(summary.content)} in place of {excerpt(record.content, life)}"
            )
            return _left_out(life, summary, record, reason)
    return None


def _left_out(life: Life, summary: Version, record: Version, reason: str) -> Finding:
    return Finding(
        failure_type=FailureType.UPDATE,
        operation=summary.span,
        variable=summary.ref,
        strength=strength_of(life),
        reason=f"{reason}; the summary does not hold {wanted(life)}.",
        advice=f"Let the prompt of the summary keep {leaves_out(life)}.",
        steps=path(life, Step("summarised", summary.ref, summary.origin, summary.content), record=record),
    )


def _summary(evidence: Evidence, record: Version) -> Version | None:
    """Return the newest reply of a model that read the record and that the prompt quotes. A reply that is itself a
    message of the conversation is no summary."""
    lineage, answer = evidence.lineage, evidence.answer_span
    given = _folded(" ".join(lineage.content(v, read) for v, read in lineage.reads(answer)))
    messages = {_folded(version.content) for history in evidence.records for version in history}
    for span in reversed(lineage.readers(record)):
        for output in span.outputs if span.kind == OpKind.RESPOND and span.origin != answer.origin else ():
            text = _folded(output.content)
            if text and text in given and text not in messages:
                return lineage.output(span, output)
    return None


def _folded(text: str) -> str:
    return " ".join(text.split())


def _not_written(evidence: Evidence, life: Life) -> Finding | None:
    """A fact was extracted, but no record version carried the fact when the question came."""
    if life.versions or not life.facts:
        return None
    fact = life.facts[0]
    operation, written = _written_from(evidence, fact)
    outcome = f"the write kept only {quoted(written)}" if written else "no record was written or renewed from it"
    advice = f"Check why {operation.name} did not store the fact: its decision, an error, or its order."
    if Incomplete.UNPARSED in operation.incomplete:
        outcome, advice = f"the reply of the model that decides could not be parsed, and {outcome}", WHOLE_JSON
    elif Incomplete.UNKNOWN_RECORD in operation.incomplete:
        outcome = f"the decision names a record that does not exist, and {outcome}"
    elif operation.start > evidence.results.asked_at:
        outcome = "memory was searched before it was written"
    in_time = any(source.message.span.start <= evidence.results.asked_at for source in life.sources)
    # No write can store in time what was told after the search.
    strength = strength_of(life) if life.need and in_time else WEAK
    reason = (
        f"The fact {quoted(fact.content)} was extracted, but {outcome}."
        if fact.content
        else f"A fact was extracted, but {outcome}."
    )
    step = Step("not_written", fact.ref, operation.origin)
    return Finding(
        failure_type=FailureType.UPDATE,
        operation=operation,
        variable=fact.ref,
        strength=strength,
        reason=reason,
        advice=advice,
        steps=path(life, step),
    )


def _written_from(evidence: Evidence, fact: Version) -> tuple[OperationSpan, str]:
    """Return the operation that should have written the fact, and what it wrote instead."""
    readers = evidence.lineage.readers(fact)
    for source in evidence.messages:
        if fact in source.facts:
            written = next((v for v in source.written if v.span in readers and not v.deleted), None)
            if written is not None:
                return written.span, written.content
    decisions = [s for s in readers if s.kind in (OpKind.DECIDE, OpKind.CONSOLIDATE, OpKind.UPDATE, OpKind.CREATE)]
    if decisions:
        return decisions[0], ""
    above = evidence.lineage.ancestors(fact.span)
    beside = [s for s in evidence.lineage.subtree(above[-1]) if s.kind == OpKind.DECIDE] if above else []
    return (beside or above[:1] or [fact.span])[0], ""


def _not_renewed(evidence: Evidence, life: Life) -> Finding | None:
    """The new value was stored beside the old value; the search returned only the old value, and the answer took it."""
    if life.returned or not life.surviving:
        return None
    stale = stale_record(evidence, life)
    if stale is None:
        return None
    kept, new = stale
    decision = next((a for a in evidence.lineage.ancestors(new.span) if a.kind == OpKind.DECIDE), new.span)
    beside = f"{quoted(new.content)} was stored beside {quoted(kept.content)} instead of replacing it"
    reason = f"{beside}, and the answer took the old value."
    held = Step("record", kept.ref, kept.origin, kept.content)
    step = Step("not_renewed", kept.ref, decision.origin, kept.content)
    return Finding(
        failure_type=FailureType.UPDATE,
        operation=decision,
        variable=kept.ref,
        strength=strength_of(life),
        reason=reason,
        advice="Let the write of a new value replace the old record, or give the model the dates of both.",
        steps=path(life, held, step, record=new),
    )
