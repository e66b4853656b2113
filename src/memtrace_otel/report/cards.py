"""What the page shows of one verdict, ready for the template."""

from __future__ import annotations

from dataclasses import dataclass, replace

from memtrace_otel.graph import EvolutionGraph
from memtrace_otel.model import Failure, ModelCall, Step, Verdict, is_origin, make_origin
from memtrace_otel.model.printable import one_line, printable
from memtrace_otel.report.evolution import Evolution
from memtrace_otel.report.follow import Follower
from memtrace_otel.report.summary import VerdictSummary, process_of, summarise
from memtrace_otel.report.timeline import Timeline, lay_out
from memtrace_otel.report.times import day_and_clock, machine
from memtrace_otel.report.wording import LOSSES, failure_class, step_name


@dataclass(frozen=True, slots=True)
class EvidenceStep:
    """One step of the evidence in words."""

    name: str
    is_loss: bool
    content: str
    operation: str
    when: str
    process: str
    ref: str


@dataclass(frozen=True, slots=True)
class OtherExplanation:
    """A less likely explanation; `confidence` is 0..1."""

    failure_type: str
    confidence: float
    operation: str
    when: str


@dataclass(frozen=True, slots=True)
class Card:
    """Everything about one verdict. `failure_class` is safe as a class name, `number` counts from 1."""

    number: int
    failure_class: str
    summary: VerdictSummary
    answered: str
    when: str
    variable: str
    method: str
    complete: bool
    calls: tuple[ModelCall, ...]
    replay: str
    new_answer: str
    judgement: str
    explanation: str
    steps: tuple[EvidenceStep, ...]
    alternatives: tuple[OtherExplanation, ...]
    timeline: Timeline
    description: str


def card(verdict: Verdict, graph: EvolutionGraph, follower: Follower, number: int = 1) -> Card:
    """Return the card of a verdict."""
    evolution = follower.follow(verdict)
    return Card(
        number=number,
        failure_class=failure_class(verdict.failure_type),
        summary=summarise(verdict, graph),
        answered=day_and_clock(verdict.failure.answer_span.start),
        when=machine(verdict.when),
        variable=one_line(verdict.variable),
        method=" ".join(part for part in (one_line(verdict.method), one_line(verdict.version)) if part),
        complete=verdict.complete,
        calls=tuple(
            replace(c, tool=one_line(c.tool), arguments=printable(c.arguments), result=printable(c.result))
            for c in verdict.calls
        ),
        replay=_replay(verdict),
        new_answer=printable(verdict.replay.answer).strip() if verdict.replay else "",
        judgement=_judgement(verdict.failure),
        explanation=printable(verdict.failure.explanation).strip(),
        steps=tuple(_step(step, graph) for step in verdict.evidence),
        alternatives=tuple(
            OtherExplanation(
                failure_type=failure_class(other.failure_type),
                confidence=min(1.0, max(0.0, other.confidence)),
                operation=one_line(span.name)
                if (span := graph.operation(make_origin(other.trace_id, other.span_id)))
                else "",
                when=day_and_clock(span.start) if span else "",
            )
            for other in verdict.alternatives
        ),
        timeline=lay_out(evolution),
        description=describe(evolution),
    )


def _replay(verdict: Verdict) -> str:
    """Say what running again showed: `verified: the answer is right with ...; 3 chat calls, 840 tokens`."""
    replay = verdict.replay
    if replay is None:
        return ""
    return f"{one_line(replay.outcome)}: {one_line(replay.reason)}; {replay.calls} chat calls, {replay.tokens} tokens"


def _judgement(failure: Failure) -> str:
    """Say who judged and how: `answer_correctness: wrong, score 0`."""
    score = f"score {failure.score:g}" if failure.score is not None else ""
    result = ", ".join(part for part in (one_line(failure.label), score) if part)
    return ": ".join(part for part in (one_line(failure.evaluation), result) if part)


def _step(step: Step, graph: EvolutionGraph) -> EvidenceStep:
    span = graph.operation(step.origin) if is_origin(step.origin) else None
    return EvidenceStep(
        name=step_name(one_line(step.role)),
        is_loss=step.role in LOSSES,
        content=printable(step.note).strip(),
        operation=one_line(span.name) if span else "",
        when=day_and_clock(span.start) if span else "",
        process=process_of(span),
        ref=one_line(step.ref),
    )


def describe(evolution: Evolution) -> str:
    """Return the picture in words, for those who cannot see it."""
    told = [
        f"{moment.title}{f' ({moment.flag})' if moment.flag else ''}: {one_line(moment.text, 200)}"
        for moment in evolution.moments
    ]
    return "; then ".join(told)
