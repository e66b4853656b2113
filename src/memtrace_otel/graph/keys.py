"""Keys of nodes, types of edges, and the classes of ref kinds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from memtrace_otel.semconv import ROOT_KINDS as ROOT_KINDS
from memtrace_otel.semconv import RefKind


class OperationKey(NamedTuple):
    """Node key of an operation: the origin `<trace id>-<span id>` of its span.

    A tuple, as all node keys: graph building hashes keys millions of times.
    """

    origin: str


class VersionKey(NamedTuple):
    """Node key of one version of a variable.

    A produced version has the origin of its producer and scope ''. A root, or a version whose producer is unknown, has
    origin '' and the scope of its readers.
    """

    ref: str
    origin: str
    scope: str = ""


NodeKey = OperationKey | VersionKey


class NodeType(StrEnum):
    """Value of the node attribute `type`."""

    OPERATION = "operation"
    VERSION = "version"


class EdgeType(StrEnum):
    """Value of the edge attribute `type`."""

    READ = "read"  # version -> operation
    PRODUCED = "produced"  # operation -> version
    REPORTED = "reported"  # operation -> version that an operation inside it produced
    SUPERSEDES = "supersedes"  # new version -> the version it replaces


@dataclass(frozen=True, slots=True)
class Read:
    """One read edge. `index` is the position in the span's inputs, -1 for an output that was left alone (action NONE).

    `rank` counts from 1 among the inputs of the same role of a retrieval or rerank, None elsewhere. `inferred` reads
    were resolved by time, not by a recorded origin.
    """

    version: VersionKey
    operation: OperationKey
    role: str
    index: int
    score: float | None = None
    rank: int | None = None
    inferred: bool = False

    @property
    def considered(self) -> bool:
        """Whether the operation listed the version among its outputs without a change."""
        return self.index < 0


RECORD_KINDS = frozenset({RefKind.MEMORY, RefKind.STATE, RefKind.CHUNK, RefKind.DOCUMENT})
"""Kinds whose id outlives its contents: a later write of the same ref supersedes the earlier one."""

TRACED_KINDS = frozenset(RefKind) - RECORD_KINDS
"""Kinds named by content or by span: the writer is searched in the trace of the reader first, in any scope."""

TURN_KINDS = TRACED_KINDS - {RefKind.FACT}
"""Kinds whose writer is searched in the trace only: equal refs of two traces can be two things."""

STORED_KINDS = frozenset({RefKind.MEMORY, RefKind.CHUNK, RefKind.DOCUMENT})
"""Records that a reading operation may list as results, and never produces."""
