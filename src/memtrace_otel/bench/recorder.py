"""Write operation spans as our instrumentors record them: ids, times, digests, links. Nothing here knows of faults."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from random import Random

from memtrace_otel.model import AttributeValue, Link, OperationSpan, Variable, content_digest, make_origin, split_origin
from memtrace_otel.semconv import (
    GEN_AI_OPERATION_NAME,
    LINK_REFS,
    LINK_TYPE,
    SPAN_NAME_PREFIX,
    Action,
    LinkType,
    OpKind,
    RefKind,
    Role,
)

_LINKS = {Role.HIT: LinkType.RETRIEVED, Role.CONTEXT: LinkType.RETRIEVED, Role.CANDIDATE: LinkType.CONSIDERED,
          Role.PREVIOUS: LinkType.SUPERSEDES, Role.ANSWER: LinkType.EVALUATES}  # fmt: skip
_STANDARD = {OpKind.RETRIEVE: "search_memory", OpKind.CREATE: "create_memory", OpKind.UPDATE: "update_memory",
             OpKind.DELETE: "delete_memory", OpKind.INGEST: "upsert_memory"}  # fmt: skip


class Op:
    """A span that is being recorded."""

    __slots__ = (
        "_recorder",
        "attributes",
        "end",
        "evidence",
        "flow",
        "incomplete",
        "inputs",
        "kind",
        "name",
        "outputs",
        "parent",
        "scope",
        "seq",
        "span_id",
        "start",
        "system",
        "trace_id",
    )  # fmt: skip

    def __init__(self, recorder: Recorder, trace_id: str, parent: Op | None, name: str, kind: str, scope: str) -> None:
        self._recorder = recorder
        self.trace_id, self.span_id = trace_id, recorder.hex(16)
        self.parent, self.name, self.kind, self.scope = parent, name, kind, scope
        self.system = recorder.system
        self.seq = recorder.number() if kind else None
        self.start = self.end = recorder.now()
        self.attributes: dict[str, AttributeValue] = {}
        self.inputs: list[Variable] = []
        self.outputs: list[Variable] = []
        self.flow: list[tuple[int, int]] | None = None
        self.evidence: tuple[str, ...] = ()
        self.incomplete: tuple[str, ...] = ()

    @property
    def origin(self) -> str:
        """The origin of every version that the span produces."""
        return make_origin(self.trace_id, self.span_id)

    def step(self, name: str, kind: OpKind, scope: str | None = None) -> Op:
        """Open a span below this one; '' gives the standard name of the kind."""
        name = name or _STANDARD.get(kind) or SPAN_NAME_PREFIX + kind
        return self._recorder.open(self.trace_id, self, name, kind, self.scope if scope is None else scope)

    def read(self, ref: str, role: Role, text: str = "", *, origin: str = "", score: float | None = None) -> int:
        """Record an input; as in real spans, the content is there only where no span of ours produced the version."""
        digest = content_digest(text) if text else ""
        self.inputs.append(Variable(ref, role, origin, digest, "" if origin else text, score))
        return len(self.inputs) - 1

    def wrote(
        self, ref: str, text: str, action: Action, role: Role = Role.OTHER, fed_by: list[int] | None = None
    ) -> None:
        """Record an output; `fed_by` are the inputs it comes from (None: all)."""
        if fed_by is not None:
            self.flow = [*(self.flow or []), *((i, len(self.outputs)) for i in fed_by)]
        digest = content_digest(text) if text else ""
        self.outputs.append(Variable(ref, role, "", digest, text, action=action, size=len(text.encode())))

    def close(self) -> Op:
        """End the span after all that was recorded below it."""
        self.end = self._recorder.now()
        return self

    def span(self, resource: Mapping[str, AttributeValue]) -> OperationSpan:
        """Return the finished span."""
        linked: dict[str, list[str]] = {}
        roles: dict[str, str] = {}
        for variable in self.inputs:
            if variable.origin:
                linked.setdefault(variable.origin, []).append(variable.ref)
                roles.setdefault(variable.origin, variable.role)
        links = tuple(
            Link(*split_origin(origin), {LINK_TYPE: _LINKS.get(Role(roles[origin]), LinkType.DERIVED_FROM),
                                         LINK_REFS: list(dict.fromkeys(refs))})
            for origin, refs in linked.items()
        )  # fmt: skip
        scope_name = f"memtrace_otel.instrumentation.{self.system}" if self.kind else "assistant"
        return OperationSpan(
            self.trace_id, self.span_id, self.parent.span_id if self.parent else "", self.name, self.kind,
            self.system if self.kind else "", self.scope, self.seq, start=self.start, end=self.end,
            inputs=tuple(self.inputs), outputs=tuple(self.outputs),
            flow=None if self.flow is None else tuple(self.flow), evidence=self.evidence, incomplete=self.incomplete,
            attributes=self.attributes,
            resource=resource, instrumentation_scope=scope_name, links=links,
        )  # fmt: skip


class Recorder:
    """The spans of one program, in order. Ids and durations come from `rng` alone."""

    def __init__(self, rng: Random, system: str) -> None:
        self.rng, self.system = rng, system
        self._clock = 0
        self._seq = rng.getrandbits(20) << 32
        self._ops: list[Op] = []
        self._resource: dict[str, AttributeValue] = {
            "telemetry.sdk.language": "python",
            "telemetry.sdk.name": "opentelemetry",
            "service.name": "assistant",
            "service.instance.id": self.hex(12),
        }

    def hex(self, digits: int) -> str:
        """Return random hexadecimal digits."""
        return f"{self.rng.getrandbits(4 * digits):0{digits}x}"

    def uuid(self) -> str:
        """Return a random record id."""
        digits = self.hex(32)
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"

    def number(self) -> int:
        """Return the next sequence number."""
        self._seq += 1
        return self._seq

    def now(self) -> int:
        """Return the time (ns), a few milliseconds later at each call."""
        self._clock += int(1e6 * self.rng.lognormvariate(1.5, 0.8))
        return self._clock

    def trace(self, time: datetime, user: str) -> Op:
        """Open the root span of a turn of the program at `time`."""
        self._clock = max(self._clock, int(time.timestamp()) * 10**9)
        root = self.open(self.hex(32), None, "invoke_agent assistant", "", "")
        root.attributes = {GEN_AI_OPERATION_NAME: "invoke_agent", "gen_ai.agent.name": "assistant", "user.id": user}
        return root

    def open(self, trace_id: str, parent: Op | None, name: str, kind: str, scope: str) -> Op:
        """Open a span."""
        op = Op(self, trace_id, parent, name, kind, scope)
        if name in _STANDARD.values():
            op.attributes[GEN_AI_OPERATION_NAME] = name
        self._ops.append(op)
        return op

    def spans(self) -> list[OperationSpan]:
        """Return the finished spans in the order of their start."""
        return [op.span(self._resource) for op in self._ops]


def fact_ref(text: str) -> str:
    """Return the ref of an extracted fact."""
    return f"{RefKind.FACT}:{content_digest(text)}"
