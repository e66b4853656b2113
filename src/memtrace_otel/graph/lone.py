"""Variables that every trace names for itself (a prompt, a question): what all of their readers saw of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from memtrace_otel.graph.assembly import time_order
from memtrace_otel.graph.contents import ContentChooser, Sightings
from memtrace_otel.graph.evolution import EvolutionGraph
from memtrace_otel.graph.keys import EdgeType, NodeKey, OperationKey, VersionKey
from memtrace_otel.model import OperationSpan, Variable

_Place = tuple[tuple[int, int, str], bool, int]
"""When it was seen, whether only among the outputs, and where there: the order of sightings."""
_Sighting = tuple[_Place, Variable]


@dataclass(frozen=True, slots=True)
class _Summary:
    """The sightings that decide: the first, the first with a digest, the one with the best content."""

    deciding: tuple[_Sighting, ...]
    digest: str

    def is_of(self, traces: set[str]) -> bool:
        """Tell whether one of them is of these traces."""
        return any(place[0][2][:32] in traces for place, _ in self.deciding)


class LoneVersions:
    """Keeps what such versions show; new readers cost what they are, not what all readers are."""

    def __init__(self, graph: EvolutionGraph) -> None:
        self._graph = graph
        self._summaries: dict[VersionKey, _Summary] = {}

    def mend(self, version: VersionKey, traces: set[str], operations: Iterable[OperationKey], *, keyed: bool) -> bool:
        """Set what the version shows after `operations`, those of `traces`, changed; False when nobody reads it."""
        known = self._summaries.pop(version, None)
        seen: list[_Sighting] | None = None
        if known is not None and not known.is_of(traces):
            seen = sorted([*known.deciding, *self._sightings(version, operations)], key=_place)
            seen = seen if _digest(seen) == known.digest else None  # else other sightings decide now
        if seen is None:
            seen = sorted(self._sightings(version, self._graph[version]), key=_place)
        if not seen:
            return False
        chooser = ContentChooser(())
        chooser.keyed = keyed
        shown = chooser.choose(Sightings(None, [variable for _, variable in seen]))
        node = self._graph.nodes[version]
        node["variable"], (node["content"], node["truncated"]) = seen[0][1], shown
        digest = next((sighting for sighting in seen if sighting[1].digest), seen[0])
        best = next(s for s in seen if chooser.choose(Sightings(None, [digest[1], s[1]])) == shown)
        self._summaries[version] = _Summary((seen[0], digest, best), digest[1].digest)
        return True

    def _sightings(self, version: VersionKey, operations: Iterable[NodeKey]) -> list[_Sighting]:
        seen: list[_Sighting] = []
        for reader in operations:
            for key, edge in (self._graph.get_edge_data(version, reader) or {}).items():
                if edge["type"] == EdgeType.READ:
                    span: OperationSpan = self._graph.nodes[reader]["span"]
                    considered, place = edge["index"] < 0, int(str(key).partition(":")[2])
                    variables = span.outputs if considered else span.inputs
                    seen.append(((time_order(span), considered, place), variables[place]))
        return seen


def _place(sighting: _Sighting) -> _Place:
    return sighting[0]


def _digest(seen: list[_Sighting]) -> str:
    return next((variable.digest for _, variable in seen if variable.digest), "")
