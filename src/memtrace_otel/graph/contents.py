"""Choose the content of a version: of its producer, else of its readers."""

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
    """Chooses contents and finds contents that are cut.

    A size shows a cut for certain. A digest shows a cut only when digests are plain SHA-256: a whole content with
    another digest proves that digests are keyed.
    """

    def __init__(self, spans: Iterable[OperationSpan]) -> None:
        self.keyed = any(
            output.content and output.digest and output.size == _size(output.content) and not _is_plain(output)
            for span in spans
            for output in span.outputs
        )

    def choose(self, sightings: Sightings, *, tombstone: bool = False, unknown: bool = False) -> tuple[str, bool]:
        """Return (content, cut): the producer's when whole, else the longest whole content of the same digest, else the
        longest. '' for an `unknown` version with different contents."""
        if tombstone or (unknown and _are_several(sightings.read)):
            return "", False
        candidates: list[tuple[str, bool]] = []
        if (output := sightings.produced) is None:
            # A version without a known writer has the content of its first reader.
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
            if v.content and not (recorded and v.digest and v.digest != recorded)  # else the content of another version
        ]
        return max(candidates, key=lambda found: (not found[1], len(found[0]), found[0]), default=("", False))

    def _is_cut(self, variable: Variable, recorded: str) -> bool:
        if variable.size is not None and variable.size != _size(variable.content):
            return variable.size > _size(variable.content)
        digest = variable.digest or recorded
        return bool(digest) and not self.keyed and content_digest(variable.content) != digest


def _are_several(read: Sequence[Variable]) -> bool:
    """Return whether readers saw different contents. Two digests of one text are one content: each process has its own
    digest of a redacted text."""
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
