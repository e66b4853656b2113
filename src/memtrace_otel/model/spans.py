"""`OperationSpan` and `Variable`: a decoded memory operation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Scalar = str | bool | int | float
AttributeValue = Scalar | list[str] | list[bool] | list[int] | list[float]


@dataclass(frozen=True, slots=True)
class Variable:
    """One entry of a span's inputs or outputs: which variable, in which version, in which part.

    `content` is '' when it was not captured. `origin` is the span that produced the version read ('' = root or
    unknown); an output's version has the span itself as origin. `score` belongs to retrieval inputs, `action`, `size`
    (bytes), `store` (URI) and `event_time` (RFC 3339) to outputs.
    """

    ref: str
    role: str = "other"
    origin: str = ""
    digest: str = ""
    content: str = ""
    score: float | None = None
    action: str = ""
    size: int | None = None
    store: str = ""
    event_time: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """A link to another span; the view of what the attributes already say."""

    trace_id: str
    span_id: str
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict[str, AttributeValue])


@dataclass(frozen=True, slots=True)
class Event:
    """A span event."""

    name: str
    time: int
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict[str, AttributeValue])


@dataclass(frozen=True, slots=True)
class OperationSpan:
    """A span, read by the wire contract. Times are nanoseconds since the epoch; ids lower-case hex.

    `kind` is '' for a span that is no memory operation. `attributes` holds what the other fields do not.
    `part` > 0 marks a continuation of the parent's inputs and outputs. `flow` are (input, output) pairs of indices:
    which inputs fed which outputs; () means that none did, None that every input fed every output.
    """

    trace_id: str
    span_id: str
    parent_id: str = ""
    name: str = ""
    kind: str = ""
    system: str = ""
    scope: str = ""
    seq: int | None = None
    part: int = 0
    start: int = 0
    end: int = 0
    status: str = "unset"  # unset, ok, error
    status_message: str = ""
    inputs: tuple[Variable, ...] = ()
    outputs: tuple[Variable, ...] = ()
    flow: tuple[tuple[int, int], ...] | None = None
    evidence: tuple[str, ...] = ()
    incomplete: tuple[str, ...] = ()
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict[str, AttributeValue])
    resource: Mapping[str, AttributeValue] = field(default_factory=dict[str, AttributeValue])
    instrumentation_scope: str = ""
    links: tuple[Link, ...] = ()
    events: tuple[Event, ...] = ()

    @property
    def origin(self) -> str:
        """The origin of every version this span produced."""
        return f"{self.trace_id}-{self.span_id}"

    @property
    def service(self) -> str:
        """`service.name` of the resource."""
        return str(self.resource.get("service.name", ""))
