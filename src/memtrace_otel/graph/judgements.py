"""Which answer an evaluation is about; the one place that says so."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from memtrace_otel.model import (
    AttributeValue,
    OperationSpan,
    Variable,
    answers_named,
    is_origin,
    ref_kind,
)
from memtrace_otel.semconv import (
    ATTRIBUTION_EVALUATION,
    EVALUATION_EVENT,
    EVALUATION_LABEL,
    EVALUATION_NAME,
    EVALUATION_SCORE,
    OpKind,
    RefKind,
    Role,
)

if TYPE_CHECKING:
    from memtrace_otel.graph.assembly import Assembly


def evaluations(span: OperationSpan) -> Iterator[tuple[Mapping[str, AttributeValue], int]]:
    """Yield (attributes, time) of what a span says about an answer. Our own verdicts are no evaluations."""
    own = span.attributes
    if (EVALUATION_SCORE in own or EVALUATION_LABEL in own) and own.get(EVALUATION_NAME) != ATTRIBUTION_EVALUATION:
        yield own, span.end
    for event in span.events:
        if event.name == EVALUATION_EVENT and event.attributes.get(EVALUATION_NAME) != ATTRIBUTION_EVALUATION:
            yield event.attributes, event.time


def is_answer(variable: Variable) -> bool:
    """Tell whether a variable is an answer, by its ref or by the role it was read in."""
    return variable.role == Role.ANSWER or ref_kind(variable.ref) == RefKind.ANSWER


def find_judged(assembly: Assembly) -> None:
    """Fill in which answers are judged; a judge that names no answer gets the one it is about as its last input.

    Only the spans of its own trace have a say in that. To be called when the operations are complete.
    """
    answers: defaultdict[str, list[OperationSpan]] = defaultdict(list)
    judging: list[OperationSpan] = []
    for span in assembly.operations.values():
        if span.kind == OpKind.RESPOND:
            answers[span.trace_id].append(span)
        if next(evaluations(span), None) is not None:
            judging.append(span)
    traces = {span.trace_id: _Answers(answers[span.trace_id], assembly) for span in judging}
    for span in judging:
        found = _judged(span, traces[span.trace_id], assembly)
        if not found:
            continue
        assembly.judged[span.origin] = found
        inputs = [v for v in span.inputs if not (is_answer(v) and _is_around(v.origin, assembly))]
        if span.kind == OpKind.JUDGE and found in assembly.operations and not any(map(is_answer, inputs)):
            said = next((v for v in assembly.operations[found].outputs if ref_kind(v.ref) == RefKind.ANSWER), None)
            if said is not None:
                answer = Variable(said.ref, Role.ANSWER, found)
                assembly.operations[span.origin] = replace(span, inputs=(*inputs, answer))
                assembly.supplied.add(span.origin)


class _Answers:
    """The answering operations of a trace, looked up by what a judge may say of one."""

    def __init__(self, answers: Sequence[OperationSpan], assembly: Assembly) -> None:
        self._answers = answers
        self._assembly = assembly

    def of(self, ref: str) -> set[str]:
        """Return the origins of those that made a version of `ref`."""
        return self._by_ref.get(ref, set())

    def within(self, origin: str) -> OperationSpan | None:
        """Return the one inside a span that ended last."""
        return self._within.get(origin)

    def before(self, start: int) -> OperationSpan | None:
        """Return the last one that had begun at a time (ns)."""
        place = bisect_right(self._given, start, key=lambda answer: answer.start)
        return self._given[place - 1] if place else None

    def last(self) -> OperationSpan | None:
        return self._given[-1] if self._given else None

    @cached_property
    def _by_ref(self) -> dict[str, set[str]]:
        found: defaultdict[str, set[str]] = defaultdict(set)
        for answer in self._answers:
            for output in answer.outputs:
                found[output.ref].add(answer.origin)
        return found

    @cached_property
    def _given(self) -> Sequence[OperationSpan]:
        """Without those for a step of another operation, which the user never sees; all when there is no other."""
        return [answer for answer in self._answers if not _is_step(answer, self._assembly)] or self._answers

    @cached_property
    def _within(self) -> dict[str, OperationSpan]:
        found: dict[str, OperationSpan] = {}
        for answer in sorted(self._given, key=lambda answer: (answer.end, answer.origin)):
            found.update(dict.fromkeys(self._assembly.enclosing(answer.origin), answer))
        return found


def _judged(span: OperationSpan, answers: _Answers, assembly: Assembly) -> str:
    """Return the origin of the answering operation that an evaluation on `span` is about, '' when there is none."""
    named, in_role = _named(span, answers)
    is_there = named[:32] not in ("", span.trace_id) or assembly.main(named) in assembly.operations
    if is_there and in_role:
        return named
    if above := next((origin for origin in assembly.enclosing(span.origin) if _responds(origin, span, assembly)), ""):
        return above
    if is_there:
        return named
    around = {span.origin, named} if _is_around(named, assembly) else {span.origin}
    if below := [answer for origin in around if (answer := answers.within(origin))]:
        return max(below, key=lambda answer: (answer.end, answer.origin)).origin
    if named and not _is_around(named, assembly):  # its span was lost
        return named
    before = answers.before(span.start)
    if before is None and not span.parent_id:  # feedback on the whole trace, by a clock that is behind
        before = answers.last()
    return before.origin if before else named


def _named(span: OperationSpan, answers: _Answers) -> tuple[str, bool]:
    """Return the origin of the answer that an evaluation on `span` names, and whether by its role: the first origin in
    that role; else the only one that is named, by origin or by the ref of an answer of the trace. Those of the trace
    go before others, which may have been read for comparison."""
    named = answers_named(span)
    in_role = any(variable.role == Role.ANSWER for variable in named)
    origins = [variable.origin for variable in named if is_origin(variable.origin)]
    if in_role and origins:
        return origins[0], True
    having = set[str]().union(*(answers.of(variable.ref) for variable in named if not is_origin(variable.origin)))
    own = having.union(origin for origin in origins if origin[:32] == span.trace_id)
    found = own or set(origins)
    return found.pop() if len(found) == 1 else "", in_role


def _responds(origin: str, evaluation: OperationSpan, assembly: Assembly) -> bool:
    found = assembly.operations.get(origin)
    return found is not None and found.kind == OpKind.RESPOND and found.trace_id == evaluation.trace_id


def _is_around(origin: str, assembly: Assembly) -> bool:
    """Tell whether this is a span that is no operation: what is named by it is the answer that it is around."""
    return origin in assembly.parents and assembly.main(origin) not in assembly.operations


def _is_step(answer: OperationSpan, assembly: Assembly) -> bool:
    """Tell whether a model was asked for a step of another operation."""
    operations = (assembly.operations.get(origin) for origin in assembly.enclosing(answer.origin))
    return any(outer is not None and outer.kind for outer in operations)
