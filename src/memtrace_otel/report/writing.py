"""The writing side of a fact: message, extraction, record versions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memtrace_otel.attribution.lineage import Lineage, Version
from memtrace_otel.attribution.source_messages import Source, sources_of
from memtrace_otel.graph import VersionKey
from memtrace_otel.model import OperationSpan, split_ref
from memtrace_otel.model.printable import one_line
from memtrace_otel.report import times
from memtrace_otel.report.evolution import UNRECORDED, Draft, FlowKind, Moment, Stage, content_or_note
from memtrace_otel.report.summary import process_of
from memtrace_otel.report.text import Mark, Paragraph, Run, changes
from memtrace_otel.semconv import RefKind

MAX_VERSIONS = 4
MAX_FACTS = 3

Named = frozenset[tuple[str, str]]
"""(ref, origin) of the variables that the evidence names."""


class Writing:
    """Draws messages, the facts extracted from them, and the record versions."""

    def __init__(self, draft: Draft, lineage: Lineage, named: Named, decisive: str) -> None:
        self._draft = draft
        self._lineage = lineage
        self._named = named
        self._decisive = decisive
        self._named_refs = {ref for ref, _ in named}

    def message(self, source: Source) -> str:
        """Draw a message and, where it is known, its extraction; return the key of the last of the two."""
        message, extraction = source.message, source.extraction
        key = self._draft.add(
            Moment(
                key=f"{message.ref}@{source.scope}",
                stage=Stage.MESSAGE,
                title=_title_of(message),
                paragraphs=(content_or_note(message.content),),
                time=min(message.span.start, extraction.start),
                trace_id=message.span.trace_id,
                origin=message.span.origin,
                process=process_of(message.span),
            )
        )
        if not source.extracted:
            return key
        step = self._draft.add(
            Moment(
                key=extraction.origin,
                stage=Stage.PROCESSING,
                title=one_line(extraction.name),
                paragraphs=self._facts(source),
                time=extraction.start,
                trace_id=extraction.trace_id,
                origin=extraction.origin,
                process=process_of(extraction),
            )
        )
        self._draft.flow(key, step)
        return step

    def record(self, ref: str, until: int, sources: dict[VersionKey, list[Source]]) -> None:
        """Draw the versions of a record that were written before `until`, each with the message it came from; where
        several memories have one of that id, of those that the evidence names."""
        histories = self._lineage.histories(ref, until)
        for history in [h for h in histories if any(map(self._is_named, h))] or histories[:1]:
            self._history(history, sources)

    def _is_named(self, version: Version) -> bool:
        return self._is_decisive(version) or (bool(version.origin) and (version.ref, version.origin) in self._named)

    def _is_decisive(self, version: Version) -> bool:
        return bool(self._decisive) and version.origin == self._decisive

    def _history(self, history: list[Version], sources: dict[VersionKey, list[Source]]) -> None:
        row = len(self._draft.records)
        self._draft.records.append(history[0].ref)
        drawn = ""
        for index, skipped in self._shown(history):
            version = history[index]
            key = self._draft.add(self._version(history, index, row, skipped))
            if drawn:
                self._draft.flow(drawn, key, FlowKind.SUPERSEDES, f"{skipped} more" if skipped else "")
            drawn = key
            found = sources.get(version.key, ())
            source = next((s for s in found if s.message.ref in self._named_refs), next(iter(found), None))
            if source is not None:
                self._draft.flow(self.message(source), key)
            elif self._is_decisive(version):
                self._same_turn(version.span, key)

    def step(self, span: OperationSpan) -> None:
        """Draw an operation between message and record, joined to what it read and to what was written below it."""
        written = {s.origin for s in self._lineage.subtree(span)}
        key = self._draft.add(
            Moment(
                key=span.origin,
                stage=Stage.PROCESSING,
                title=one_line(span.name),
                paragraphs=_outputs(span),
                time=span.start,
                trace_id=span.trace_id,
                origin=span.origin,
                process=process_of(span),
            )
        )
        for other in list(self._draft.moments.values()):
            if other.stage is Stage.RECORD and other.origin in written:
                for flow in [f for f in self._draft.flows.values() if f.target == other.key and f.kind is FlowKind.FED]:
                    del self._draft.flows[flow.source, flow.target]
                    self._draft.flow(flow.source, key)
                self._draft.flow(key, other.key)
        before = [
            m for m in self._draft.moments.values() if m.stage in (Stage.MESSAGE, Stage.PROCESSING) and m.key != key
        ]
        near = [m for m in before if m.trace_id == span.trace_id and m.time <= span.start]
        if near and not any(f.target == key for f in self._draft.flows.values()):
            self._draft.flow(
                max(near, key=lambda m: (m.time, m.stage is Stage.PROCESSING)).key, key, FlowKind.SAME_TURN
            )

    def _facts(self, source: Source) -> tuple[Paragraph, ...]:
        facts = sorted(source.facts, key=lambda f: (f.ref, f.origin) not in self._named)
        if not facts:
            return ((Run("nothing was taken from it", Mark.NOTE),),)
        if not any(fact.content for fact in facts):
            return ((Run(f"{_count(len(facts), 'fact')}, content not captured", Mark.NOTE),),)
        shown: list[Paragraph] = [
            content_or_note(f.content, Mark.KEPT if len(facts) > 1 and (f.ref, f.origin) in self._named else Mark.PLAIN)
            for f in facts[:MAX_FACTS]
        ]
        if len(facts) > MAX_FACTS:
            shown.append((Run(f"and {_count(len(facts) - MAX_FACTS, 'more fact')}", Mark.NOTE),))
        return tuple(shown)

    def _shown(self, history: Sequence[Version]) -> Iterable[tuple[int, int]]:
        """Indexes of the versions to draw, each with the number of versions left out before it."""
        last = len(history) - 1
        wanted = {0, last}
        for index, version in enumerate(history):
            if self._is_decisive(version):
                wanted |= {max(0, index - 1), index}
            elif self._is_named(version):
                wanted.add(index)
        for index in range(last, -1, -1):  # the newest fill what room there is
            if len(wanted) < MAX_VERSIONS:
                wanted.add(index)
        before = -1
        for index in sorted(wanted):
            yield index, index - before - 1
            before = index

    def _version(self, history: Sequence[Version], index: int, row: int, skipped: int) -> Moment:
        version = history[index]
        before = history[index - 1].content if index else ""
        if version.deleted:
            text = (Run(before, Mark.LOST),) if before.strip() else content_or_note("")
        elif before and version.content and before != version.content and not skipped:
            text = changes(before, version.content)
        else:
            text = content_or_note(version.content)
        written = one_line(version.span.name).removesuffix("_memory") if version.recorded else "writing not recorded"
        return Moment(
            key=f"{version.ref}@{version.origin or version.key.scope}",
            stage=Stage.RECORD,
            title=f"v{index + 1} · {written}",
            paragraphs=(text,),
            time=version.span.start,
            trace_id=version.span.trace_id or UNRECORDED,
            origin=version.origin,
            process=process_of(version.span),
            row=row,
            badge="deleted" if version.deleted else "superseded" if index < len(history) - 1 else "",
            superseded=index < len(history) - 1,
            tombstone=version.deleted,
            ghost=not version.recorded,
        )

    def _same_turn(self, writer: OperationSpan, key: str) -> None:
        """A write of the application itself: show what was said in the turn that it belongs to."""
        beside = [s for s in sources_of(self._lineage) if s.message.span.trace_id == writer.trace_id]
        if beside:
            self._draft.flow(self.message(beside[0]), key, FlowKind.SAME_TURN)


def _title_of(message: Version) -> str:
    """Name a message; its own date is shown when it was recorded on another day."""
    kind = one_line(split_ref(message.ref)[0]) or "message"
    day = times.date_of(message.day)
    if not day or times.day(message.span.start).endswith(day):
        return kind
    return f"said {day}" if kind == RefKind.MESSAGE else f"{kind}, {day}"


def _outputs(span: OperationSpan) -> tuple[Paragraph, ...]:
    made: list[Paragraph] = [
        (Run(one_line(v.action), Mark.NOTE), Run(v.content or one_line(v.ref, 40))) for v in span.outputs[:MAX_FACTS]
    ]
    if len(span.outputs) > MAX_FACTS:
        made.append((Run(f"and {_count(len(span.outputs) - MAX_FACTS, 'more result')}", Mark.NOTE),))
    return tuple(made) or ((Run("wrote nothing", Mark.NOTE),),)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
