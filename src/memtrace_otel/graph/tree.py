"""The life of one record or fact as a tree: what was said, made of it, found and answered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from memtrace_otel.graph.evolution import EvolutionGraph
from memtrace_otel.graph.keys import READING_KINDS, RECORD_KINDS, OperationKey, Read, VersionKey
from memtrace_otel.model import OperationSpan, ref_kind
from memtrace_otel.semconv import EVALUATION_LABEL, EVALUATION_SCORE, Action, OpKind, RefKind, Role

PREVIEW = 100
"""Longest content shown on one step, in characters."""

_SOURCES = frozenset({RefKind.MESSAGE, RefKind.DOCUMENT})
_DETOURS = frozenset({RefKind.MEMORY, RefKind.QUERY, RefKind.PROMPT, RefKind.ANSWER, RefKind.CONTEXT})
_BACKGROUND = frozenset({Role.HISTORY, Role.CANDIDATE, Role.PROMPT})
_WRITING = frozenset(OpKind) - READING_KINDS - {OpKind.OTHER}
_MAX_DEPTH = 100


class StepKind(StrEnum):
    """What a step of a path shows."""

    MESSAGE = "message"  # what came from outside
    DERIVED = "derived"  # a fact, a chunk, a reply made of it
    WRITTEN = "written"  # a version of a record
    DELETED = "deleted"
    RETRIEVED = "retrieved"  # a search that saw a version
    ANSWERED = "answered"
    JUDGED = "judged"
    UNKNOWN = "unknown"  # a version whose making was not recorded


@dataclass(frozen=True, slots=True)
class FactStep:
    """One step, with what followed from it. `time` is in ns since the epoch, 0 when unknown.

    `text` is a one-line preview of the content, '' when it was not captured. `version` and `operation` lead back into
    the graph; `operation` is None for what came from outside.
    """

    kind: StepKind
    ref: str
    text: str
    action: str
    time: int
    version: VersionKey
    operation: OperationKey | None
    name: str
    inferred: bool = False
    children: tuple[FactStep, ...] = ()


def fact_path(graph: EvolutionGraph, start: str | VersionKey, *, answer: str = "") -> list[FactStep]:
    """Return the life of a record or fact: one tree per source it came from, in time order.

    `start` is a version, or the origin of an operation: then of the record it wrote, else of the first thing it made.
    Each tree goes from the message over what was made of it to every version, the searches that saw it, the answers
    and their judgements; with `answer`, the origin of an answering span, only the searches for that answer. What only
    served as background (history, candidates) is no source, searches of a writing operation are not shown. A version
    that several sources fed hangs below the first of them; one that no source leads to is a tree of its own. [] when
    `start` is not in the graph.
    """
    version = start if isinstance(start, VersionKey) else _made_by(graph, start)
    if version is None:
        return []
    version = graph.version(*version)
    if version not in graph:
        return []
    life = graph.history(version.ref) if ref_kind(version.ref) in RECORD_KINDS else [version]
    return _Path(graph, life, answer).trees()


def _made_by(graph: EvolutionGraph, origin: str) -> VersionKey | None:
    outputs = graph.outputs(origin)
    return next((v for v in outputs if ref_kind(v.ref) in RECORD_KINDS), outputs[0] if outputs else None)


class _Path:
    """Collects the steps of one life; every version is drawn once."""

    def __init__(self, graph: EvolutionGraph, life: list[VersionKey], answer: str) -> None:
        self._graph = graph
        self._life = life
        self._answer = answer
        self._made_of: dict[VersionKey, list[VersionKey]] = {}
        self._upstream = self._sources()
        self._drawn: set[VersionKey] = set()

    def trees(self) -> list[FactStep]:
        roots = sorted((v for v, sources in self._upstream.items() if not sources), key=self._order)
        found = [step for version in (*roots, *self._life) if (step := self._step(version)) is not None]
        return sorted(found, key=lambda step: self._order(step.version))

    def _sources(self) -> dict[VersionKey, list[VersionKey]]:
        """Versions that lead to the life -> what they were made of; from messages on, not by way of other records."""
        found: dict[VersionKey, list[VersionKey]] = {}
        waiting = list(self._life)
        while waiting:
            version = waiting.pop()
            if version in found:
                continue
            is_source = ref_kind(version.ref) in _SOURCES
            sources = [] if is_source else self._graph.sources(version, without=_BACKGROUND)
            # A new version belongs below what was said, not below the version before it.
            found[version] = [v for v in sources if v.ref != version.ref and ref_kind(v.ref) not in _DETOURS]
            for source in found[version]:
                waiting.append(source)
                self._made_of.setdefault(source, []).append(version)
        return found

    def _step(self, version: VersionKey, depth: int = 0) -> FactStep | None:
        if version in self._drawn or depth > _MAX_DEPTH:
            return None
        self._drawn.add(version)
        span = self._graph.operation(version.origin) if version.origin else None
        made = sorted(self._made_of.get(version, ()), key=self._order)
        below = [step for other in made if (step := self._step(other, depth + 1)) is not None]
        if version in self._life:
            below += self._found(version)
        return FactStep(
            kind=self._kind(version),
            ref=version.ref,
            text=_one_line(self._graph.content(version)),
            action=_action(self._graph, version),
            time=self._order(version)[0],
            version=version,
            operation=self._graph.producer(version),
            name=span.name if span else "",
            children=tuple(sorted(below, key=lambda step: (step.time, step.version))),
        )

    def _kind(self, version: VersionKey) -> StepKind:
        if self._graph.is_tombstone(version):
            return StepKind.DELETED
        if ref_kind(version.ref) in _SOURCES and not version.origin:
            return StepKind.MESSAGE
        if not version.origin or self._graph.operation(version.origin) is None:
            return StepKind.UNKNOWN
        return StepKind.WRITTEN if version in self._life else StepKind.DERIVED

    def _found(self, version: VersionKey) -> list[FactStep]:
        """The searches that found a version, and the answers that read it without one."""
        reads = [read for read in self._graph.readers(version) if self._is_for_question(read)]
        steps = [self._seen(read) for read in reads]
        if self._answer:
            steps = [step for step in steps if any(_operations(step, self._answer))]
        told = {child.operation for step in steps for child in step.children}
        return [step for step in steps if step.operation not in told]

    def _is_for_question(self, read: Read) -> bool:
        span = self._graph.operation(read.operation.origin)
        if span is None or read.role not in (Role.HIT, Role.CONTEXT) or span.kind not in _READ_STEPS:
            return False
        seen: set[str] = set()
        outer = self._graph.enclosing(span.origin)
        while outer is not None and outer.origin not in seen:
            if outer.kind in _WRITING:
                return False
            seen.add(outer.origin)
            outer = self._graph.enclosing(outer.origin)
        return True

    def _seen(self, read: Read) -> FactStep:
        span = self._graph.operation(read.operation.origin)
        assert span is not None
        next_kind = _NEXT.get(span.kind)
        return FactStep(
            kind=_READ_STEPS[span.kind],
            ref=read.version.ref,
            text=_said(self._graph, span),
            action="",
            time=span.start,
            version=read.version,
            operation=read.operation,
            name=span.name,
            inferred=read.inferred,
            children=tuple(self._followed(span, next_kind)) if next_kind else (),
        )

    def _followed(self, span: OperationSpan, kind: OpKind) -> list[FactStep]:
        """The answers given from what a search made, the judgements of what an answer said."""
        found: dict[str, Read] = {}
        for version in self._graph.outputs(span.origin):
            for read in self._graph.readers(version):
                reader = self._graph.operation(read.operation.origin)
                if reader is not None and reader.kind == kind and reader != span:
                    found.setdefault(reader.origin, read)
        return [self._seen(read) for read in found.values()]

    def _order(self, version: VersionKey) -> tuple[int, int, VersionKey]:
        """In time; messages of one call in the order in which they were given."""
        place = 0 if version.origin else min((read.index for read in self._graph.readers(version)), default=0)
        return self._graph.time_of(version), place, version


_READ_STEPS: dict[str, StepKind] = {
    OpKind.RETRIEVE: StepKind.RETRIEVED,
    OpKind.RERANK: StepKind.RETRIEVED,
    OpKind.ASSEMBLE: StepKind.RETRIEVED,
    OpKind.RESPOND: StepKind.ANSWERED,
    OpKind.JUDGE: StepKind.JUDGED,
}

_NEXT: dict[str, OpKind] = {
    OpKind.RETRIEVE: OpKind.RESPOND,
    OpKind.RERANK: OpKind.RESPOND,
    OpKind.ASSEMBLE: OpKind.RESPOND,
    OpKind.RESPOND: OpKind.JUDGE,
}
"""What a step of a question leads to. Never back, so that circles in bad data end."""


def _operations(step: FactStep, origin: str) -> Iterator[bool]:
    """Yield for a step and those below it whether it is of this operation."""
    yield step.operation is not None and step.operation.origin == origin
    for child in step.children:
        yield from _operations(child, origin)


def _action(graph: EvolutionGraph, version: VersionKey) -> str:
    variable = graph.nodes[version]["variable"]
    return variable.action if variable is not None and variable.action != Action.DERIVE else ""


def _said(graph: EvolutionGraph, span: OperationSpan) -> str:
    """What a reading operation asked or answered, or how it judged."""
    if span.kind == OpKind.JUDGE:
        return str(span.attributes.get(EVALUATION_LABEL, span.attributes.get(EVALUATION_SCORE, "")))
    if span.kind == OpKind.RESPOND:
        return next((_one_line(v.content) for v in span.outputs if v.content), "")
    return next((_one_line(graph.content(r.version)) for r in graph.inputs(span.origin) if r.role == Role.QUERY), "")


def _one_line(content: str) -> str:
    text = " ".join(content.split())
    return text if len(text) <= PREVIEW else text[: PREVIEW - 1] + "…"
