"""Variables as the parallel arrays of the wire contract, cut into spans that keep the byte and link budgets."""

from __future__ import annotations

from itertools import chain, pairwise
from typing import NamedTuple

from opentelemetry.util.types import AttributeValue

from memtrace_otel import semconv
from memtrace_otel.capture.config import CaptureConfig

_FLOW_BYTES = 8
_LINK_BYTES = 96  # two ids and two attribute names
_FRAMING = 32  # each array element costs its text and two to four bytes
_ENTRY_BYTES = 256  # more than an entry takes without its ref, content and store, its link included
_MAX_FLOW = 4096  # index pairs; building more would be felt by the program

Flow = list[tuple[int, int]]
"""(input, output) pairs of indices; none means that every input fed every output."""


# What the program gave, one plain tuple each, because a hot path makes many.
Read = tuple[str, str, str, str, float | None]
"""An input: (ref, role, origin, whole text, score)."""
Written = tuple[str, str, str, str, str, str]
"""An output: (ref, role, action, whole text, store, event time)."""


class Inputs(NamedTuple):
    """What an operation read: one column for each array, all of one length."""

    refs: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    contents: tuple[str, ...] = ()
    scores: tuple[float | None, ...] = ()


class Outputs(NamedTuple):
    """What an operation produced: one column for each array, all of one length."""

    refs: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    contents: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()
    event_times: tuple[str, ...] = ()


NO_INPUTS, NO_OUTPUTS = Inputs(), Outputs()


class Part(NamedTuple):
    """What one span carries: the first part is the operation's own span, the others are its continuations."""

    inputs: Inputs
    outputs: Outputs
    flow: Flow

    def attributes(self) -> dict[str, AttributeValue]:
        """The arrays of the wire contract, section 3; arrays that would hold nothing are left out."""
        values: dict[str, AttributeValue] = {}
        inputs, outputs, flow = self
        if inputs.refs:
            values[semconv.INPUTS] = inputs.refs
            values[semconv.INPUTS_ROLES] = inputs.roles
            values[semconv.INPUTS_ORIGINS] = inputs.origins
            values[semconv.INPUTS_DIGESTS] = inputs.digests
            if any(inputs.contents):
                values[semconv.INPUTS_CONTENTS] = inputs.contents
            if inputs.scores.count(None) < len(inputs.scores):
                values[semconv.INPUTS_SCORES] = [0.0 if score is None else score for score in inputs.scores]
        if outputs.refs:
            values[semconv.OUTPUTS] = outputs.refs
            values[semconv.OUTPUTS_ROLES] = outputs.roles
            values[semconv.OUTPUTS_ACTIONS] = outputs.actions
            values[semconv.OUTPUTS_DIGESTS] = outputs.digests
            values[semconv.OUTPUTS_SIZES] = outputs.sizes
            if any(outputs.contents):
                values[semconv.OUTPUTS_CONTENTS] = outputs.contents
            if any(outputs.stores):
                values[semconv.OUTPUTS_STORES] = outputs.stores
            if any(outputs.event_times):
                values[semconv.EVENT_TIME] = outputs.event_times
        if flow:
            values[semconv.FLOW] = [f"{i}>{o}" for i, o in flow]
        return values


def lay_out(inputs: Inputs, outputs: Outputs, flow: Flow, limits: CaptureConfig) -> tuple[list[Part], int]:
    """Spread the variables over as many parts as the budgets need; return (parts, number of entries dropped).

    Entries keep their order: the arrays of part 0, 1, 2... put together are the operation's, `flow` pairs index
    into them. Past `limits.span_parts` continuations the rest is dropped, and counted.
    """
    if _fits(inputs, outputs, flow, limits):
        return [Part(inputs, outputs, flow)], 0
    weights = [*_input_bytes(inputs), *_output_bytes(outputs), *[_FLOW_BYTES] * len(flow)]
    cuts = _cuts(weights, inputs.origins, limits)
    kept = cuts[: limits.span_parts + 2]  # where the own span begins, and where it and each continuation end
    first_output, first_pair = len(inputs.refs), len(inputs.refs) + len(outputs.refs)
    parts = [
        Part(
            Inputs._make([column[start:end] for column in inputs]),
            Outputs._make([column[max(start - first_output, 0) : max(end - first_output, 0)] for column in outputs]),
            flow[max(start - first_pair, 0) : max(end - first_pair, 0)],
        )
        for start, end in pairwise(kept)
    ]
    return parts, len(weights) - kept[-1]


def _cuts(weights: list[int], origins: tuple[str, ...], limits: CaptureConfig) -> list[int]:
    """Where parts begin and end among all entries in a row, of which the first ones have `origins`.

    A part takes at least one entry, however large.
    """
    cuts, size, linked = [0], 0, set[str]()
    for index, weight in enumerate(weights):
        origin = origins[index] if index < len(origins) else ""
        link = _LINK_BYTES if origin and origin not in linked else 0
        if size and (size + weight + link > limits.span_bytes or (link and len(linked) >= limits.span_links)):
            cuts.append(index)
            size, linked = 0, set[str]()
            link = _LINK_BYTES if origin else 0
        size += weight + link
        if origin:
            linked.add(origin)
    return [*cuts, len(weights)]


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


def _fits(inputs: Inputs, outputs: Outputs, flow: Flow, limits: CaptureConfig) -> bool:
    """Tell at a glance, from an upper bound, whether one span can carry everything: it nearly always can."""
    texts = (inputs.refs, inputs.refs, inputs.contents, outputs.refs, outputs.contents, outputs.stores)
    entries = len(inputs.refs) + len(outputs.refs)
    bound = 4 * len("".join(chain(*texts))) + entries * _ENTRY_BYTES + len(flow) * _FLOW_BYTES
    return bound <= limits.span_bytes and len(inputs.refs) <= limits.span_links


def _input_bytes(inputs: Inputs) -> list[int]:
    """Bytes on the wire of each input, about; the ref stands in the link, too."""
    refs, roles, origins, digests, contents, _ = inputs
    return [
        len(ref) * (2 if origin else 1) + len(role) + len(origin) + len(digest) + _utf8_bytes(content) + _FRAMING
        for ref, role, origin, digest, content in zip(refs, roles, origins, digests, contents, strict=True)
    ]


def _output_bytes(outputs: Outputs) -> list[int]:
    """Bytes on the wire of each output, about."""
    refs, roles, actions, digests, _, contents, *others = outputs
    texts = zip(refs, roles, actions, digests, *others, strict=True)
    return [
        sum(map(len, entry)) + _utf8_bytes(content) + _FRAMING for entry, content in zip(texts, contents, strict=True)
    ]


def _utf8_bytes(text: str) -> int:
    """Bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
