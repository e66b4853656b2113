"""The best known content of a version, from what its producer wrote and its readers saw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from memtrace_otel.model import OperationSpan, Variable, content_digest


@dataclass(slots=True)
class Sightings:
    """Every place that shows one version: the output of its producer, the inputs of its readers."""

    produced: Variable | None = None
    read: list[Variable] = field(default_factory=list[Variable])


class ContentChooser:
    """Chooses contents and tells which are cut.

    A size tells surely. A digest tells only when it is plain SHA-256: one whole content whose digest is another one
    shows that digests here are keyed, and then they tell nothing.
    """

    def __init__(self, spans: Iterable[OperationSpan]) -> None:
        self.keyed = any(
            output.content and output.digest and output.size == _size(output.content) and not _is_plain(output)
            for span in spans
            for output in span.outputs
        )

    def choose(self, sightings: Sightings, *, tombstone: bool = False, unknown: bool = False) -> tuple[str, bool]:
        """Return (content, cut): the producer's when whole, else the longest whole one of the same digest,
        else the longest. Of an `unknown` version that readers saw as several ones it is ''."""
        if tombstone or (unknown and _are_several(sightings.read)):
            return "", False
        candidates: list[tuple[str, bool]] = []
        if (output := sightings.produced) is None:
            # What nobody here wrote is what was seen first: another content under its id is not it.
            recorded = next((variable.digest for variable in sightings.read if variable.digest), "")
        else:
            recorded = output.digest
            if output.content:
                candidates.append((output.content, self._is_cut(output, recorded)))
                if not candidates[0][1]:
                    return candidates[0]
        candidates += [
            (v.content, self._is_cut(v, recorded))
            for v in sightings.read
            if v.content and not (recorded and v.digest and v.digest != recorded)  # else another version's content
        ]
        return max(candidates, key=lambda found: (not found[1], len(found[0]), found[0]), default=("", False))

    def _is_cut(self, variable: Variable, recorded: str) -> bool:
        if variable.size is not None and variable.size != _size(variable.content):
            return variable.size > _size(variable.content)
        digest = variable.digest or recorded
        return bool(digest) and not self.keyed and content_digest(variable.content) != digest


def _are_several(read: Sequence[Variable]) -> bool:
    """Tell whether readers saw different things. Two digests of one text do not tell that: of what is redacted each
    process has its own."""
    if len({variable.digest for variable in read} - {""}) < 2:
        return False
    shown = {variable.digest for variable in read if variable.content}
    bare = any(variable.digest and variable.digest not in shown for variable in read if not variable.content)
    sizes = {variable.size for variable in read if variable.content and variable.size is not None}
    return bare or len(sizes) > 1 or len({variable.content for variable in read if variable.content}) > 1


def _is_plain(variable: Variable) -> bool:
    return content_digest(variable.content) == variable.digest


def _size(content: str) -> int:
    return len(content.encode("utf-8", "surrogatepass"))
