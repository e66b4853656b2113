"""Signal handlers of the program may use its memory: every lock of ours is re-entrant for its thread."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from memtrace_otel import instrumentation
from memtrace_otel.instrumentation.llamaindex.nodes import Piece
from memtrace_otel.instrumentation.llamaindex.state import Ledger

PLAIN = re.compile(r"\bLock\b")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_known_texts_may_change_during_a_lookup() -> None:
    known = Ledger()
    if (child := os.fork()) == 0:
        signal.alarm(10)  # ends a child that waits
        with known._lock:  # pyright: ignore[reportPrivateUsage]
            known.put("of ann", Piece("chunk:a", "a", "x", "x"))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_every_lock_is_re_entrant() -> None:
    sources = [p for p in Path(instrumentation.__file__).parent.rglob("*.py") if p.name != "store_location.py"]
    assert [path.name for path in sources if PLAIN.search(path.read_text())] == []
