"""Compare the verdicts with the planted faults: for the last column of the table, and for tests.

Verdicts and faults are joined by the text of the question alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from memtrace_otel.demo.script import load_faults, load_script
from memtrace_otel.model import OperationSpan, Verdict, make_ref
from memtrace_otel.semconv import FailureType, OpKind, RefKind
from memtrace_otel.sources import TraceSource

_WRITES = {FailureType.UPDATE: OpKind.UPDATE, FailureType.DELETION: OpKind.DELETE}
_OF_THE_QUESTION: dict[FailureType, set[str]] = {
    FailureType.RETRIEVAL: {OpKind.RETRIEVE},
    FailureType.RESPONSE: {OpKind.RESPOND},
    FailureType.JUDGE: {OpKind.JUDGE},
    FailureType.ANNOTATION: {
        OpKind.JUDGE,
        OpKind.RESPOND,
    },  # no operation is at fault: the two that met the gold answer
}


@dataclass(frozen=True, slots=True)
class Planted:
    """One planted fault: its failure type, the question it spoils, what was done and, for a write, when.

    `time` (ns since the epoch) is when the model gave the planted reply, 0 when the fault lies in the question's own
    trace; `memory` is the id of the record that the reply spoiled, '' for none.
    """

    failure_type: str
    question: str
    note: str
    time: int = 0
    memory: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A question's verdict beside the fault planted for it; either may be missing."""

    question: str
    verdict: Verdict | None
    planted: Planted | None
    type_matches: bool = False
    operation_matches: bool = False

    @property
    def matches(self) -> bool:
        """The verdict names the right type and the right operation."""
        return self.type_matches and self.operation_matches


def read_planted(journal: Path) -> list[Planted]:
    """Return the planted faults in the order of the questions, with what the model server's journal tells of them."""
    entries = [json.loads(line) for line in journal.read_text("utf-8").splitlines()] if journal.exists() else []
    replies = {entry["turn"]: entry for entry in entries}
    faults = load_faults()
    asked = {question.id: question.question for question in load_script(faults).questions}
    planted = {
        fault.question: Planted(
            failure_type=fault.type,
            question=asked[fault.question],
            note=fault.note,
            time=replies.get(fault.turn, {}).get("time", 0),
            memory=replies.get(fault.turn, {}).get("memory", ""),
        )
        for fault in faults
    }
    return [planted[id] for id in asked if id in planted]


def compare(verdicts: Iterable[Verdict], planted: Sequence[Planted], source: TraceSource) -> list[Comparison]:
    """Return one row per planted fault, in order, then one per verdict on a question that nothing was planted for."""
    by_question = {_folded(verdict.failure.question): verdict for verdict in verdicts}
    rows = list[Comparison]()
    for fault in planted:
        verdict = by_question.pop(_folded(fault.question), None)
        if verdict is None:
            rows.append(Comparison(fault.question, None, fault))
            continue
        rows.append(
            Comparison(
                question=fault.question,
                verdict=verdict,
                planted=fault,
                type_matches=verdict.failure_type == fault.failure_type,
                operation_matches=_names_operation(verdict, fault, source),
            )
        )
    return rows + [Comparison(verdict.failure.question, verdict, None) for verdict in by_question.values()]


def _names_operation(verdict: Verdict, fault: Planted, source: TraceSource) -> bool:
    """Tell whether the decisive operation of `verdict` is the one in which `fault` was planted."""
    if not verdict.span_id:
        return fault.failure_type in (FailureType.ANNOTATION, FailureType.JUDGE)
    blamed = next((span for span in source.trace(verdict.trace_id) if span.span_id == verdict.span_id), None)
    if blamed is None:
        return False
    type = FailureType(fault.failure_type)
    if type in _OF_THE_QUESTION:
        return blamed.kind in _OF_THE_QUESTION[type] and blamed.trace_id == verdict.failure.trace_id
    if type == FailureType.EXTRACTION:
        return blamed.kind in (OpKind.EXTRACT, OpKind.INGEST) and blamed.start <= fault.time <= blamed.end
    # The planted reply is followed by the write it asked for; later writes of the record are innocent.
    kind, ref = _WRITES[type], make_ref(RefKind.MEMORY, fault.memory)
    first = next((span for span in source.spans(kinds=[kind], since=fault.time) if _writes(span, ref)), None)
    return first is not None and blamed.trace_id == first.trace_id and blamed.kind == kind and _writes(blamed, ref)


def _writes(span: OperationSpan, ref: str) -> bool:
    return any(variable.ref == ref for variable in span.outputs)


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())
