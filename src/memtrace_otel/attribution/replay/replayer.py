"""The protocol of a replayer: a memory that is built again, in a scratch store, from recorded writes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Protocol, cast


@dataclass(frozen=True, slots=True)
class Write:
    """One write of a record at `time` (ns since the epoch): a new text, '' for a deletion."""

    record: str
    text: str
    time: int


@dataclass(frozen=True, slots=True)
class Search:
    """The recorded search of an answer: its text, and how many hits with which least score it returned at most."""

    query: str
    limit: int
    threshold: float | None = None
    embedding_model: str = ""


class Replayer(Protocol):
    """Builds a memory again. A replayer never opens the user's store and calls no tool."""

    systems: frozenset[str]
    """Values of `memtrace.system` whose memories are built again."""

    def search(self, writes: Sequence[Write], search: Search) -> Sequence[str]:
        """Apply the writes to an empty scratch store, search, and return the texts of the hits, best first.

        Any exception means that the memory cannot be built again: the replay then works on the prompt alone.
        """
        ...


def load_replayer(name: str) -> Replayer:
    """Return the object `module:name`, also of the working directory. Raise ValueError where none has the protocol."""
    if "" not in sys.path:
        sys.path.append("")
    try:
        found = resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{name} cannot be loaded: {error}") from None
    found = found() if isinstance(found, type) else found
    if not (hasattr(found, "systems") and callable(getattr(found, "search", None))):
        raise ValueError(f"{name} is no replayer: `systems` and `search(writes, search)` are needed")
    return cast("Replayer", found)
