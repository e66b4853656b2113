"""From spans to operations: duplicates dropped, continuation parts joined, scopes inherited, judged answers found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from memtrace_otel import semconv
from memtrace_otel.graph.hierarchy import Hierarchy
from memtrace_otel.graph.judgements import find_judged
from memtrace_otel.model import OperationSpan, make_origin
from memtrace_otel.semconv import Incomplete

_EVALUATES = (semconv.EVALUATION_NAME, semconv.EVALUATION_LABEL, semconv.EVALUATION_SCORE)


def time_order(span: OperationSpan) -> tuple[int, int, str]:
    """Sort key: by start; sequence number and identity break ties."""
    return span.start, span.seq or 0, span.origin


@dataclass(frozen=True, slots=True)
class Assembly:
    """Operations by origin, in time order, and the relations between them."""

    operations: dict[str, OperationSpan]
    hierarchy: Hierarchy
    reasons: defaultdict[str, set[str]]
    """Origin of an operation -> why the operation is incomplete, as the spans of its trace show."""
    scopes: dict[str, str]
    """Origin of every span -> its own scope, else that of the nearest enclosing span with a scope, else ''."""
    judged: dict[str, str]
    """Origin of an operation with an evaluation -> origin of the answering operation that the evaluation is about."""
    supplied: frozenset[str]
    """Origins of the judges that name no answer: their last input, the answer, was added."""
    gaps: defaultdict[str, set[tuple[str, str]]] = field(
        default_factory=lambda: defaultdict[str, set[tuple[str, str]]](set)
    )
    """Ref -> (origin of an operation, reason): gaps in the lineage of a variable, found while the graph is built."""

    def main(self, origin: str) -> str:
        """Return the origin of the operation that a span belongs to."""
        return self.hierarchy.main(origin)


def assemble(spans: Iterable[OperationSpan]) -> Assembly:
    """Join spans, in any order, repeated or partly missing, to operations.

    Spans that carry neither a memory operation nor an evaluation only take their place in the hierarchy. The spans of
    verdicts are not part of the graph.
    """
    reasons: defaultdict[str, set[str]] = defaultdict(set)
    known = _distinct(spans, reasons)
    parts: dict[str, list[OperationSpan]] = defaultdict(list)
    for span in known.values():
        if _is_part(span):
            parts[_main_of(span, known)].append(span)
    found = [span for span in known.values() if not _is_part(span) and operates(span)]
    for main, continuations in parts.items():
        if main not in known or _is_part(known[main]):  # the latter only in a circle of parts
            found.append(_stand_in(main, continuations))
            reasons[main].add(Incomplete.LOST_PARTS)
        elif not operates(known[main]):
            found.append(known[main])
    operations: dict[str, OperationSpan] = {}
    for span in sorted(found, key=time_order):
        origin = span.origin
        whole = _joined(span, parts[origin], reasons[origin]) if origin in parts else span
        flow = _flow_within(whole)
        if flow != whole.flow:  # a pair points past the variables: the last parts are missing
            whole = replace(whole, flow=flow)
            reasons[origin].add(Incomplete.LOST_PARTS)
        operations[origin] = whole
    mains = {part.origin: main for main, continuations in parts.items() for part in continuations}
    parents = {o: make_origin(span.trace_id, span.parent_id) if span.parent_id else "" for o, span in known.items()}
    hierarchy = Hierarchy(parents, mains)
    scopes = hierarchy.inherited({origin: span.scope for origin, span in (known | operations).items()})
    judged, supplied = find_judged(operations, hierarchy)
    operations.update(supplied)
    return Assembly(operations, hierarchy, reasons, scopes, judged, frozenset(supplied))


def operates(span: OperationSpan) -> bool:
    """Return whether a span is a memory operation or an evaluation."""
    if span.kind or span.inputs or span.outputs:
        return True
    evaluates = any(event.name == semconv.EVALUATION_EVENT for event in span.events)
    return evaluates or any(name in span.attributes for name in _EVALUATES)


def _distinct(spans: Iterable[OperationSpan], reasons: defaultdict[str, set[str]]) -> dict[str, OperationSpan]:
    known: dict[str, OperationSpan] = {}
    for span in spans:
        if span.instrumentation_scope == semconv.ATTRIBUTION_SCOPE:
            continue
        origin = span.origin
        other = known.setdefault(origin, span)
        if other is not span and other != span:  # two contents under one id: keep the richer, in any order of arrival
            reasons[origin].add(Incomplete.CONFLICT)
            known[origin] = max(other, span, key=_richness)
    return known


def _richness(span: OperationSpan) -> tuple[int, int, str]:
    return len(span.inputs) + len(span.outputs), span.end, repr(span)


def _is_part(span: OperationSpan) -> bool:
    return span.part > 0 and span.parent_id != ""


def _main_of(part: OperationSpan, known: dict[str, OperationSpan]) -> str:
    """Return the origin of the operation of a part: its parent, or the operation of the part that is its parent."""
    seen = {part.origin}
    origin = make_origin(part.trace_id, part.parent_id)
    while origin not in seen and origin in known and _is_part(known[origin]):
        seen.add(origin)
        origin = make_origin(part.trace_id, known[origin].parent_id)
    return origin


def _stand_in(main: str, parts: list[OperationSpan]) -> OperationSpan:
    """Return an operation for parts whose own span is missing. Indices into its variables are void."""
    first = min(parts, key=lambda part: (part.part, part.origin))
    return OperationSpan(
        trace_id=first.trace_id,
        span_id=main[33:],
        name=semconv.SPAN_NAME_PREFIX + first.kind,
        kind=first.kind,
        system=first.system,
        scope=first.scope,
        start=min(part.start for part in parts),
        end=max(part.end for part in parts),
        resource=first.resource,
        instrumentation_scope=first.instrumentation_scope,
    )


def _joined(span: OperationSpan, parts: list[OperationSpan], reasons: set[str]) -> OperationSpan:
    """Concatenate the variables of an operation and its continuations in part order."""
    parts = sorted(parts, key=lambda part: (part.part, part.start, part.origin))
    if [part.part for part in parts] != list(range(1, len(parts) + 1)):
        reasons.add(Incomplete.LOST_PARTS)
    whole = [span, *parts]
    flows = [part.flow for part in whole if part.flow is not None]
    # With a part missing the indices point at the wrong variables: then every input feeds every output.
    lost = Incomplete.LOST_PARTS in reasons or not flows
    return replace(
        span,
        inputs=tuple(variable for part in whole for variable in part.inputs),
        outputs=tuple(variable for part in whole for variable in part.outputs),
        flow=None if lost else tuple(pair for flow in flows for pair in flow),
        evidence=tuple(dict.fromkeys(ref for part in whole for ref in part.evidence)),
        incomplete=tuple(dict.fromkeys(reason for part in whole for reason in part.incomplete)),
        links=tuple(link for part in whole for link in part.links),
    )


def _flow_within(span: OperationSpan) -> tuple[tuple[int, int], ...] | None:
    """Return the flow of a span without pairs that point past its variables; None when no other pair is left."""
    if not span.flow:
        return span.flow
    inputs, outputs = len(span.inputs), len(span.outputs)
    return tuple((i, o) for i, o in span.flow if 0 <= i < inputs and 0 <= o < outputs) or None
