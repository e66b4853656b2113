"""The known history: a fact is told and remembered, an update spoils the record, a question about it is answered wrong.

Gold evidence is named, so that a path that takes contents away changes nothing.
Its service and its memory are its own: alerts leave out the one, no real lineage meets the other. Each history has a
memory for itself, so that attribution never loads an earlier one.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from memtrace_otel import semconv
from memtrace_otel.model import AttributeValue, OperationSpan, Variable, content_digest, make_ref
from memtrace_otel.semconv import Action, OpKind, RefKind, Role
from memtrace_otel.version import __version__

_MILLISECOND = 1_000_000
_TOLD = "The canary sings at 7:00 in the kitchen."
_SPOILT = "The canary sings in the kitchen."
_QUESTION = "At what time does the canary sing?"
_ANSWER = "I do not know at what time the canary sings."
_EXPECTED = "7:00"


@dataclass(frozen=True, slots=True)
class History:
    """Spans of three traces: told, spoilt, asked. `fault` is the decisive operation, `answer` the failing answer."""

    spans: Sequence[OperationSpan]
    fault: OperationSpan
    answer: OperationSpan
    failure_type: str = semconv.FailureType.UPDATE

    def traces(self) -> dict[str, set[str]]:
        """Return the span ids of each trace."""
        traces: dict[str, set[str]] = {}
        for span in self.spans:
            traces.setdefault(span.trace_id, set()).add(span.span_id)
        return traces


def write_history(now: int) -> History:
    """Return a new history that ended at `now` (nanoseconds since the epoch)."""
    writer = _Writer(now - 20 * _MILLISECOND)
    told, spoilt, asked = (secrets.token_hex(16) for _ in range(3))
    record = make_ref(RefKind.MEMORY, writer.run)
    message, fact = make_ref(RefKind.MESSAGE, writer.run), make_ref(RefKind.FACT, content_digest(_TOLD))
    query, expected = make_ref(RefKind.QUERY, writer.run), make_ref(RefKind.EXPECTED, content_digest(_EXPECTED))

    said = _variable(message, Role.MESSAGE, _TOLD)
    ingest = writer.span(told, None, semconv.UPSERT_MEMORY, OpKind.INGEST, [said])
    derived = _variable(fact, Role.OTHER, _TOLD, action=Action.DERIVE)
    extract = writer.span(told, ingest, "memtrace.extract", OpKind.EXTRACT, [said], [derived])
    source = _variable(fact, Role.OTHER, _TOLD, origin=extract.origin)
    added = _variable(record, Role.OTHER, _TOLD, action=Action.ADD)
    create = writer.span(told, ingest, semconv.CREATE_MEMORY, OpKind.CREATE, [source], [added])

    previous = _variable(record, Role.PREVIOUS, _TOLD, origin=create.origin)
    changed = _variable(record, Role.OTHER, _SPOILT, action=Action.UPDATE)
    fault = writer.span(spoilt, None, semconv.UPDATE_MEMORY, OpKind.UPDATE, [previous], [changed])

    question = _variable(query, Role.QUERY, _QUESTION)
    hit = _variable(record, Role.HIT, _SPOILT, origin=fault.origin, score=0.9)
    root = writer.span(asked, None, "invoke_agent canary", "")
    search = writer.span(asked, root, semconv.SEARCH_MEMORY, OpKind.RETRIEVE, [question, hit])
    seen = _variable(record, Role.CONTEXT, _SPOILT, origin=fault.origin)
    context = _variable(make_ref(RefKind.CONTEXT, search.span_id), Role.CONTEXT, "", origin=search.origin)
    answer_ref = make_ref(RefKind.ANSWER, writer.run)
    given = _variable(answer_ref, Role.ANSWER, _ANSWER, action=Action.DERIVE)
    answer = writer.span(asked, root, semconv.CHAT, OpKind.RESPOND, [question, context, seen], [given])
    judged = _variable(answer_ref, Role.ANSWER, _ANSWER, origin=answer.origin)
    gold = _variable(expected, Role.EXPECTED, _EXPECTED)
    marks: dict[str, AttributeValue] = {semconv.EVALUATION_NAME: "canary", semconv.EVALUATION_LABEL: "incorrect"}
    writer.span(
        asked, root, "memtrace.judge", OpKind.JUDGE, [question, judged, gold], attributes=marks, evidence=(message,)
    )
    return History([_around(span, writer.spans) for span in writer.spans], fault, answer)


def _around(span: OperationSpan, spans: Sequence[OperationSpan]) -> OperationSpan:
    """Have a span end with its children: a backend warns of one that ends before them."""
    ends = [other.end for other in spans if (other.trace_id, other.parent_id) == (span.trace_id, span.span_id)]
    return replace(span, end=max([span.end, *ends]))


def _variable(
    ref: str, role: str, content: str, *, origin: str = "", action: str = "", score: float | None = None
) -> Variable:
    return Variable(
        ref,
        role,
        origin,
        content_digest(content) if content else "",
        content,
        score,
        action,
        len(content.encode()) if action else None,
    )


class _Writer:
    """Writes spans one millisecond after another, into a memory of its own."""

    def __init__(self, start: int) -> None:
        self.run = f"canary-{secrets.token_hex(8)}"
        self.spans: list[OperationSpan] = []
        self._scope = content_digest(self.run)
        self._time = start
        self._resource: dict[str, AttributeValue] = {
            semconv.SERVICE_NAME: semconv.CANARY_SERVICE,
            semconv.SERVICE_VERSION: __version__,
            semconv.SERVICE_INSTANCE_ID: self.run,
        }

    def span(
        self,
        trace_id: str,
        parent: OperationSpan | None,
        name: str,
        kind: str,
        inputs: Sequence[Variable] = (),
        outputs: Sequence[Variable] = (),
        attributes: dict[str, AttributeValue] | None = None,
        evidence: tuple[str, ...] = (),
    ) -> OperationSpan:
        """Add the next span and return it. Spans of inner steps have no standard operation name."""
        self._time += _MILLISECOND
        standard = {semconv.GEN_AI_OPERATION_NAME: name} if name in semconv.KIND_OF_OPERATION else {}
        span = OperationSpan(
            trace_id=trace_id,
            span_id=secrets.token_hex(8),
            parent_id=parent.span_id if parent else "",
            name=name,
            kind=kind,
            system=semconv.CANARY_SYSTEM if kind else "",
            scope=self._scope if kind else "",
            seq=sum(bool(span.kind) for span in self.spans) + 1 if kind else None,
            start=self._time,
            end=self._time + _MILLISECOND // 2,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            evidence=evidence,
            attributes={**standard, **(attributes or {})},
            resource=self._resource,
            instrumentation_scope=semconv.CANARY_SCOPE,
        )
        self.spans.append(span)
        return span
