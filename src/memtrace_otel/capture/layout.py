"""Variables as the parallel arrays of the wire contract, cut into spans that keep the byte and link budgets."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from opentelemetry.util.types import AttributeValue

from memtrace_otel import semconv
from memtrace_otel.capture.config import CaptureConfig

_FLOW_BYTES = 8
_LINK_BYTES = 96  # two ids and two attribute names
_FRAMING = 32  # each array element costs its text and two to four bytes
_MAX_FLOW = 4096  # index pairs; building more would be felt by the program
_WHOLE = slice(None)


class Inputs:
    """What an operation read: one list for each array of the wire contract, section 3."""

    __slots__ = ("contents", "digests", "origins", "refs", "roles", "scores", "weights")

    def __init__(self) -> None:
        self.refs: list[str] = []
        self.roles: list[str] = []
        self.origins: list[str] = []
        self.digests: list[str] = []
        self.contents: list[str] = []
        self.scores: list[float | None] = []
        self.weights: list[int] = []

    def add(self, ref: str, role: str, origin: str, digest: str, content: str, score: float | None) -> None:
        """Append one input."""
        self.refs.append(ref)
        self.roles.append(role)
        self.origins.append(origin)
        self.digests.append(digest)
        self.contents.append(content)
        self.scores.append(score)
        linked = len(ref) if origin else 0
        self.weights.append(len(ref) + linked + len(role) + len(origin) + len(digest) + _bytes(content) + _FRAMING)

    def attributes(self, part: slice) -> dict[str, AttributeValue]:
        """The arrays of one part; arrays that would hold nothing are left out."""
        if not (refs := self.refs[part]):
            return {}
        values: dict[str, AttributeValue] = {
            semconv.INPUTS: refs,
            semconv.INPUTS_ROLES: self.roles[part],
            semconv.INPUTS_ORIGINS: self.origins[part],
            semconv.INPUTS_DIGESTS: self.digests[part],
        }
        if any(contents := self.contents[part]):
            values[semconv.INPUTS_CONTENTS] = contents
        scores = self.scores[part]
        if scores.count(None) < len(scores):
            values[semconv.INPUTS_SCORES] = [0.0 if score is None else score for score in scores]
        return values


class Outputs:
    """What an operation produced: one list for each array."""

    __slots__ = ("actions", "contents", "digests", "event_times", "refs", "roles", "sizes", "stores", "weights")

    def __init__(self) -> None:
        self.refs: list[str] = []
        self.roles: list[str] = []
        self.actions: list[str] = []
        self.digests: list[str] = []
        self.sizes: list[int] = []
        self.contents: list[str] = []
        self.stores: list[str] = []
        self.event_times: list[str] = []
        self.weights: list[int] = []

    def add(
        self, ref: str, role: str, action: str, digest: str, size: int, content: str, store: str, event_time: str
    ) -> None:
        """Append one output."""
        self.refs.append(ref)
        self.roles.append(role)
        self.actions.append(action)
        self.digests.append(digest)
        self.sizes.append(size)
        self.contents.append(content)
        self.stores.append(store)
        self.event_times.append(event_time)
        texts = len(ref) + len(role) + len(action) + len(digest) + len(store) + len(event_time)
        self.weights.append(texts + _bytes(content) + _FRAMING)

    def attributes(self, part: slice) -> dict[str, AttributeValue]:
        """The arrays of one part; arrays that would hold nothing are left out."""
        if not (refs := self.refs[part]):
            return {}
        values: dict[str, AttributeValue] = {
            semconv.OUTPUTS: refs,
            semconv.OUTPUTS_ROLES: self.roles[part],
            semconv.OUTPUTS_ACTIONS: self.actions[part],
            semconv.OUTPUTS_DIGESTS: self.digests[part],
            semconv.OUTPUTS_SIZES: self.sizes[part],
        }
        if any(contents := self.contents[part]):
            values[semconv.OUTPUTS_CONTENTS] = contents
        if any(stores := self.stores[part]):
            values[semconv.OUTPUTS_STORES] = stores
        if any(event_times := self.event_times[part]):
            values[semconv.EVENT_TIME] = event_times
        return values


class Variables:
    """The inputs and outputs of one operation, and which fed which."""

    __slots__ = ("fed_by_all", "flow", "inputs", "outputs")

    def __init__(self) -> None:
        self.inputs = Inputs()
        self.outputs = Outputs()
        self.flow: list[tuple[int, int]] = []
        self.fed_by_all: list[int] = []

    def settle_flow(self) -> bool:
        """Complete the (input, output) pairs once some outputs have named their sources: then the others name all.

        Returns False when the pairs are too many to write: then every input counts as source of every output.
        """
        if not self.flow:
            return True
        if len(self.flow) + len(self.fed_by_all) * len(self.inputs.refs) > _MAX_FLOW:
            self.flow = []
            return False
        pairs = {*self.flow, *((i, o) for o in self.fed_by_all for i in range(len(self.inputs.refs)))}
        self.flow = sorted(pairs, key=lambda pair: pair[::-1])
        return True


@dataclass(frozen=True, slots=True)
class Part:
    """What one span carries: the first part is the operation's own span, the others are its continuations."""

    inputs: slice
    outputs: slice
    flow: slice


WHOLE = Part(_WHOLE, _WHOLE, _WHOLE)


def lay_out(variables: Variables, limits: CaptureConfig) -> tuple[list[Part], int]:
    """Spread the variables over as many parts as the budgets need; return (parts, number of entries dropped).

    Entries keep their order: the arrays of part 0, 1, 2... put together are the operation's, `flow` pairs index
    into them. Past `limits.span_parts` continuations the rest is dropped, and counted.
    """
    inputs, outputs, flow = variables.inputs, variables.outputs, variables.flow
    links = len({*inputs.origins} - {""})
    size = sum(inputs.weights) + sum(outputs.weights) + len(flow) * _FLOW_BYTES + links * _LINK_BYTES
    if size <= limits.span_bytes and links <= limits.span_links:
        return [WHOLE], 0
    ends = len(inputs.refs), len(inputs.refs) + len(outputs.refs)
    weights = [*inputs.weights, *outputs.weights, *[_FLOW_BYTES] * len(flow)]
    cuts, dropped = _cuts(weights, inputs.origins, limits)
    return [_part(start, stop, *ends) for start, stop in pairwise(cuts)], dropped


def _cuts(weights: list[int], origins: list[str], limits: CaptureConfig) -> tuple[list[int], int]:
    """Where parts begin and end among all entries (`origins` belong to the first ones), and how many come too late."""
    cuts, size, linked = [0], 0, set[str]()
    for index, weight in enumerate(weights):
        origin = origins[index] if index < len(origins) else ""
        link = _LINK_BYTES if origin and origin not in linked else 0
        if size and (size + weight + link > limits.span_bytes or (link and len(linked) >= limits.span_links)):
            cuts.append(index)  # a part takes one entry, however large
            if len(cuts) > limits.span_parts + 1:
                return cuts, len(weights) - index
            size, linked = 0, set[str]()
            link = _LINK_BYTES if origin else 0
        size += weight + link
        if origin:
            linked.add(origin)
    return [*cuts, len(weights)], 0


def _part(start: int, stop: int, inputs_end: int, outputs_end: int) -> Part:
    """Entries `start` to `stop` of inputs, outputs and flow in a row, as a range of each."""
    return Part(
        slice(min(start, inputs_end), min(stop, inputs_end)),
        slice(max(start - inputs_end, 0), max(min(stop, outputs_end) - inputs_end, 0)),
        slice(max(start - outputs_end, 0), max(stop - outputs_end, 0)),
    )


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
