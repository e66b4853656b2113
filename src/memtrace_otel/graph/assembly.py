"""From spans as they arrived to operations: duplicates dropped, continuation parts joined, scopes inherited."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from memtrace_otel import semconv
from memtrace_otel.graph.judgements import find_judged
from memtrace_otel.model import OperationSpan, make_origin
from memtrace_otel.semconv import Incomplete

_EVALUATES = (semconv.EVALUATION_NAME, semconv.EVALUATION_LABEL, semconv.EVALUATION_SCORE)


def time_order(span: OperationSpan) -> tuple[int, int, str]:
    """Order by start; sequence number and identity break ties."""
    return span.start, span.seq or 0, span.origin


@dataclass(slots=True)
class Assembly:
    """Operations by origin, in time order, and what their spans say about each other."""

    operations: dict[str, OperationSpan] = field(default_factory=dict[str, OperationSpan])
    reasons: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict[str, set[str]](set))
    """Why an operation knows less than it should, told by the spans of its trace."""
    gaps: defaultdict[str, set[tuple[str, str]]] = field(
        default_factory=lambda: defaultdict[str, set[tuple[str, str]]](set)
    )
    """Ref -> (origin of an operation, reason): gaps in the lineage of that variable."""
    scopes: dict[str, str] = field(default_factory=dict[str, str])
    """Scope of every span: its own, else that of the nearest enclosing span with one, else ''."""
    mains: dict[str, str] = field(default_factory=dict[str, str])
    """Origin of a continuation part -> origin of its operation."""
    parents: dict[str, str] = field(default_factory=dict[str, str])
    """Origin of every span, memory operation or not -> origin of its parent, '' for a root."""
    judged: dict[str, str] = field(default_factory=dict[str, str])
    """Origin of an operation with an evaluation -> origin of the answering operation that this is about."""
    supplied: set[str] = field(default_factory=set[str])
    """Origins of the judges whose last input, the answer, is supplied: they name none themselves."""
    _nearest: dict[str, str] = field(default_factory=dict[str, str], init=False)
    """Origin of a span that is no operation -> origin of the nearest operation around it, as far as asked for."""
    _rungs: dict[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]], init=False)
    """Origin of a span -> (how deep it is, a span further up that shortens the way), as far as asked for."""

    def main(self, origin: str) -> str:
        """Return the origin of the operation that a span belongs to."""
        return self.mains.get(origin, origin)

    def enclosing(self, origin: str) -> Iterator[str]:
        """Yield the origins of the spans around a span, innermost first. Ends on bad data with a cycle too."""
        seen = {origin}
        origin = self._outer(origin)
        while origin and origin not in seen:
            yield origin
            seen.add(origin)
            origin = self._outer(origin)

    def encloses(self, outer: str, origin: str) -> bool:
        """Tell whether `outer` is among the `enclosing` spans, in steps that go with the logarithm of the depth."""
        if outer == origin:
            return False
        level, top = self._rung(outer)
        depth, above = self._rung(origin)
        while depth > level:
            origin = above if self._rung(above)[0] >= level else self._outer(origin)
            depth, above = self._rung(origin)
        return depth == level and (origin == outer if level else above == top)

    def enclosing_operation(self, origin: str) -> str:
        """Return the origin of the nearest memory operation around a span, '' when there is none. To be asked when the
        operations are complete."""
        passed: list[str] = []
        outer = self._outer(origin)
        while outer and outer not in self.operations and outer not in self._nearest:
            self._nearest[outer] = ""  # visited; bad data may have a cycle
            passed.append(outer)
            outer = self._outer(outer)
        found = outer if outer in self.operations else self._nearest.get(outer, "")
        self._nearest.update((span, found) for span in passed)
        return "" if found == origin else found

    def _outer(self, origin: str) -> str:
        return self.main(self.parents.get(origin, ""))

    def _rung(self, origin: str) -> tuple[int, str]:
        """Return (depth, a span further up): from span to span these lead to any one above in few steps. The outermost
        has itself; the spans of a cycle, in bad data, are all the outermost and have one of them."""
        rungs, missing = self._rungs, dict[str, None]()
        span = origin
        while span not in rungs:
            missing[span] = None
            outer = self._outer(span)
            if outer and outer not in missing:
                span = outer
                continue
            passed = list(missing)
            rungs.update((one, (0, span)) for one in (passed[passed.index(outer) :] if outer else [span]))
        for span in reversed(missing):
            if span not in rungs:
                outer = self._outer(span)
                depth, near = rungs[outer]
                halfway, far = rungs[near]
                rungs[span] = depth + 1, far if depth - halfway == halfway - rungs[far][0] else outer
        return rungs[origin]


def assemble(spans: Iterable[OperationSpan]) -> Assembly:
    """Put spans in any order, repeated or partly missing, together to operations.

    Spans that carry neither a memory operation nor an evaluation only lend their place in the hierarchy. Verdict spans
    are about the graph, not in it.
    """
    assembly = Assembly()
    known = _distinct(spans, assembly)
    parts: dict[str, list[OperationSpan]] = defaultdict(list)
    for origin, span in known.items():
        assembly.parents[origin] = make_origin(span.trace_id, span.parent_id) if span.parent_id else ""
        if _is_part(span):
            parts[_main_of(span, known)].append(span)
    found = [span for span in known.values() if not _is_part(span) and operates(span)]
    for main, continuations in parts.items():
        assembly.mains.update((part.origin, main) for part in continuations)
        if main not in known or _is_part(known[main]):  # the latter only in a cycle of parts
            found.append(_stand_in(main, continuations))
            assembly.reasons[main].add(Incomplete.LOST_PARTS)
        elif not operates(known[main]):
            found.append(known[main])
    for span in sorted(found, key=time_order):
        origin = span.origin
        assembly.operations[origin] = (
            _joined(span, parts[origin], assembly.reasons[origin]) if origin in parts else span
        )
    for origin, span in assembly.operations.items():
        _check_flow(origin, span, assembly)
    _inherit_scopes(known, assembly)
    find_judged(assembly)
    return assembly


def _distinct(spans: Iterable[OperationSpan], assembly: Assembly) -> dict[str, OperationSpan]:
    known: dict[str, OperationSpan] = {}
    for span in spans:
        if span.instrumentation_scope == semconv.ATTRIBUTION_SCOPE:
            continue
        origin = span.origin
        other = known.setdefault(origin, span)
        if other is not span and other != span:  # two contents under one id: keep the richer, whatever came first
            assembly.reasons[origin].add(Incomplete.CONFLICT)
            known[origin] = max(other, span, key=_richness)
    return known


def _richness(span: OperationSpan) -> tuple[int, int, str]:
    return len(span.inputs) + len(span.outputs), span.end, repr(span)


def operates(span: OperationSpan) -> bool:
    """Tell whether a span is a memory operation or an evaluation."""
    if span.kind or span.inputs or span.outputs:
        return True
    evaluates = any(event.name == semconv.EVALUATION_EVENT for event in span.events)
    return evaluates or any(name in span.attributes for name in _EVALUATES)


def _is_part(span: OperationSpan) -> bool:
    return span.part > 0 and span.parent_id != ""


def _main_of(part: OperationSpan, known: dict[str, OperationSpan]) -> str:
    """A part hangs below its operation; below another part it belongs to that one's operation."""
    seen = {part.origin}
    origin = make_origin(part.trace_id, part.parent_id)
    while origin not in seen and origin in known and _is_part(known[origin]):
        seen.add(origin)
        origin = make_origin(part.trace_id, known[origin].parent_id)
    return origin


def _stand_in(main: str, parts: list[OperationSpan]) -> OperationSpan:
    """An operation whose own span is missing, as far as its parts tell: indices into its variables are void."""
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
    return replace(
        span,
        inputs=tuple(variable for part in whole for variable in part.inputs),
        outputs=tuple(variable for part in whole for variable in part.outputs),
        # With a part missing the indices point at the wrong variables: better every input to every output.
        flow=None if Incomplete.LOST_PARTS in reasons else _joined_flow(whole),
        evidence=tuple(dict.fromkeys(ref for part in whole for ref in part.evidence)),
        incomplete=tuple(dict.fromkeys(reason for part in whole for reason in part.incomplete)),
        links=tuple(link for part in whole for link in part.links),
    )


def _joined_flow(parts: list[OperationSpan]) -> tuple[tuple[int, int], ...] | None:
    flows = [part.flow for part in parts if part.flow is not None]
    return tuple(pair for flow in flows for pair in flow) if flows else None


def _check_flow(origin: str, span: OperationSpan, assembly: Assembly) -> None:
    """A pair that points past the variables shows that the last parts are missing."""
    kept = flow_within(span)
    if kept != span.flow:
        assembly.operations[origin] = replace(span, flow=kept)
        assembly.reasons[origin].add(Incomplete.LOST_PARTS)


def flow_within(span: OperationSpan) -> tuple[tuple[int, int], ...] | None:
    """Return the flow of a span without pairs that point past its variables; None when no other ones are left."""
    if not span.flow:
        return span.flow
    inputs, outputs = len(span.inputs), len(span.outputs)
    return tuple((i, o) for i, o in span.flow if 0 <= i < inputs and 0 <= o < outputs) or None


def _inherit_scopes(known: dict[str, OperationSpan], assembly: Assembly) -> None:
    scopes = assembly.scopes
    for start in (*assembly.operations, *known):
        passed: list[str] = []
        origin, scope = start, ""
        while origin and origin not in scopes:
            scopes[origin] = ""  # visited; bad data may have a cycle
            passed.append(origin)
            span = assembly.operations.get(origin) or known.get(origin)
            if span is not None and span.scope:
                scope = span.scope
                break
            origin = assembly.main(assembly.parents.get(origin, ""))
        else:
            scope = scopes.get(origin, "")
        scopes.update((origin, scope) for origin in passed)
