"""Rule `extraction`: a message held the answer, and nothing extracted from the message does."""

from __future__ import annotations

from memtrace_otel.attribution.comparison import turned_round
from memtrace_otel.attribution.evidence import Evidence, Life
from memtrace_otel.attribution.expectation import Need
from memtrace_otel.attribution.lineage import Version
from memtrace_otel.attribution.rules.finding import (
    LIKELY,
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
from memtrace_otel.attribution.source_messages import Source
from memtrace_otel.model import Step, ref_kind
from memtrace_otel.semconv import FailureType, Incomplete, OpKind, RefKind
from memtrace_otel.settings import REDACT_KEYS, REDACT_PATTERNS


def extraction(evidence: Evidence) -> Finding | None:
    """Blame the extraction of the source turn when a needed piece was told and never became a fact or a record."""
    if evidence.missing and (hidden := evidence.redacted) is not None:
        return _redacted(hidden)
    for life in evidence.missing:
        if life.furthest > 1:
            continue
        source = _source(evidence, life)
        if source is not None:
            return _finding(evidence, life, source)
        if life.need and not life.said and not evidence.whole and not evidence.wish.inference:
            reason = (
                f"{_capital(wanted(life))} is in no stored record that the trace knows; "
                "the turn that should have brought it is not recorded."
            )
            return Finding(
                failure_type=FailureType.EXTRACTION, operation=None, variable="", strength=WEAK, reason=reason,
                advice="Record the turns that write memory, or check whether the fact was ever told.",
            )  # fmt: skip
    return None


def _redacted(source: Source) -> Finding:
    """A part of the message is hidden by redaction: whether the part was the answer cannot be told."""
    message = source.message
    return Finding(
        failure_type=FailureType.EXTRACTION,
        operation=source.extraction,
        variable=message.ref,
        strength=WEAK,
        reason=f"{quoted(message.content)} is nearest to the question and redacted; no record repeats that part.",
        advice=f"Compare the message itself with its records, or change {REDACT_KEYS.env} or {REDACT_PATTERNS.env}.",
        steps=(Step("message", message.ref, message.span.origin, message.content),),
        proven=False,
    )


def _finding(evidence: Evidence, life: Life, source: Source) -> Finding:
    message = source.message
    versions = [v for v in (*source.facts, *source.written) if v.content and not v.deleted]
    taken = "; ".join(dict.fromkeys(v.content for v in versions))
    kept = f"took from it only {quoted(taken)}" if taken else "took nothing from it"
    held = (v.content for v in versions if life.need and _states(evidence, life.need, v))
    of_another = next(held, "") if life.said else ""  # else the piece itself would have been taken
    if of_another and life.need and turned_round(of_another, life.need, (source,)):
        kept, of_another = f"noted the opposite: {quoted(of_another)}", ""
    elif of_another:
        kept = f"noted it of another person than the question asks about: {quoted(of_another)}"
    ask = "description of the tool ask for" if source.extraction.kind == OpKind.RESPOND else "extraction prompt keep"
    advice = f"Let the {ask} {'who each fact is about' if of_another else leaves_out(life)}."
    if Incomplete.UNPARSED in source.extraction.incomplete:
        kept = f"could not parse the reply of its model{_raw(evidence, life, source)} and {kept}"
        advice = WHOLE_JSON
    told = (
        f"{excerpt(message.content, life)} told {wanted(life)}"
        if message.content and life.said
        else f"A message without recorded words is where {wanted(life)} was told"
    )
    certain = life.said and source.extracted and not of_another
    strength = strength_of(life) if certain else min(strength_of(life), LIKELY)
    if life.need and life.need.periods and not _states(evidence, life.need, message):
        strength = WEAK  # any message of that day fits
    loss = Step("lost", message.ref, source.extraction.origin)
    return Finding(
        failure_type=FailureType.EXTRACTION,
        operation=source.extraction,
        variable=message.ref,
        strength=strength,
        reason=f"{told}, but the system {kept}.",
        advice=advice,
        steps=path(life, loss),
    )


def _states(evidence: Evidence, need: Need, told: Version) -> bool:
    """Return whether a text itself carries the need: the day of the text tells no time."""
    return evidence.compare.supports(told.content, need, told.day, undated=False)


def _raw(evidence: Evidence, life: Life, source: Source) -> str:
    """Quote the piece from the raw reply of the extracting model, '' when the reply does not hold the piece."""
    outputs = (output for span in evidence.lineage.subtree(source.extraction) for output in span.outputs)
    replies = (output.content for output in outputs if ref_kind(output.ref) == RefKind.COMPLETION)
    held = (text for text in replies if life.need and evidence.compare.supports(text, life.need, None))
    return next((f" ({excerpt(text, life)})" for text in held), "")


def _source(evidence: Evidence, life: Life) -> Source | None:
    """Return the source closest to the question; of equal sources the one whose scope was searched first."""
    order = {scope: i for i, scope in enumerate(evidence.results.scopes)}
    return max(
        life.sources,
        key=lambda s: (evidence.about_source(s), -order.get(s.scope, len(order)), -s.message.span.start),
        default=None,
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
