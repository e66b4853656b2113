"""Entries as parallel attribute arrays, cut into spans that keep the byte and link budgets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from opentelemetry.util.types import AttributeValue

from memtrace_otel import semconv
from memtrace_otel.capture.config import CaptureConfig

_FLOW_BYTES = 8
_LINK_BYTES = 96  # two ids and two attribute names


class Entry(NamedTuple):
    """One input or output on its way to a span: a `model.Variable`, as a tuple because a hot path makes many."""

    ref: str
    role: str
    origin: str = ""
    digest: str = ""
    content: str = ""
    score: float | None = None
    action: str = ""
    size: int = 0
    store: str = ""
    event_time: str = ""


@dataclass(slots=True)
class Part:
    """What one span carries: the first part is the operation's own span, the others are its continuations."""

    inputs: list[Entry] = field(default_factory=list[Entry])
    outputs: list[Entry] = field(default_factory=list[Entry])
    flow: list[str] = field(default_factory=list[str])
    size: int = 0
    origins: set[str] = field(default_factory=set[str])

    def fits(self, size: int, origin: str, limits: CaptureConfig) -> bool:
        """Tell whether one more entry of `size` bytes keeps the budgets (an empty part takes anything)."""
        if not self.size:
            return True
        if self.size + size + (_LINK_BYTES if origin and origin not in self.origins else 0) > limits.span_bytes:
            return False
        return not origin or origin in self.origins or len(self.origins) < limits.span_links

    def attributes(self) -> dict[str, AttributeValue]:
        """The arrays of the wire contract, section 3; arrays that would hold nothing are left out."""
        values: dict[str, AttributeValue] = {}
        if self.inputs:
            values[semconv.INPUTS] = [v.ref for v in self.inputs]
            values[semconv.INPUTS_ROLES] = [v.role for v in self.inputs]
            values[semconv.INPUTS_ORIGINS] = [v.origin for v in self.inputs]
            values[semconv.INPUTS_DIGESTS] = [v.digest for v in self.inputs]
            if any(v.content for v in self.inputs):
                values[semconv.INPUTS_CONTENTS] = [v.content for v in self.inputs]
            if any(v.score is not None for v in self.inputs):
                values[semconv.INPUTS_SCORES] = [0.0 if v.score is None else float(v.score) for v in self.inputs]
        if self.outputs:
            values[semconv.OUTPUTS] = [v.ref for v in self.outputs]
            values[semconv.OUTPUTS_ROLES] = [v.role for v in self.outputs]
            values[semconv.OUTPUTS_ACTIONS] = [v.action for v in self.outputs]
            values[semconv.OUTPUTS_DIGESTS] = [v.digest for v in self.outputs]
            values[semconv.OUTPUTS_SIZES] = [v.size for v in self.outputs]
            if any(v.content for v in self.outputs):
                values[semconv.OUTPUTS_CONTENTS] = [v.content for v in self.outputs]
            if any(v.store for v in self.outputs):
                values[semconv.OUTPUTS_STORES] = [v.store for v in self.outputs]
            if any(v.event_time for v in self.outputs):
                values[semconv.EVENT_TIME] = [v.event_time for v in self.outputs]
        if self.flow:
            values[semconv.FLOW] = self.flow
        return values


def lay_out(
    inputs: list[Entry], outputs: list[Entry], flow: list[tuple[int, int]], limits: CaptureConfig
) -> tuple[list[Part], int]:
    """Spread the variables over as many parts as the budgets need; return (parts, number of entries dropped).

    Entries keep their order: the arrays of part 0, 1, 2... put together are the operation's, `flow` pairs index
    into them. Past `limits.span_parts` continuations the rest is dropped, and counted.
    """
    parts = [Part()]
    entries = list(_entries(inputs, outputs, flow))
    for done, (place, entry, size, origin) in enumerate(entries):
        part = parts[-1]
        if not part.fits(size, origin, limits):
            if len(parts) > limits.span_parts:
                return parts, len(entries) - done
            part = Part()
            parts.append(part)
        getattr(part, place).append(entry)
        part.size += size
        if origin and origin not in part.origins:
            part.size += _LINK_BYTES
            part.origins.add(origin)
    return parts, 0


def _entries(
    inputs: list[Entry], outputs: list[Entry], flow: list[tuple[int, int]]
) -> Iterator[tuple[str, Entry | str, int, str]]:
    for variable in inputs:
        yield "inputs", variable, _size(variable), variable.origin
    for variable in outputs:
        yield "outputs", variable, _size(variable), ""
    for i, o in flow:
        yield "flow", f"{i}>{o}", _FLOW_BYTES, ""


def _size(variable: Entry) -> int:
    """Bytes of one entry on the wire, about: each array element costs its text and two to four bytes of framing."""
    texts = (variable.ref, variable.role, variable.origin, variable.digest, variable.action, variable.store)
    linked = len(variable.ref) if variable.origin else 0
    return (
        linked + sum(map(len, texts)) + len(variable.content.encode("utf-8", "replace")) + len(variable.event_time) + 32
    )
