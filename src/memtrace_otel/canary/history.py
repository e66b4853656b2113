"""The known history: a record is created, an update removes the fact, and an answer from the record fails.

The evaluation names its gold evidence, so a path that removes contents changes no verdict. The service is
`memtrace-canary`, which alerts leave out, and each history has a memory scope of its own.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

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
    """The spans of three traces. `fault` is the decisive operation, `answer` the failing answer."""

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
    """Return a new history that ended at `now` (ns since the epoch)."""
    run = f"canary-{secrets.token_hex(8)}"
    scope = content_digest(run)
    resource: dict[str, AttributeValue] = {
        semconv.SERVICE_NAME: semconv.CANARY_SERVICE,
        semconv.SERVICE_VERSION: __version__,
        semconv.SERVICE_INSTANCE_ID: run,
    }
    creating, updating, asking = (secrets.token_hex(16) for _ in range(3))
    spans: list[OperationSpan] = []

    def add(
        trace_id: str,
        name: str,
        kind: str,
        inputs: Sequence[Variable] = (),
        outputs: Sequence[Variable] = (),
        *,
        parent: OperationSpan | None = None,
        lasts: int = 0,
        attributes: dict[str, AttributeValue] | None = None,
        evidence: tuple[str, ...] = (),
    ) -> OperationSpan:
        """Add the next span, 1 ms after the last; `lasts`: number of spans inside."""
        start = now + (len(spans) - 20) * _MILLISECOND
        standard = {semconv.GEN_AI_OPERATION_NAME: name} if name in semconv.KIND_OF_OPERATION else {}
        span = OperationSpan(
            trace_id=trace_id,
            span_id=secrets.token_hex(8),
            parent_id=parent.span_id if parent else "",
            name=name,
            kind=kind,
            system=semconv.CANARY_SYSTEM if kind else "",
            scope=scope if kind else "",
            seq=sum(bool(other.kind) for other in spans) + 1 if kind else None,
            start=start,
            end=start + lasts * _MILLISECOND + _MILLISECOND // 2,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            evidence=evidence,
            attributes={**standard, **(attributes or {})},
            resource=resource,
            instrumentation_scope=semconv.CANARY_SCOPE,
        )
        spans.append(span)
        return span

    record, message = make_ref(RefKind.MEMORY, run), make_ref(RefKind.MESSAGE, run)
    fact, answer_ref = make_ref(RefKind.FACT, content_digest(_TOLD)), make_ref(RefKind.ANSWER, run)

    given = _variable(message, Role.MESSAGE, _TOLD)
    ingest = add(creating, semconv.UPSERT_MEMORY, OpKind.INGEST, [given], lasts=2)
    derived = _variable(fact, Role.OTHER, _TOLD, action=Action.DERIVE)
    extract = add(creating, "memtrace.extract", OpKind.EXTRACT, [given], [derived], parent=ingest)
    source = _variable(fact, Role.OTHER, _TOLD, origin=extract.origin)
    added = _variable(record, Role.OTHER, _TOLD, action=Action.ADD)
    create = add(creating, semconv.CREATE_MEMORY, OpKind.CREATE, [source], [added], parent=ingest)

    previous = _variable(record, Role.PREVIOUS, _TOLD, origin=create.origin)
    changed = _variable(record, Role.OTHER, _SPOILT, action=Action.UPDATE)
    fault = add(updating, semconv.UPDATE_MEMORY, OpKind.UPDATE, [previous], [changed])

    question = _variable(make_ref(RefKind.QUERY, run), Role.QUERY, _QUESTION)
    hit = _variable(record, Role.HIT, _SPOILT, origin=fault.origin, score=0.9)
    root = add(asking, "invoke_agent canary", "", lasts=3)
    search = add(asking, semconv.SEARCH_MEMORY, OpKind.RETRIEVE, [question, hit], parent=root)
    context = _variable(make_ref(RefKind.CONTEXT, search.span_id), Role.CONTEXT, "", origin=search.origin)
    seen = _variable(record, Role.CONTEXT, _SPOILT, origin=fault.origin)
    said = _variable(answer_ref, Role.ANSWER, _ANSWER, action=Action.DERIVE)
    answer = add(asking, semconv.CHAT, OpKind.RESPOND, [question, context, seen], [said], parent=root)
    judged = _variable(answer_ref, Role.ANSWER, _ANSWER, origin=answer.origin)
    gold = _variable(make_ref(RefKind.EXPECTED, content_digest(_EXPECTED)), Role.EXPECTED, _EXPECTED)
    label: dict[str, AttributeValue] = {semconv.EVALUATION_NAME: "canary", semconv.EVALUATION_LABEL: "incorrect"}
    inputs = [question, judged, gold]
    add(asking, "memtrace.judge", OpKind.JUDGE, inputs, parent=root, attributes=label, evidence=(message,))
    return History(spans, fault, answer)


def _variable(
    ref: str, role: str, content: str, *, origin: str = "", action: str = "", score: float | None = None
) -> Variable:
    digest = content_digest(content) if content else ""
    return Variable(ref, role, origin, digest, content, score, action, len(content.encode()) if action else None)
