"""Planted faults of which a backend is told as they happen."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace

from memtrace_otel.model import OperationSpan
from tests.contract.planted import Fault, System, record
from tests.contract.story import STORY
from tests.e2e.moved import Move

MINUTE = 60 * 10**9
FASTER = 100_000


def planted(system: System, fault: Fault, story: int = 0) -> list[OperationSpan]:
    """A story with one fault, of an owner of its own, that has just happened: its weeks within seconds."""
    recording = record(system, fault, STORY[story], STORY[(story + 3) % len(STORY)])
    owner, first = secrets.token_hex(8), min(span.start for span in recording.spans)
    beginning = time.time_ns() - MINUTE
    move = Move(0)
    return [
        replace(
            move.span(span, 0),
            start=(start := beginning + (span.start - first) // FASTER),
            end=start + 10**6,
            scope=owner if span.scope else "",
            resource={"service.name": "assistant"},
        )
        for span in recording.spans
    ]
