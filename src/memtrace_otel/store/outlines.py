"""What lineage needs of a span, read straight from its bytes: a fifth of the time that the whole span takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from memtrace_otel import semconv
from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp.mapped import read_mapped
from memtrace_otel.store.rows import Source, read_row

_ARRAYS = (
    semconv.INPUTS,
    semconv.INPUTS_ORIGINS,
    semconv.OUTPUTS,
    semconv.OUTPUTS_ACTIONS,
)


class Outline(NamedTuple):
    """A span without what it says; in the order of the wire, with what is malformed not yet set right.

    `has_flow` tells that it says which inputs fed which outputs, `failed` that its status is an error. `body` is the
    span as received, `source` what it shares with others; `span` reads the whole of it.
    """

    trace_id: str
    span_id: str
    parent_id: str
    kind: str
    scope: str
    part: int
    inputs: Sequence[str]
    origins: Sequence[str]
    outputs: Sequence[str]
    actions: Sequence[str]
    has_flow: bool
    failed: bool
    body: bytes
    source: Source

    def span(self) -> OperationSpan:
        """Return the span."""
        return read_row(self.body, self.source)


def read_outline(trace_id: str, span_id: str, kind: str, scope: str, body: bytes, source: Source) -> Outline:
    """Return the outline of a span, given the columns of its row. Raises google.protobuf.message.DecodeError."""
    parent_id, failed, attributes = read_mapped(body)
    inputs, origins, outputs, actions = [
        # A repeated field is walked in half the time when it is a list.
        [item.string_value for item in found.array_value.values[:]] if (found := attributes.get(name)) else []
        for name in _ARRAYS
    ]
    parent = parent_id.hex() if parent_id.strip(b"\0") else ""
    part = attributes[semconv.PART].int_value if semconv.PART in attributes else 0
    lineage, has_flow = (inputs, origins, outputs, actions), semconv.FLOW in attributes
    return Outline(trace_id, span_id, parent, kind, scope, part, *lineage, has_flow, failed, body, source)
