"""A verdict in the words and numbers that every view of it shows."""

from __future__ import annotations

import re
from dataclasses import dataclass

from memtrace_otel import semconv
from memtrace_otel.graph import EvolutionGraph
from memtrace_otel.model import OperationSpan, Verdict, make_origin
from memtrace_otel.model.printable import one_line, printable
from memtrace_otel.report.times import day_and_clock

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{20,}…?")
NOT_CAPTURED = "(not captured)"


@dataclass(frozen=True, slots=True)
class VerdictSummary:
    """Printable texts of a verdict; '' where there is nothing to say. `confidence` is 0..1."""

    question: str
    expected: str
    given: str
    failure_type: str
    operation: str
    trace_id: str
    span_id: str
    when: str
    process: str
    confidence: float
    reason: str
    advice: str
    replay: str = ""
    others: str = ""
    """Other failure types that may explain the answer, with their confidence."""
    replayed: str = ""
    """Why the replay has this outcome, and the new answer."""


def summarise(verdict: Verdict, graph: EvolutionGraph | None = None) -> VerdictSummary:
    """Return the texts of a verdict; the process of the decisive operation is known with the graph only."""
    failure = verdict.failure
    span = graph.operation(make_origin(verdict.trace_id, verdict.span_id)) if graph is not None else None
    return VerdictSummary(
        question=printable(failure.question).strip() or f"Question not captured (trace {failure.trace_id[:8]})",
        expected=printable(failure.expected).strip() or NOT_CAPTURED,
        given=printable(failure.answer).strip() or NOT_CAPTURED,
        failure_type=one_line(str(verdict.failure_type)) or semconv.FailureType.UNKNOWN,
        operation=one_line(verdict.operation) or (one_line(span.name) if span else ""),
        trace_id=one_line(verdict.trace_id),
        span_id=one_line(verdict.span_id),
        when=day_and_clock(verdict.when) if verdict.when else "",
        process=process_of(span),
        confidence=min(1.0, max(0.0, verdict.confidence)),
        reason=one_line(verdict.reason),
        advice=one_line(verdict.advice),
        replay=one_line(verdict.replay.outcome.replace("_", " ")) if verdict.replay else "",
        others=", ".join(f"{one_line(str(a.failure_type))} {a.confidence:.0%}" for a in verdict.alternatives),
        replayed=_replayed(verdict),
    )


def _replayed(verdict: Verdict) -> str:
    replay = verdict.replay
    if replay is None:
        return ""
    return one_line(f'{replay.reason}: "{replay.answer}"' if replay.answer else replay.reason)


def process_of(span: OperationSpan | None) -> str:
    """Return `service, instance` or `service, pid 4242`, as far as the resource of the span tells."""
    if span is None:
        return ""
    instance, pid = (
        one_line(str(span.resource.get(name, "")), 32) for name in (semconv.SERVICE_INSTANCE_ID, semconv.PROCESS_PID)
    )
    if _UUID.fullmatch(instance) and pid:  # made up by the SDK: nobody knows a process by it
        instance = ""
    which = instance or (f"pid {pid}" if pid else "")
    return ", ".join(part for part in (one_line(span.service), which) if part)
