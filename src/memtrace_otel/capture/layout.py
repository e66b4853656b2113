"""Variables as the parallel arrays of the wire contract, cut into spans that keep the byte and link budgets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from opentelemetry.util.types import AttributeValue

from memtrace_otel import semconv
from memtrace_otel.capture.config import CaptureConfig

# Entries are plain tuples because a hot path makes many.
Read = tuple[str, str, str, str, float | None]
"""An input as the program gave it: (ref, role, origin, whole text, score)."""
Written = tuple[str, str, str, str, str, str]
"""An output as the program gave it: (ref, role, action, whole text, store, event time)."""
Input = tuple[str, str, str, str, str, float | None]
"""An input as it goes on a span: (ref, role, origin, digest, content, score)."""
Output = tuple[str, str, str, str, int, str, str, str]
"""An output as it goes on a span: (ref, role, action, digest, size, content, store, event time)."""
Flow = list[tuple[int, int]]
"""(input, output) pairs of indices; none means that every input fed every output."""

_Strings = tuple[str, ...]
_FLOW_BYTES = 8
_LINK_BYTES = 96  # two ids and two attribute names
_FRAMING = 32  # each array element costs its text and two to four bytes
_ENTRY_BYTES = 256  # more than an entry takes without its ref, content, store and time, its link included
_MAX_FLOW = 4096  # index pairs; building more would be felt by the program


@dataclass(slots=True)
class Part:
    """What one span carries: the first part is the operation's own span, the others are its continuations."""

    inputs: list[Input] = field(default_factory=list[Input])
    outputs: list[Output] = field(default_factory=list[Output])
    flow: Flow = field(default_factory=Flow)

    def attributes(self) -> dict[str, AttributeValue]:
        """The arrays of the wire contract, section 3; arrays that would hold nothing are left out."""
        values: dict[str, AttributeValue] = {}
        if self.inputs:
            refs, roles, origins, digests, contents, scores = cast(
                tuple[_Strings, _Strings, _Strings, _Strings, _Strings, tuple[float | None, ...]],
                zip(*self.inputs, strict=True),
            )
            values[semconv.INPUTS] = refs
            values[semconv.INPUTS_ROLES] = roles
            values[semconv.INPUTS_ORIGINS] = origins
            values[semconv.INPUTS_DIGESTS] = digests
            if any(contents):
                values[semconv.INPUTS_CONTENTS] = contents
            if scores.count(None) < len(scores):
                values[semconv.INPUTS_SCORES] = [0.0 if score is None else score for score in scores]
        if self.outputs:
            refs, roles, actions, digests, sizes, contents, stores, event_times = cast(
                tuple[_Strings, _Strings, _Strings, _Strings, tuple[int, ...], _Strings, _Strings, _Strings],
                zip(*self.outputs, strict=True),
            )
            values[semconv.OUTPUTS] = refs
            values[semconv.OUTPUTS_ROLES] = roles
            values[semconv.OUTPUTS_ACTIONS] = actions
            values[semconv.OUTPUTS_DIGESTS] = digests
            values[semconv.OUTPUTS_SIZES] = sizes
            if any(contents):
                values[semconv.OUTPUTS_CONTENTS] = contents
            if any(stores):
                values[semconv.OUTPUTS_STORES] = stores
            if any(event_times):
                values[semconv.EVENT_TIME] = event_times
        if self.flow:
            values[semconv.FLOW] = [f"{i}>{o}" for i, o in self.flow]
        return values


def lay_out(inputs: list[Input], outputs: list[Output], flow: Flow, limits: CaptureConfig) -> tuple[list[Part], int]:
    """Spread the variables over as many parts as the budgets need; return (parts, number of entries dropped).

    Entries keep their order: the arrays of part 0, 1, 2... put together are the operation's, `flow` pairs index
    into them. Past `limits.span_parts` continuations the rest is dropped, and counted.
    """
    if _fits(inputs, outputs, flow, limits):
        return [Part(inputs, outputs, flow)], 0
    weights = [*map(_input_bytes, inputs), *map(_output_bytes, outputs), *[_FLOW_BYTES] * len(flow)]
    part, size, origins = Part(), 0, set[str]()
    parts = [part]
    for index, weight in enumerate(weights):
        origin = inputs[index][2] if index < len(inputs) else ""
        new = bool(origin) and origin not in origins
        if size and (
            size + weight + new * _LINK_BYTES > limits.span_bytes or len(origins) + new > limits.span_links
        ):  # a part takes one entry, however large
            if len(parts) > limits.span_parts:
                return parts, len(weights) - index
            part, size, origins, new = Part(), 0, set[str](), bool(origin)
            parts.append(part)
        if index < len(inputs):
            part.inputs.append(inputs[index])
        elif index < len(inputs) + len(outputs):
            part.outputs.append(outputs[index - len(inputs)])
        else:
            part.flow.append(flow[index - len(inputs) - len(outputs)])
        size += weight + new * _LINK_BYTES
        if new:
            origins.add(origin)
    return parts, 0


def complete_flow(named: Flow, fed_by_all: list[int], inputs: int) -> Flow | None:
    """Add to the pairs that the program named those of the outputs it said nothing of: all `inputs` inputs fed them.

    None when the pairs are too many to write. Where no pair was named, none is needed.
    """
    if not named:
        return []
    if len(named) + len(fed_by_all) * inputs > _MAX_FLOW:
        return None
    pairs = {*named, *((i, o) for o in fed_by_all for i in range(inputs))}
    return sorted(pairs, key=lambda pair: pair[::-1])


def _fits(inputs: list[Input], outputs: list[Output], flow: Flow, limits: CaptureConfig) -> bool:
    """Tell at a glance, from an upper bound, whether one span can carry everything: it nearly always can."""
    read = sum([2 * len(ref) + len(content) for ref, _, _, _, content, _ in inputs])
    made = sum([len(ref) + len(content) + len(uri) + len(time) for ref, _, _, _, _, content, uri, time in outputs])
    bound = 4 * (read + made) + (len(inputs) + len(outputs)) * _ENTRY_BYTES + len(flow) * _FLOW_BYTES
    return bound <= limits.span_bytes and len(inputs) <= limits.span_links


def _input_bytes(entry: Input) -> int:
    ref, role, origin, digest, content, _ = entry
    linked = len(ref) if origin else 0
    return len(ref) + linked + len(role) + len(origin) + len(digest) + _utf8_bytes(content) + _FRAMING


def _output_bytes(entry: Output) -> int:
    ref, role, action, digest, _, content, store, event_time = entry
    texts = len(ref) + len(role) + len(action) + len(digest) + len(store) + len(event_time)
    return texts + _utf8_bytes(content) + _FRAMING


def _utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
