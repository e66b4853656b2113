"""Replay: undo the blamed fault, run again what follows, and look whether the answer flips."""

from memtrace_otel.attribution.replay.replayer import Replayer, Search, Write, load_replayer
from memtrace_otel.attribution.replay.verify import Cost, Verifier

__all__ = ["Cost", "Replayer", "Search", "Verifier", "Write", "load_replayer"]
