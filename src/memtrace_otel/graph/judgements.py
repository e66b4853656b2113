"""Find the answer that an evaluation is about. No other module decides this."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from memtrace_otel.graph.hierarchy import Hierarchy
from memtrace_otel.model import AttributeValue, OperationSpan, Variable, answers_named, is_origin, ref_kind
from memtrace_otel.semconv import (
    ATTRIBUTION_EVALUATION,
    EVALUATION_EVENT,
    EVALUATION_LABEL,
    EVALUATION_NAME,
    EVALUATION_SCORE,
    OP_PURPOSE,
    UPKEEP,
    OpKind,
    RefKind,
    Role,
)


def evaluations(span: OperationSpan) -> Iterator[tuple[Mapping[str, AttributeValue], int]]:
    """Yield (attributes, time) of each evaluation that a span carries. Our own verdicts are no evaluations."""
    own = span.attributes
    if (EVALUATION_SCORE in own or EVALUATION_LABEL in own) and own.get(EVALUATION_NAME) != ATTRIBUTION_EVALUATION:
        yield own, span.end
    for event in span.events:
        if event.name == EVALUATION_EVENT and event.attributes.get(EVALUATION_NAME) != ATTRIBUTION_EVALUATION:
            yield event.attributes, event.time


def find_judged(
    operations: Mapping[str, OperationSpan], hierarchy: Hierarchy
) -> tuple[dict[str, str], dict[str, OperationSpan]]:
    """Return (judged, supplied) of operations by origin, in time order.

    `judged` maps an operation with an evaluation to the origin of the answering operation. `supplied` are the judges
    that name no answer, with the answer that they are about as an additional last input. Only spans of the trace of the
    judge decide.
    """
    answers: defaultdict[str, list[OperationSpan]] = defaultdict(list)
    judging: list[OperationSpan] = []
    for span in operations.values():
        if span.kind == OpKind.RESPOND:
            answers[span.trace_id].append(span)
        if next(evaluations(span), None) is not None:
            judging.append(span)
    traces = {span.trace_id: _Answers(answers[span.trace_id], operations, hierarchy) for span in judging}
    judged: dict[str, str] = {}
    supplied: dict[str, OperationSpan] = {}
    for span in judging:
        trace = traces[span.trace_id]
        found = trace.judged_by(span)
        if not found:
            continue
        judged[span.origin] = found
        inputs = [v for v in span.inputs if not (_is_answer(v) and trace.is_no_operation(v.origin))]
        if span.kind == OpKind.JUDGE and found in operations and not any(map(_is_answer, inputs)):
            said = next((v for v in operations[found].outputs if ref_kind(v.ref) == RefKind.ANSWER), None)
            if said is not None:
                answer = Variable(said.ref, Role.ANSWER, found)
                supplied[span.origin] = replace(span, inputs=(*inputs, answer))
    return judged, supplied


def given_answers(
    answers: Sequence[OperationSpan], around: Callable[[str], Iterable[OperationSpan | None]]
) -> list[OperationSpan]:
    """Return those of the answers of a trace that were given to the user: no steps of another operation, no calls of
    tools, no upkeep. `around` returns the operations around an origin."""
    whole = (one for one in answers if not any(outer and outer.kind for outer in around(one.origin)))
    return [one for one in whole if not _is_between(one)]


def _is_between(answer: OperationSpan) -> bool:
    """Return whether a call made no reply to the user: it only called tools, or did upkeep behind a reply."""
    only_calls = answer.outputs and all(ref_kind(output.ref) == RefKind.COMPLETION for output in answer.outputs)
    return bool(only_calls) or answer.attributes.get(OP_PURPOSE) == UPKEEP


class _Answers:
    """The answering operations of a trace, found by what an evaluation names."""

    def __init__(
        self, answers: Sequence[OperationSpan], operations: Mapping[str, OperationSpan], hierarchy: Hierarchy
    ) -> None:
        self._operations = operations
        self._hierarchy = hierarchy
        self._by_ref: defaultdict[str, set[str]] = defaultdict(set)
        """Ref -> origins of the answering operations with this output."""
        for answer in answers:
            for output in answer.outputs:
                self._by_ref[output.ref].add(answer.origin)
        self._given = given_answers(answers, lambda origin: map(operations.get, hierarchy.enclosing(origin))) or answers
        """Those that the user saw, else all."""
        self._inside: dict[str, OperationSpan] = {}
        """Origin of a span -> the answering operation inside that ended last."""
        for answer in sorted(self._given, key=_end):
            self._inside.update(dict.fromkeys(hierarchy.enclosing(answer.origin), answer))

    def judged_by(self, span: OperationSpan) -> str:
        """Return the origin of the answering operation that an evaluation on `span` is about, '' without one."""
        named, in_role = self._named(span)
        is_there = named[:32] not in ("", span.trace_id) or self._hierarchy.main(named) in self._operations
        if is_there and in_role:
            return named
        around = self._hierarchy.enclosing(span.origin)
        if above := next((origin for origin in around if self._responds(origin, span.trace_id)), ""):
            return above
        if is_there:
            return named
        outer = {span.origin, named} if self.is_no_operation(named) else {span.origin}
        if inside := [answer for origin in outer if (answer := self._inside.get(origin))]:
            return max(inside, key=_end).origin
        if named and not self.is_no_operation(named):  # the span of the answer was lost
            return named
        place = bisect_right(self._given, span.start, key=lambda answer: answer.start)
        if not place and not span.parent_id:  # feedback on the whole trace with a late clock
            place = len(self._given)
        return self._given[place - 1].origin if place else named

    def is_no_operation(self, origin: str) -> bool:
        """Return whether the span is known and no operation. Such a span means the answer inside the span."""
        return self._hierarchy.has_span(origin) and self._hierarchy.main(origin) not in self._operations

    def _named(self, span: OperationSpan) -> tuple[str, bool]:
        """Return the origin of the answer that an evaluation on `span` names, and whether the role names the answer.

        The first origin in the role `answer`; else the only answer named by origin or ref. Answers of the trace
        take precedence: answers of other traces may be read for comparison.
        """
        named = answers_named(span)
        in_role = any(variable.role == Role.ANSWER for variable in named)
        origins = [variable.origin for variable in named if is_origin(variable.origin)]
        if in_role and origins:
            return origins[0], True
        refs = [variable.ref for variable in named if not is_origin(variable.origin)]
        own = {origin for ref in refs for origin in self._by_ref.get(ref, ())}
        own.update(origin for origin in origins if origin[:32] == span.trace_id)
        found = own or set(origins)
        return found.pop() if len(found) == 1 else "", in_role

    def _responds(self, origin: str, trace_id: str) -> bool:
        found = self._operations.get(origin)
        return found is not None and found.kind == OpKind.RESPOND and found.trace_id == trace_id


def _is_answer(variable: Variable) -> bool:
    return variable.role == Role.ANSWER or ref_kind(variable.ref) == RefKind.ANSWER


def _end(answer: OperationSpan) -> tuple[int, str]:
    return answer.end, answer.origin
