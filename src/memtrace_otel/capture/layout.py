"""Variables as the parallel arrays of the wire contract, split over spans within the byte and link budgets."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import Any, NamedTuple, cast

from opentelemetry.util.types import AttributeValue

from memtrace_otel import semconv
from memtrace_otel.capture.config import CaptureConfig
from memtrace_otel.capture.content import utf8_bytes

_FLOW_BYTES = 14  # of an index pair
_LINK_BYTES = 112  # two ids and two attributes
_FRAMING = 48  # each array element costs its text and four to six bytes
_OWN_BYTES = 1024  # more than a span takes without variables and what it was given: ids, times, status, names of arrays
_ENTRY_BYTES = 256  # more than an entry takes without its ref, content and store, its link included
_MAX_FLOW = 4096  # index pairs; building more would be felt by the program

Flow = list[tuple[int, int]] | None
"""(input, output) pairs of indices; empty if no input fed an output; None if every input fed every output."""


# Plain tuples: the bench row "operation" needs them.
Read = tuple[str, str, str, str, float | None]
"""An input: (ref, role, origin, whole text, score)."""
Written = tuple[str, str, str, str, str, str]
"""An output: (ref, role, action, whole text, store, event time)."""


def number(value: object) -> float | None:
    """A score as a float (numpy scalars included), None for a value that is not a number."""
    if value is None or isinstance(value, bool | str | bytes):
        return None
    try:
        return float(cast(Any, value))
    except (TypeError, ValueError, OverflowError):
        return None


@dataclass(slots=True)
class Inputs:
    """The inputs of an operation: one list per array, all of one length. (The SDK copies lists faster than tuples.)"""

    refs: list[str]
    roles: list[str]
    origins: list[str]
    digests: list[str]
    contents: list[str]
    scores: list[float | None]

    def between(self, start: int, end: int) -> Inputs:
        """A range of the entries."""
        return Inputs(*[getattr(self, column)[start:end] for column in self.__slots__])

    def put_on(self, attributes: dict[str, AttributeValue]) -> None:
        """Add the arrays of the wire contract, section 3; empty arrays are left out."""
        if not self.refs:
            return
        attributes[semconv.INPUTS] = self.refs
        attributes[semconv.INPUTS_ROLES] = self.roles
        attributes[semconv.INPUTS_ORIGINS] = self.origins
        attributes[semconv.INPUTS_DIGESTS] = self.digests
        if any(self.contents):
            attributes[semconv.INPUTS_CONTENTS] = self.contents
        if self.scores.count(None) < len(self.scores):
            attributes[semconv.INPUTS_SCORES] = [score if score and isfinite(score) else 0.0 for score in self.scores]


@dataclass(slots=True)
class Outputs:
    """The outputs of an operation: one list per array, all of one length."""

    refs: list[str]
    roles: list[str]
    actions: list[str]
    digests: list[str]
    sizes: list[int]
    contents: list[str]
    stores: list[str]
    event_times: list[str]

    def between(self, start: int, end: int) -> Outputs:
        """A range of the entries."""
        return Outputs(*[getattr(self, column)[start:end] for column in self.__slots__])

    def put_on(self, attributes: dict[str, AttributeValue]) -> None:
        """Add the arrays of the wire contract, section 3; empty arrays are left out."""
        if not self.refs:
            return
        attributes[semconv.OUTPUTS] = self.refs
        attributes[semconv.OUTPUTS_ROLES] = self.roles
        attributes[semconv.OUTPUTS_ACTIONS] = self.actions
        attributes[semconv.OUTPUTS_DIGESTS] = self.digests
        attributes[semconv.OUTPUTS_SIZES] = self.sizes
        if any(self.contents):
            attributes[semconv.OUTPUTS_CONTENTS] = self.contents
        if any(self.stores):
            attributes[semconv.OUTPUTS_STORES] = self.stores
        if any(self.event_times):
            attributes[semconv.EVENT_TIME] = self.event_times


class Part(NamedTuple):
    """The variables of one span: the first part is on the operation's own span, the others on continuations."""

    inputs: Inputs
    outputs: Outputs
    flow: Flow


def lay_out(
    inputs: Inputs, outputs: Outputs, flow: Flow, limits: CaptureConfig, taken: int = 0
) -> tuple[list[Part], int]:
    """Spread the variables over as many parts as the budgets need; return (parts, number of entries dropped).

    Entries keep their order: the arrays of part 0, 1, 2... put together are the operation's, `flow` pairs index
    into them. Past `limits.span_parts` continuations the rest is dropped, and counted. Part 0 has `taken` bytes less.
    """
    room = limits.span_bytes - min(_OWN_BYTES, limits.span_bytes // 4)
    if _upper_bound(inputs, outputs, flow) <= room - taken and len(inputs.refs) <= limits.span_links:
        return [Part(inputs, outputs, flow)], 0
    pairs = flow or []
    weights = [*_input_bytes(inputs), *_output_bytes(outputs), *[_FLOW_BYTES] * len(pairs)]
    cuts = _cuts(weights, inputs.origins, room, limits.span_links, taken)
    kept = cuts[: limits.span_parts + 2]  # the own span and its continuations
    first_output, first_pair = len(inputs.refs), len(inputs.refs) + len(outputs.refs)
    parts = [
        Part(
            inputs.between(start, end),
            outputs.between(max(start - first_output, 0), max(end - first_output, 0)),
            pairs[max(start - first_pair, 0) : max(end - first_pair, 0)] or None,
        )
        for start, end in pairwise(kept)
    ]
    if flow == []:
        parts[0] = parts[0]._replace(flow=flow)
    return parts, len(weights) - kept[-1]


def _cuts(weights: list[int], origins: list[str], room: int, most_links: int, taken: int) -> list[int]:
    """The borders of the parts among all entries in a row, the first of which have `origins`.

    A part takes at least one entry, however large; the first one none when what it was given leaves no room.
    """
    cuts, size, linked = [0], taken, set[str]()
    for index, weight in enumerate(weights):
        origin = origins[index] if index < len(origins) else ""
        link = _LINK_BYTES if origin and origin not in linked else 0
        if size and (size + weight + link > room or (link and len(linked) >= most_links)):
            cuts.append(index)
            size, linked = 0, set[str]()
            link = _LINK_BYTES if origin else 0
        size += weight + link
        if origin:
            linked.add(origin)
    return [*cuts, len(weights)]


def flow_of(sources: list[list[int] | None], inputs: int) -> tuple[Flow, bool]:
    """The flow of the `sources` of all outputs (None: all inputs), and whether it has too many pairs to be written."""
    if sources.count(None) == len(sources):
        return None, False
    fed = [range(inputs) if named is None else named for named in sources]
    if sum(map(len, fed)) > _MAX_FLOW:
        return None, True
    return [(i, o) for o, named in enumerate(fed) for i in sorted({*named})], False


def _upper_bound(inputs: Inputs, outputs: Outputs, flow: Flow) -> int:
    """A fast upper bound of the bytes: one span nearly always has room."""
    read = len("".join([*inputs.refs, *inputs.refs, *inputs.contents]))
    made = len("".join([*outputs.refs, *outputs.contents, *outputs.stores, *outputs.event_times]))
    entries = len(inputs.refs) + len(outputs.refs)
    return 4 * (read + made) + entries * _ENTRY_BYTES + len(flow or ()) * _FLOW_BYTES


def _input_bytes(inputs: Inputs) -> list[int]:
    """Bytes on the wire of each input, about; the ref stands in the link, too."""
    linked = [ref if origin else "" for ref, origin in zip(inputs.refs, inputs.origins, strict=True)]
    columns = (inputs.refs, linked, inputs.roles, inputs.origins, inputs.digests, inputs.contents)
    return [utf8_bytes("".join(texts)) + _FRAMING for texts in zip(*columns, strict=True)]


def _output_bytes(outputs: Outputs) -> list[int]:
    """Bytes on the wire of each output, about."""
    words = (outputs.refs, outputs.roles, outputs.actions, outputs.digests)
    columns = (*words, outputs.contents, outputs.stores, outputs.event_times)
    return [utf8_bytes("".join(texts)) + _FRAMING for texts in zip(*columns, strict=True)]
