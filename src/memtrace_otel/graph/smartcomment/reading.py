"""Import: a smartcomment or MemTraceBench graph becomes operation spans."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass

from memtrace_otel import semconv
from memtrace_otel.graph.smartcomment.document import (
    NO_VARIABLE,
    Document,
    Node,
    Operation,
    action_of,
    parse,
    role_of,
)
from memtrace_otel.model import AttributeValue, OperationSpan, Variable, content_digest, make_ref, ref_kind
from memtrace_otel.semconv import Action, OpKind, RefKind, Role

SYSTEM = "smartcomment"

_SEARCHES = frozenset({OpKind.RETRIEVE, OpKind.RERANK})
_QUESTION = _SEARCHES | {OpKind.RESPOND, OpKind.JUDGE}


def to_spans(document: object) -> list[OperationSpan]:
    """Return one span per operation of a smartcomment or MemTraceBench graph, in order of time.

    Trace and span ids are digests of the graph, session (of a question: query) and operation ids: a second conversion
    gives the same spans. A judge score becomes evaluation attributes; a score of 0 is a failure. `evidence` in the
    metadata of a query becomes `memtrace.evidence`. Annotations are not read. A version that exists only between two
    edges of one operation is merged with the last version that the operation made. Raises ValueError that names the
    place of the first fault.
    """
    conversion = _Conversion(parse(document))
    return [conversion.span(step) for step in conversion.steps]


@dataclass(frozen=True, slots=True)
class _Step:
    """An operation with its place in a trace and its variables, split into read and made."""

    number: int
    operation: Operation
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
    """Finds the maker of every version, then turns each operation into a span."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._nodes = document.nodes
        self._makers: defaultdict[str, list[_Step]] = defaultdict(list)
        self._scope = _digest(16, document.graph_id, document.project, document.owner)
        """A recording is one memory."""
        self._resource: dict[str, AttributeValue] = {
            semconv.SERVICE_NAME: document.project or SYSTEM,
            semconv.SERVICE_INSTANCE_ID: document.graph_id,
        }
        self.steps = [self._step(number, operation) for number, operation in enumerate(document.operations, 1)]

    def span(self, step: _Step) -> OperationSpan:
        """Return the span of one operation."""
        outputs, flow = self._outputs(step)
        queries = [node for node in step.reads if node.kind == RefKind.QUERY]
        return OperationSpan(
            trace_id=step.trace_id,
            span_id=step.span_id,
            name=step.operation.name,
            kind=step.kind,
            system=SYSTEM,
            scope=self._scope,
            seq=step.number,
            start=step.operation.time,
            end=step.operation.time,
            inputs=tuple(self._inputs(step)),
            outputs=tuple(outputs),
            flow=flow,
            evidence=_evidence(queries),
            attributes=self._attributes(step.operation, queries, step.made),
            resource=self._resource,
            instrumentation_scope=SYSTEM,
        )

    # --- operations ----------------------------------------------------------------------------------------------
    def _step(self, number: int, operation: Operation) -> _Step:
        targets = (self._nodes[target] for _, target in operation.edges if target != NO_VARIABLE)
        kind = operation.kind(targets)
        reads, made = self._read_and_made(operation, kind)
        span_id = _digest(16, self._document.graph_id, operation.id)
        step = _Step(number, operation, kind, self._trace(operation, kind, reads), span_id, reads, made)
        for node in made:
            self._makers[node.id].append(step)
        return step

    def _trace(self, operation: Operation, kind: OpKind, reads: list[Node]) -> str:
        """Return the trace id: a question with its searches, answer and judgement is one trace, else a session is."""
        graph = self._document.graph_id
        if kind in _QUESTION:
            for node in reads:
                if node.kind == RefKind.QUERY:
                    return _digest(32, graph, "query", node.id)
            for node in reads:
                if self._makers[node.id] and self._makers[node.id][-1].kind in _QUESTION:
                    return self._makers[node.id][-1].trace_id
        return _digest(32, graph, "session", operation.session)

    def _read_and_made(self, operation: Operation, kind: OpKind) -> tuple[list[Node], list[Node]]:
        """Split the nodes of an operation into inputs and outputs.

        A retrieval is drawn as query -> record: these records existed before, so the retrieval read them.
        """
        targets = dict.fromkeys(target for source, target in operation.edges if target not in (source, NO_VARIABLE))
        found = [target for target in targets if kind in _SEARCHES and self._nodes[target].kind == RefKind.MEMORY]
        sources = dict.fromkeys(source for source, _ in operation.edges if source != NO_VARIABLE)
        reads = [source for source in sources if source not in targets]
        made = [self._nodes[target] for target in targets if target not in found]
        return [self._nodes[name] for name in (*reads, *found)], made

    # --- variables -----------------------------------------------------------------------------------------------
    def _maker(self, step: _Step, node: Node) -> _Step | None:
        """Return the operation that made the version that a step read: the last of several before the step.

        Times are coarse: without an earlier maker the first maker counts.
        """
        makers = [maker for maker in self._makers[node.id] if maker is not step]
        earlier = [maker for maker in makers if maker.number < step.number]
        return earlier[-1] if earlier else makers[0] if makers else None

    def _inputs(self, step: _Step) -> Iterator[Variable]:
        renewed = {node.name for node in step.made}
        targets = {target for _, target in step.edges}
        deleted = {source for source, target in step.edges if self._nodes[target].is_delete_marker}
        for node in step.reads:
            maker = self._maker(step, node)
            ref = _ref(node, maker)
            if node.name in renewed or node.id in deleted:
                role: str = Role.PREVIOUS
            else:
                role = Role.HIT if node.id in targets else role_of(ref_kind(ref), step.kind)
            digest = content_digest(node.text) if node.text else ""
            origin, content = (maker.origin, "") if maker else ("", node.text)
            yield Variable(ref, role=role, origin=origin, digest=digest, content=content)

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
            if node.is_delete_marker:
                for record in (self._nodes[source] for source in before[node.id]):
                    if record.kind == RefKind.MEMORY:
                        tombstone = Variable(_ref(record, step), action=Action.DELETE)
                        last[tombstone.ref] = node, tombstone
            elif not node.is_score:
                output = _output(node, _ref(node, step))
                last[output.ref] = node, output
        flow = [
            (place, index)
            for index, (node, _) in enumerate(last.values())
            for name in _reached_from(node.id, before, places)
            for place in places[name]
        ]
        everything = len(flow) == len(step.reads) * len(last)
        return [output for _, output in last.values()], None if everything else tuple(sorted(flow))

    def _attributes(self, operation: Operation, queries: list[Node], made: list[Node]) -> dict[str, AttributeValue]:
        attributes: dict[str, AttributeValue] = {
            semconv.SMARTCOMMENT_OP_ID: operation.id,
            semconv.SMARTCOMMENT_OP_NAME: operation.name,
            semconv.SMARTCOMMENT_CATEGORY: operation.category,
            semconv.SMARTCOMMENT_GRAPH_ID: self._document.graph_id,
        }
        if queries:
            attributes[semconv.SMARTCOMMENT_QUERY_ID] = queries[0].id
        for node in made:
            if node.is_score and (score := node.number) is not None:
                attributes[semconv.EVALUATION_NAME] = operation.name
                attributes[semconv.EVALUATION_SCORE] = score
                attributes[semconv.EVALUATION_LABEL] = "incorrect" if score == 0.0 else "correct"
        return attributes


def _ref(node: Node, maker: _Step | None) -> str:
    """Return the ref of a version; contexts and answers are named by the operation that made them."""
    if maker is not None and node.kind in (RefKind.ANSWER, RefKind.CONTEXT):
        return make_ref(node.kind, maker.span_id)
    return node.ref


def _output(node: Node, ref: str) -> Variable:
    return Variable(
        ref,
        role=Role.ANSWER if ref_kind(ref) == RefKind.ANSWER else Role.OTHER,
        digest=content_digest(node.text) if node.text else "",
        content=node.text,
        action=action_of(ref_kind(ref), node.version > 1),
        size=len(node.text.encode("utf-8", "surrogatepass")),
    )


def _reached_from(name: str, before: Mapping[str, list[str]], inputs: Container[str]) -> list[str]:
    """Return the inputs from which the edges of the operation lead to a node."""
    found: list[str] = []
    seen, waiting = {name}, list(before.get(name, ()))
    while waiting:
        source = waiting.pop()
        if source in seen:
            continue
        seen.add(source)
        if source in inputs:
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
