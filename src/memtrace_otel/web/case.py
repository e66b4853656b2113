"""One answer as its page shows it: verdict, card, prompt, candidates of the search, and the operations behind it.

The graph holds the traces that the verdict names and those that lead to the answer, at most `_MOST_SPANS` spans: the
page of an answer does not get slower with the size of the memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from memtrace_otel.attribution import find_failures, read_verdict
from memtrace_otel.attribution.lineage import Lineage, lineage_of
from memtrace_otel.attribution.search_results import search_results
from memtrace_otel.attribution.text import terms
from memtrace_otel.graph import EvolutionGraph, OperationKey, build_graph
from memtrace_otel.model import (
    Failure,
    OperationSpan,
    StoredVerdict,
    Verdict,
    is_origin,
    make_origin,
    ref_kind,
)
from memtrace_otel.model.printable import one_line, printable
from memtrace_otel.report.cards import Card, card
from memtrace_otel.report.follow import Follower
from memtrace_otel.report.summary import process_of
from memtrace_otel.report.text import Mark, Paragraph, Run
from memtrace_otel.report.times import day_and_clock
from memtrace_otel.semconv import ATTRIBUTION_SCOPE, OpKind, RefKind, Role
from memtrace_otel.web.store import PageStore

_MOST_SPANS = 20_000
_MOST_OPERATIONS = 15
"""Operations of the slice that a reviewer walks, those that share most words with question and answers."""
_NOT_SHOWN = (OpKind.OTHER, OpKind.JUDGE, "")
_BRIEF = 3, 150
_MOST_LINEAGE = 500
_RELATED_SPANS, _RELATED = 300, 12
"""Newest writes of the memory that are looked through, and how many of them are shown."""
_TEXT = 400
"""Characters of a content in a list."""
_PROMPT = 40_000
_GIVEN = frozenset(Role) - {Role.EVIDENCE, Role.EXPECTED, Role.CANDIDATE}
_WRITING = (OpKind.EXTRACT, OpKind.DECIDE, OpKind.CREATE, OpKind.UPDATE, OpKind.DELETE, OpKind.CONSOLIDATE)


@dataclass(frozen=True, slots=True)
class PathStep:
    """One operation behind an answer: what it read and wrote, as printable texts."""

    origin: str
    name: str
    kind: str
    when: str
    process: str
    read: tuple[str, ...]
    wrote: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One record that a search considered; `fate` says how far it came."""

    rank: int
    score: str
    content: str
    ref: str
    fate: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The verdict or one alternative, to be compared side by side."""

    failure_type: str
    confidence: float
    step: PathStep | None


@dataclass(frozen=True, slots=True)
class Case:
    """Everything about one answer. `failure` has the texts, also of an answer that did not fail; `verdict` and `card`
    are None without a verdict."""

    answer: str
    graph: EvolutionGraph
    failure: Failure
    verdict: Verdict | None
    card: Card | None
    scope: str
    related: tuple[str, ...] = ()
    """Origins of writes of the same memory that share words with question and answers."""

    @property
    def span(self) -> OperationSpan:
        """The answering span."""
        return self.failure.answer_span

    def explanations(self) -> list[Explanation]:
        """Return the verdict and its alternatives."""
        verdict = self.verdict
        if verdict is None:
            return []
        named = [(verdict.failure_type, verdict.trace_id, verdict.span_id, verdict.confidence)]
        named += [
            (other.failure_type, other.trace_id, other.span_id, other.confidence) for other in verdict.alternatives
        ]
        return [
            Explanation(str(kind), min(1.0, max(0.0, sure)), self.step(make_origin(trace, span)) if span else None)
            for kind, trace, span, sure in named
        ]

    def prompt(self) -> list[tuple[str, Paragraph]]:
        """Return (role, text with the hits marked) of what the model was given, in order."""
        lineage = lineage_of(self.graph)
        results = search_results(lineage, self.span)
        hits = {printable(hit.content).strip() for hit in (*results.hits, *results.dropped)} - {""}
        reads = lineage.reads(self.span)
        given = {printable(lineage.content(v, key))[:_PROMPT].strip(): v.role for v, key in reads if v.role in _GIVEN}
        whole = [text for text in given if text and not any(text != other and text in other for other in given)]
        return [(given[text], marked(text, hits)) for text in whole]

    def candidates(self) -> list[tuple[str, list[Candidate]]]:
        """Return (name, candidates) of each search for the answer."""
        lineage = lineage_of(self.graph)
        results = search_results(lineage, self.span)
        reached = {hit.ref for hit in results.hits}
        return [(one_line(span.name), _candidates(lineage, span, reached)) for span in results.searches]

    def step(self, origin: str, *, brief: bool = False) -> PathStep | None:
        """Return an operation of the graph, None when it is not there; with `brief`, little of the texts."""
        span = self.graph.operation(origin)
        if span is None:
            return None
        reads = [read for read in self.graph.inputs(origin) if read.role != Role.PROMPT]
        read = [self.graph.content(one.version) or one_line(one.version.ref) for one in reads]
        wrote = [_written(self.graph, version) for version in self.graph.outputs(origin)]
        return PathStep(
            origin=span.origin,
            name=one_line(span.name),
            kind=span.kind,
            when=day_and_clock(span.start),
            process=process_of(span),
            read=_texts(read, *_BRIEF) if brief else _texts(read),
            wrote=_texts(wrote, *_BRIEF) if brief else _texts(wrote),
        )

    def path(self) -> list[PathStep]:
        """Return the operations behind the answer in time order: its slice, what the verdict names, and `related`."""
        verdict = self.verdict
        named = {self.answer, *self.related}
        if verdict is not None:
            named |= {make_origin(verdict.trace_id, verdict.span_id), *(step.origin for step in verdict.evidence)}
            named |= {make_origin(other.trace_id, other.span_id) for other in verdict.alternatives}
        nodes = [node.origin for node in self.graph.slice_of_answer(self.answer) if isinstance(node, OperationKey)]
        behind = [span for origin in nodes if (span := self.graph.operation(origin)) and span.kind not in _NOT_SHOWN]
        wanted = terms(f"{self.failure.question} {self.failure.expected} {self.failure.answer}")
        behind.sort(key=lambda span: -len(wanted & terms(" ".join(v.content for v in (*span.inputs, *span.outputs)))))
        shown = [*filter(None, map(self.graph.operation, sorted(named))), *behind[:_MOST_OPERATIONS]]
        origins = {span.origin: (span.start, span.origin) for span in shown}
        steps = [self.step(origin, brief=True) for origin in sorted(origins, key=origins.__getitem__)]
        return [step for step in steps if step is not None]


def load_case(store: PageStore, answer: str, stored: StoredVerdict | None, *, related: bool = False) -> Case | None:
    """Return everything about an answer with this verdict, None when the answer is not in the file.

    With `related`, the graph also holds writes of the same memory that share words with the question: a reviewer who
    does not know the verdict needs more to choose from than what the verdict names.
    """
    document: dict[str, Any] = json.loads(stored.document) if stored else {}
    spans = _spans(store, _named(document, answer), store.readers(answer, kinds=(OpKind.JUDGE,)))
    span = next((span for span in spans if span.origin == answer), None)
    if span is None:
        return None
    lineage = [origin[:32] for origin in store.lineage([answer], most=_MOST_LINEAGE)]
    spans = _spans(store, lineage, spans)
    scope = document.get("scope") or next((one.scope for one in reversed(spans) if one.scope), "")
    graph = build_graph(spans, whole=False)
    failure = _failure(graph, span)
    beside: list[OperationSpan] = []
    if related and scope:
        beside = _related(store, scope, span.start, f"{failure.question} {failure.expected} {failure.answer}")
        graph = build_graph(_spans(store, [one.trace_id for one in beside], spans), whole=False)
        failure = _failure(graph, span)
    verdict = _verdict(stored, failure, graph) if stored else None
    shown = card(verdict, graph, Follower(graph)) if verdict else None
    return Case(answer, graph, failure, verdict, shown, scope, tuple(one.origin for one in beside))


def _named(document: dict[str, Any], answer: str) -> list[str]:
    """Return the traces that a stored verdict names."""
    named = [document.get("operation", {}), *document.get("alternatives", ())]
    steps = (str(step).rpartition("|")[2] for step in document.get("evidence", ()))
    found = (answer[:32], *(one.get("trace_id", "") for one in named), *(origin[:32] for origin in steps))
    return [trace_id for trace_id in dict.fromkeys(found) if trace_id]


def _spans(store: PageStore, traces: Iterable[str], known: Sequence[OperationSpan]) -> list[OperationSpan]:
    """Return the spans of traces and the known ones, once each, until there are `_MOST_SPANS`."""
    found = {span.origin: span for span in known}
    for trace_id in dict.fromkeys(traces):
        if len(found) < _MOST_SPANS:
            found |= {span.origin: span for span in store.trace(trace_id)}
    return [span for span in found.values() if span.instrumentation_scope != ATTRIBUTION_SCOPE]


def _related(store: PageStore, scope: str, until: int, texts: str) -> list[OperationSpan]:
    wanted = terms(texts)
    writes = store.newest_spans(scope, _WRITING, until, _RELATED_SPANS)
    shared = {span.origin: len(wanted & terms(" ".join(v.content for v in span.outputs))) for span in writes}
    return sorted((s for s in writes if shared[s.origin]), key=lambda s: -shared[s.origin])[:_RELATED]


def _failure(graph: EvolutionGraph, span: OperationSpan) -> Failure:
    """Return the failure of an answer; of an answer that did not fail, its texts."""
    found = next((one for one in find_failures(graph, span.trace_id) if one.answer_span.origin == span.origin), None)
    if found is not None:
        return found
    lineage = lineage_of(graph)
    reads = [(variable.role, lineage.content(variable, key)) for variable, key in lineage.reads(span)]
    judges = [
        judge for judge in lineage.spans if judge.kind == OpKind.JUDGE and graph.judged(judge.origin) == span.origin
    ]
    wanted = [lineage.content(v, key) for judge in judges for v, key in lineage.reads(judge) if v.role == Role.EXPECTED]
    return Failure(
        span,
        question=next((text for role, text in reads if role == Role.QUERY and text), ""),
        answer=next((v.content for v in span.outputs if ref_kind(v.ref) == RefKind.ANSWER), ""),
        expected=next(filter(None, wanted), ""),
    )


def _verdict(stored: StoredVerdict, failure: Failure, graph: EvolutionGraph) -> Verdict | None:
    """Return a stored verdict with the contents and times that the graph has; None when it cannot be read."""
    try:
        verdict = read_verdict(stored.document, failure)
    except (ValueError, KeyError, TypeError):
        return None
    steps = tuple(
        replace(step, note=graph.content(graph.version(step.ref, step.origin if is_origin(step.origin) else "")))
        for step in verdict.evidence
    )
    operation = graph.operation(make_origin(verdict.trace_id, verdict.span_id))
    return replace(verdict, evidence=steps, when=operation.start if operation else 0)


def _candidates(lineage: Lineage, span: OperationSpan, reached: set[str]) -> list[Candidate]:
    """Return the records that a search considered, by rank, each once."""
    reads = [(v, key) for v, key in lineage.reads(span) if v.role in (Role.HIT, Role.CANDIDATE)]
    returned = {variable.ref for variable, _ in reads if variable.role == Role.HIT}
    found: dict[str, Candidate] = {}
    for variable, key in reads:
        ref = variable.ref
        fate = "in the prompt" if ref in reached else "returned" if ref in returned else "ranked out"
        score = f"{variable.score:.3f}" if variable.score is not None else ""
        content = one_line(lineage.content(variable, key), _TEXT)
        found.setdefault(ref, Candidate(len(found) + 1, score, content, one_line(ref), fate))
    return list(found.values())


def marked(text: str, hits: Iterable[str]) -> Paragraph:
    """Return a text in pieces, those that are hits marked as kept."""
    wanted = sorted(hits, key=len, reverse=True)
    if not wanted:
        return (Run(text),)
    pieces = re.split(f"({'|'.join(map(re.escape, wanted))})", text)
    return tuple(Run(piece, Mark.KEPT if number % 2 else Mark.PLAIN) for number, piece in enumerate(pieces) if piece)


def _written(graph: EvolutionGraph, version: Any) -> str:
    return f"(deleted {one_line(version.ref)})" if graph.is_tombstone(version) else graph.content(version)


def _texts(contents: Iterable[str], most: int = 6, characters: int = _TEXT) -> tuple[str, ...]:
    """Return the first contents, with the number of those left out."""
    texts = list(dict.fromkeys(one_line(content, characters) for content in contents if content))
    return tuple(texts[:most] + [f"and {len(texts) - most} more"] * (len(texts) > most))
