"""Replay: undo the blamed fault, run again what follows, and look whether the answer flips."""

from memtrace_otel.attribution.replay.mem0 import Mem0Replayer
from memtrace_otel.attribution.replay.replayer import Replayer, Search, Write, load_replayer
from memtrace_otel.attribution.replay.stores import VectorReplayer, WholeReplayer
from memtrace_otel.attribution.replay.verify import Cost, Verifier

__all__ = ["Cost", "Replayer", "Search", "Verifier", "Write", "known_replayers", "load_replayer"]


def known_replayers() -> list[Replayer]:
    """Return the replayers of the memories that need no code of the user."""
    return [Mem0Replayer(), VectorReplayer(), WholeReplayer()]
