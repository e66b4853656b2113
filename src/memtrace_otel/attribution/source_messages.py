"""The messages and documents given to memory, each with the facts and records made of the message."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from memtrace_otel.attribution.dates import day_of
from memtrace_otel.attribution.lineage import SOURCE_KINDS, Lineage, Version, day_said, event_day
from memtrace_otel.graph import VersionKey
from memtrace_otel.model import OperationSpan, ref_kind
from memtrace_otel.semconv import READING_KINDS, OpKind, RefKind, Role

_TAKING_KINDS = frozenset({OpKind.EXTRACT, OpKind.SEGMENT})
_DECIDING_KINDS = frozenset({OpKind.DECIDE, OpKind.CONSOLIDATE})
_TAKEN_KINDS = frozenset({RefKind.FACT, RefKind.STATE, RefKind.CHUNK})
_GIVEN = frozenset({Role.MESSAGE, Role.OTHER, Role.EVIDENCE})


@dataclass(frozen=True, slots=True)
class Source:
    """A message and everything extracted from the message in one scope."""

    message: Version
    scope: str
    extraction: OperationSpan
    """The operation that extracted facts of the message: the extraction step, else the ingestion."""
    extracted: bool
    """The trace shows a separate extraction step."""
    facts: tuple[Version, ...]
    written: tuple[Version, ...]

    def only_asks(self, question: str) -> bool:
        """Return whether the message is the question: memory stored the question, which tells no answer."""
        return bool(question) and self.message.content.split() == question.split()


_known: weakref.WeakKeyDictionary[Lineage, list[Source]] = weakref.WeakKeyDictionary()


def sources_of(lineage: Lineage) -> list[Source]:
    """Return every version of a message or document, once per scope, in time order.

    Those that only an answer read come last.
    """
    if lineage not in _known:
        _known[lineage] = _find(lineage)
    return _known[lineage]


def dictated(lineage: Lineage, sources: Iterable[Source]) -> list[Source]:
    """Return the questions to models that called a tool with these messages: the model chose the words to remember.

    The tool's argument is what the model extracted from the question.
    """
    found: list[Source] = []
    for source in sources:
        message = source.message
        text = _unescaped(message.content)
        for call in lineage.in_trace(message.span.trace_id) if text else ():
            called = (o for o in call.outputs if ref_kind(o.ref) == RefKind.COMPLETION)
            if call.kind != OpKind.RESPOND or call.end > message.span.start:
                continue
            if any(text in _unescaped(output.content) for output in called):
                taken = (message, *source.facts)
                found += [
                    Source(asked, source.scope, call, True, taken, source.written) for asked in asked_of(lineage, call)
                ]
    return found


def _unescaped(text: str) -> str:
    return text.replace("\\", "").replace('"', "")


@dataclass(frozen=True, slots=True)
class _Family:
    """An ingestion, or an operation outside of any ingestion, with all operations inside."""

    top: OperationSpan
    spans: tuple[OperationSpan, ...]
    taking: tuple[OperationSpan, ...]
    written: tuple[Version, ...]
    """All record versions: those of a message whose facts cannot be separated."""


def _find(lineage: Lineage) -> list[Source]:
    found: dict[tuple[VersionKey, str], Source] = {}
    families: dict[str, _Family] = {}
    for span in lineage.spans:
        if span.kind in READING_KINDS:
            continue
        for index, (variable, version) in enumerate(lineage.reads(span)):
            key = version, lineage.scope(span)
            if variable.role in _GIVEN and ref_kind(variable.ref) in SOURCE_KINDS and key not in found:
                top = lineage.ingestion(span)
                family = families.get(top.origin) or families.setdefault(top.origin, _family(lineage, top))
                found[key] = _source(lineage, family, span, index)
    found.update(_remembered(lineage))
    stored = {version.ref for version, _ in found}
    for span in lineage.spans:
        for variable, version in lineage.reads(span) if span.kind in (OpKind.RESPOND, OpKind.ASSEMBLE) else []:
            key = version, ""
            if ref_kind(variable.ref) in SOURCE_KINDS and variable.ref not in stored and key not in found:
                content = lineage.content(variable, version)
                message = Version(version, span, content, day_said(content), digest=variable.digest)
                found[key] = Source(message, "", span, False, (), ())
    return list(found.values())


def _remembered(lineage: Lineage) -> dict[tuple[VersionKey, str], Source]:
    """Return the questions to models whose tool calls wrote records: the model chose the words to remember."""
    found: dict[tuple[VersionKey, str], Source] = {}
    for span in lineage.spans:
        records = tuple(v for v in lineage.written_by(span) if ref_kind(v.ref) == RefKind.MEMORY)
        calls = [lineage.span(read.origin) for v, read in lineage.reads(span) if ref_kind(v.ref) == RefKind.COMPLETION]
        for call in calls if records else ():
            for message in asked_of(lineage, call) if call and call.kind == OpKind.RESPOND else ():
                key = message.key, lineage.scope(span)
                written = (*found[key].written, *records) if key in found else records
                found[key] = Source(message, key[1], message.span, True, (), written)
    return found


def asked_of(lineage: Lineage, call: OperationSpan) -> list[Version]:
    """Return the questions that a call of a model read, as messages."""
    day = day_of(call.start)
    reads = [(v, read) for v, read in lineage.reads(call) if v.role == Role.QUERY]
    return [Version(read, call, lineage.content(v, read), day, digest=v.digest) for v, read in reads]


def _family(lineage: Lineage, top: OperationSpan) -> _Family:
    spans = tuple(lineage.subtree(top))
    taking = tuple(span for span in spans if span.kind in _TAKING_KINDS)
    return _Family(top, spans, taking, _written(lineage, spans, ()))


def _source(lineage: Lineage, family: _Family, reader: OperationSpan, index: int) -> Source:
    variable, version = lineage.reads(reader)[index]
    content = lineage.content(variable, version)
    scope = lineage.scope(reader)
    elsewhere = [  # the message waited in a buffer; an equal id in another memory is another message
        span
        for span in lineage.readers_of(version)
        if span.kind in _TAKING_KINDS and (not scope or lineage.scope(span) in (scope, ""))
    ]
    direct = (
        span
        for span in (*family.taking, *elsewhere)
        if any(v.ref == variable.ref and v.role != Role.HISTORY for v in span.inputs)
    )
    extraction = next(direct, family.taking[0] if family.taking else None)
    facts = _facts(lineage, extraction, variable.ref) if extraction else ()
    written = _written(lineage, family.spans, facts) if facts else _fed_by(lineage, version, family.written)
    day = day_said(content) or _day_named(reader, written) or day_of(reader.start)
    message = Version(version, reader, content, day, digest=variable.digest)
    return Source(message, scope, extraction or family.top, extraction is not None, facts, written)


def _day_named(reader: OperationSpan, written: tuple[Version, ...]) -> date | None:
    """Return the day of the message that a record of the same trace names: old conversations are stored late."""
    outputs = (o for v in written if v.span.trace_id == reader.trace_id for o in v.span.outputs)
    return next((day for output in outputs if (day := event_day(output.event_time))), None)


def _facts(lineage: Lineage, span: OperationSpan, ref: str) -> tuple[Version, ...]:
    """Return the facts that the extraction made of this message, as far as its flow separates the messages."""
    index = next((i for i, variable in enumerate(span.inputs) if variable.ref == ref), None)
    fed = {output for source, output in span.flow or () if source == index}
    return tuple(
        lineage.output(span, output)
        for position, output in enumerate(span.outputs)
        if ref_kind(output.ref) in _TAKEN_KINDS and (position in fed or span.flow is None or index is None)
    )


def _fed_by(lineage: Lineage, message: VersionKey, written: tuple[Version, ...]) -> tuple[Version, ...]:
    """Return the record versions without those that the recorded flow of a batch derives from other messages alone."""
    return tuple(version for version in written if _may_hold(lineage, message, version))


def _may_hold(lineage: Lineage, message: VersionKey, version: Version) -> bool:
    """Return whether the write of a version may have used the message. The flow of the write decides if recorded."""
    span = version.span
    places = {index for index, (_, read) in enumerate(lineage.reads(span)) if read == message}
    if span.flow is None or not places:
        return True
    position = next(i for i, output in enumerate(span.outputs) if output.ref == version.ref)
    return any(source in places and output == position for source, output in span.flow)


def _written(lineage: Lineage, family: Iterable[OperationSpan], facts: tuple[Version, ...]) -> tuple[Version, ...]:
    """Return the record versions written inside the ingestion, and by other operations that read its facts."""
    spans = {span.origin: span for span in family}
    decided = _decided(lineage, facts)
    for fact in decided:
        for reader in lineage.readers(fact):
            spans.update((below.origin, below) for below in lineage.subtree(reader))
    own = {fact.key for fact in decided}
    versions = [v for span in spans.values() if _feeds(lineage, span, own) for v in lineage.written_by(span)]
    # A record that says word for word what was extracted here holds the fact, whoever wrote it first.
    versions += [version for fact in facts for version in lineage.same_words(fact)]
    return tuple({version.key: version for version in versions}.values())


def _decided(lineage: Lineage, facts: tuple[Version, ...]) -> list[Version]:
    """Return the facts, and the facts that decisions made of them."""
    found = {fact.key: fact for fact in facts}
    queue = list(facts)
    while queue:
        fact = queue.pop(0)
        for span in lineage.readers(fact):
            if span.kind not in _DECIDING_KINDS:
                continue
            reads = [version for _, version in lineage.reads(span)]
            places = {i for i, v in enumerate(reads) if v == fact.key}
            fed = {output for source, output in span.flow or () if source in places}
            others = {version.ref for version in reads} - {fact.ref}  # kept word for word, it is that fact and no other
            for position, output in enumerate(span.outputs):
                if ref_kind(output.ref) != RefKind.FACT or output.ref in others:
                    continue
                if span.flow is not None and position not in fed:
                    continue
                made = lineage.output(span, output)
                if made.key not in found:
                    found[made.key] = made
                    queue.append(made)
    return list(found.values())


def _feeds(lineage: Lineage, span: OperationSpan, facts: set[VersionKey]) -> bool:
    """Return whether a write uses one of the facts: a write that names facts belongs to these facts only."""
    if not facts:
        return True
    named = {v for _, v in lineage.reads(span) if ref_kind(v.ref) == RefKind.FACT}
    return not named or bool(named & facts)
