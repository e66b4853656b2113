"""A smartcomment document as operation spans."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import cast

from memtrace_otel import semconv
from memtrace_otel.graph.keys import RECORD_KINDS
from memtrace_otel.graph.smartcomment import conventions
from memtrace_otel.graph.smartcomment.document import NO_VARIABLE, Document, Json, Node, Recorded, parse
from memtrace_otel.graph.smartcomment.records import records
from memtrace_otel.model import (
    AttributeValue,
    OperationSpan,
    Variable,
    content_digest,
    is_origin,
    make_origin,
    make_ref,
    ref_kind,
    split_origin,
)
from memtrace_otel.semconv import Action, OpKind, RefKind, Role

SYSTEM = "smartcomment"

_SEARCHES = frozenset({OpKind.RETRIEVE, OpKind.RERANK})
_QUESTION = _SEARCHES | {OpKind.RESPOND, OpKind.JUDGE}


def to_spans(document: object) -> list[OperationSpan]:
    """Return one span per operation of a smartcomment or MemTraceBench graph, in order of time.

    Trace and span ids are digests of the graph, session (of a question: query) and operation ids, so that a second
    conversion gives the same spans. A judge score becomes evaluation attributes, by the peer's rule that 0 is a
    failure; `evidence` in the metadata of a query becomes `memtrace.evidence`. Annotations are not read. A version that
    exists only between two edges of one operation is merged with the last one that the operation made. Of our own
    export, the metadata tells what the edges do not: traces, memories, times, errors, roles and deletions are as they
    were. Raises ValueError naming the place of the first fault.
    """
    parsed = parse(document)
    conversion = _Conversion(parsed, records(cast("Json", document), parsed))
    return [conversion.span(step) for step in conversion.steps]


@dataclass(frozen=True, slots=True)
class _Step:
    """An operation with its place in a trace and its variables split into read and made."""

    number: int
    operation: Recorded
    kind: OpKind
    trace_id: str
    span_id: str
    reads: list[Node]
    made: list[Node]

    @property
    def origin(self) -> str:
        return f"{self.trace_id}-{self.span_id}"

    @property
    def edges(self) -> list[tuple[str, str]]:
        return [edge for edge in self.operation.edges if NO_VARIABLE not in edge]


class _Conversion:
    """Knows who made what, then turns one operation after the other into a span."""

    def __init__(self, document: Document, records: Mapping[str, str]) -> None:
        self._document = document
        self._records = records
        self._nodes = document.nodes
        self._makers: defaultdict[str, list[_Step]] = defaultdict(list)
        self._place = (document.graph_id, document.project, document.owner)
        self._scoped = any(operation.told("scope") for operation in document.operations)
        self._origins = {told: operation.id for operation in document.operations if (told := operation.told("origin"))}
        self._resource: dict[str, AttributeValue] = {
            semconv.SERVICE_NAME: document.project or SYSTEM,
            semconv.SERVICE_INSTANCE_ID: document.graph_id,
        }
        self.steps = [self._step(number, operation) for number, operation in enumerate(document.operations, 1)]

    def span(self, step: _Step) -> OperationSpan:
        """Return the span of one operation."""
        edges = step.edges
        renewed = {node.name for node in step.made}
        inputs: list[Variable] = []
        for node, told in zip(step.reads, self._roles(step), strict=True):
            previous = node.name in renewed or self._is_deleted(node, edges)
            hit = any(target == node.id for _, target in edges)
            inputs.append(self._input(step, node, previous, hit=hit, told=told))
        outputs, flow = self._outputs(step)
        queries = [node for node in step.reads if conventions.kind_of_node(node) == RefKind.QUERY]
        operation = step.operation
        end = operation.number("end_ns", operation.time)
        return OperationSpan(
            trace_id=step.trace_id,
            span_id=step.span_id,
            parent_id=self._parent(operation),
            name=operation.name,
            kind=operation.told("kind") if operation.own else str(step.kind),
            system=SYSTEM,
            scope=self._scope(operation),
            seq=step.number,
            start=max(0, end - operation.number("duration_ns", 0)),
            end=end,
            status="error" if operation.told("status") == "error" else "unset",
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            flow=flow,
            evidence=tuple(operation.texts("evidence")) if operation.own else _evidence(queries),
            incomplete=tuple(operation.texts("incomplete")),
            attributes=self._attributes(step.operation, queries, step.made),
            resource=self._resource,
            instrumentation_scope=SYSTEM,
        )

    # --- operations ----------------------------------------------------------------------------------------------
    def _step(self, number: int, operation: Recorded) -> _Step:
        targets = (self._nodes[target] for _, target in operation.edges if target != NO_VARIABLE)
        kind = conventions.kind_of_operation(operation, targets)
        reads, made = self._read_and_made(operation, kind)
        trace_id = self._trace(operation, kind, reads)
        step = _Step(number, operation, kind, trace_id, self._span(operation.id), reads, made)
        for node in made:
            self._makers[node.id].append(step)
        return step

    def _span(self, id: str) -> str:
        return _digest(16, self._document.graph_id, id)

    def _parent(self, operation: Recorded) -> str:
        around = self._origins.get(operation.told("parent"))
        return self._span(around) if around else ""

    def _scope(self, operation: Recorded) -> str:
        """A recording of the peer is one memory; our own export names those that it has."""
        told = operation.told("scope")
        return "" if self._scoped and not told else _digest(16, *self._place, *filter(None, [told]))

    def _trace(self, operation: Recorded, kind: OpKind, reads: list[Node]) -> str:
        """A question is one trace, from its searches to its judgement; construction has one trace per session, as all
        that our own export holds."""
        graph = self._document.graph_id
        if kind in _QUESTION and not operation.own:
            for node in reads:
                if conventions.kind_of_node(node) == RefKind.QUERY:
                    return _digest(32, graph, "query", node.id)
            for node in reads:
                if self._makers[node.id] and self._makers[node.id][-1].kind in _QUESTION:
                    return self._makers[node.id][-1].trace_id
        return _digest(32, graph, "session", operation.session)

    def _read_and_made(self, operation: Recorded, kind: OpKind) -> tuple[list[Node], list[Node]]:
        """Split the nodes of an operation into what it read and what it made.

        The peer draws a retrieval as query -> unit: those units, known before, were read. Our own export names both.
        """
        targets = dict.fromkeys(target for source, target in operation.edges if target not in (source, NO_VARIABLE))
        if operation.own:
            made = [self._nodes[target] for target in targets]
            made = [node for node in made if node.told("maker") == operation.told("origin")]
            return [self._nodes[name] for name, _ in operation.pairs("inputs") if name in self._nodes], made
        found = [t for t in targets if kind in _SEARCHES and conventions.kind_of_node(self._nodes[t]) == RefKind.MEMORY]
        sources = dict.fromkeys(source for source, _ in operation.edges if source != NO_VARIABLE)
        reads = [source for source in sources if source not in targets]
        made = [self._nodes[target] for target in targets if target not in found]
        return [self._nodes[name] for name in (*reads, *found)], made

    def _roles(self, step: _Step) -> list[str]:
        """What our own export says of what was read, '' for each in a file of the peer."""
        told = [role for name, role in step.operation.pairs("inputs") if name in self._nodes]
        return told if step.operation.own else [""] * len(step.reads)

    # --- variables -----------------------------------------------------------------------------------------------
    def _maker(self, step: _Step, node: Node) -> _Step | None:
        """Who made the version that a step read: of several with equal content the last before it.

        Times are too coarse to trust: without an earlier maker the first one counts.
        """
        makers = [maker for maker in self._makers[node.id] if maker is not step]
        earlier = [maker for maker in makers if maker.number < step.number]
        return earlier[-1] if earlier else makers[0] if makers else None

    def _missing(self, told: str) -> str:
        """The origin, of our own export, that an operation has which is not there: a version of it is no other one."""
        if not is_origin(told):
            return ""
        trace_id, span_id = split_origin(told)
        return make_origin(
            _digest(32, self._document.graph_id, "session", trace_id), self._span(f"op-{trace_id}{span_id}")
        )

    def _input(self, step: _Step, node: Node, previous: bool, *, hit: bool, told: str) -> Variable:
        maker = self._maker(step, node)
        ref, text = _ref(node, maker), "" if _deleted(node) else conventions.text_of(node)
        role = Role.PREVIOUS if previous else Role.HIT if hit else conventions.role_of(ref_kind(ref), step.kind)
        return Variable(
            ref,
            role=told or role,
            origin=maker.origin if maker else self._missing(node.told("origin")),
            digest=_content_digest(node, text),
            content="" if maker else text,
        )

    def _outputs(self, step: _Step) -> tuple[list[Variable], tuple[tuple[int, int], ...] | None]:
        """Return the outputs, one per ref (the last version made), with the inputs that led to each (None: all)."""
        before: defaultdict[str, list[str]] = defaultdict(list)
        for source, target in step.edges:
            before[target].append(source)
        places: defaultdict[str, list[int]] = defaultdict(list)
        for place, node in enumerate(step.reads):
            places[node.id].append(place)
        last: dict[str, tuple[Node, Variable]] = {}
        for node in step.made:
            if deleted := _deleted(node):  # whatever led to that need not have read it
                last[deleted] = node, Variable(deleted, action=Action.DELETE)
            elif conventions.DELETE_MARKER in (node.name, node.class_name):
                for unit in (self._nodes[source] for source in before[node.id]):
                    if conventions.kind_of_node(unit) == RefKind.MEMORY:
                        tombstone = Variable(_ref(unit, step), action=Action.DELETE)
                        last[tombstone.ref] = node, tombstone
            elif conventions.SCORE not in (node.name, node.class_name):
                output = _output(node, _ref(node, step))
                last[output.ref] = node, output
        flow = [
            (place, index)
            for index, (node, _) in enumerate(last.values())
            for name in _led_to(node.id, before, places)
            for place in places[name]
        ]
        everything = len(flow) == len(step.reads) * len(last)
        left = (self._nodes[name] for name in step.operation.texts("considered") if name in self._nodes)
        outputs = [output for _, output in last.values()]
        outputs += [Variable(_ref(node, self._maker(step, node)), action=Action.NONE) for node in left]
        return outputs, None if everything else tuple(sorted(flow))

    def _is_deleted(self, node: Node, edges: list[tuple[str, str]]) -> bool:
        made = [self._nodes[target] for source, target in edges if source == node.id]
        return any(conventions.DELETE_MARKER in (target.name, target.class_name) for target in made)

    # --- attributes ----------------------------------------------------------------------------------------------
    def _attributes(self, operation: Recorded, queries: list[Node], made: list[Node]) -> dict[str, AttributeValue]:
        attributes: dict[str, AttributeValue] = {
            semconv.SMARTCOMMENT_OP_ID: operation.id,
            semconv.SMARTCOMMENT_OP_NAME: operation.name,
            semconv.SMARTCOMMENT_CATEGORY: operation.category,
            semconv.SMARTCOMMENT_GRAPH_ID: self._document.graph_id,
        }
        if operation.id in self._records:
            attributes[semconv.SMARTCOMMENT_RECORD] = self._records[operation.id]
        if queries:
            attributes[semconv.SMARTCOMMENT_QUERY_ID] = queries[0].id
        if self._document.lost and operation is self._document.operations[0]:
            attributes[semconv.LOST] = self._document.lost
        for node in made:
            if conventions.SCORE in (node.name, node.class_name) and (score := conventions.number_of(node)) is not None:
                attributes[semconv.EVALUATION_NAME] = operation.told("evaluation") if operation.own else operation.name
                attributes[semconv.EVALUATION_SCORE] = score
                attributes[semconv.EVALUATION_LABEL] = "incorrect" if score == 0.0 else "correct"
        return attributes


def _ref(node: Node, maker: _Step | None) -> str:
    """The ref of a version; contexts and answers are named by the operation that made them."""
    kind = conventions.kind_of_node(node)
    if maker is not None and kind in (RefKind.ANSWER, RefKind.CONTEXT):
        return make_ref(kind, maker.span_id)
    return _deleted(node) or conventions.ref_of_node(node)


def _deleted(node: Node) -> str:
    """The ref of a record that ends here, as our own export names it; '' for any other version."""
    ref = node.told("ref") if node.told("action") == Action.DELETE else ""
    return ref if ref_kind(ref) in RECORD_KINDS else ""


def _output(node: Node, ref: str) -> Variable:
    text = conventions.text_of(node)
    return Variable(
        ref,
        role=Role.ANSWER if ref_kind(ref) == RefKind.ANSWER else Role.OTHER,
        digest=_content_digest(node, text),
        content=text,
        action=node.told("action") if node.told("ref") else conventions.action_of(ref_kind(ref), node.version > 1),
        size=len(text.encode("utf-8", "surrogatepass")),
    )


def _content_digest(node: Node, text: str) -> str:
    """What our own export tells is of the whole content, also where that is cut or was not recorded."""
    return node.told("digest") or (content_digest(text) if text else "")


def _led_to(name: str, before: dict[str, list[str]], places: Container[str]) -> list[str]:
    """Inputs from which a node can be reached inside the operation."""
    found: list[str] = []
    seen, waiting = {name}, list(before.get(name, ()))
    while waiting:
        source = waiting.pop()
        if source in seen:
            continue
        seen.add(source)
        if source in places:
            found.append(source)
        waiting.extend(before.get(source, ()))
    return found


def _evidence(queries: list[Node]) -> tuple[str, ...]:
    named: list[str] = []
    for query in queries:
        evidence = query.metadata.get("evidence")
        if isinstance(evidence, list):
            named += [str(item) for item in evidence]  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
    return tuple(make_ref(RefKind.MESSAGE, name) for name in dict.fromkeys(named))


def _digest(length: int, *parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:length]
