"""Traces that write a memory, read it and answer, as requests of about a given size."""

from __future__ import annotations

import random
from string import ascii_letters

from memtrace_otel.model import OperationSpan, Variable
from memtrace_otel.otlp import encode_request
from memtrace_otel.testing import contract_span

HERE, THERE = "a" * 16, "b" * 16
SECRET = "the secret is 4711"


def text(trace: int, size: int) -> str:
    """Return `size` random letters, which do not compress."""
    return "".join(random.Random(trace).choices(ascii_letters, k=size))


def life(trace: int, scope: str = HERE, size: int = 10) -> list[OperationSpan]:
    """Return a trace of three spans: a memory is written, read, and used in an answer."""
    writer = contract_span(
        trace,
        10 * trace + 1,
        trace,
        kind="create",
        scope=scope,
        outputs=(Variable(f"memory:{trace}", action="ADD", content=SECRET + text(trace, size)),),
    )
    hit = Variable(f"memory:{trace}", "hit", origin=writer.origin)
    reader = contract_span(trace, 10 * trace + 2, trace, kind="retrieve", scope=scope, inputs=(hit,))
    answer = contract_span(
        trace,
        10 * trace + 3,
        trace,
        kind="respond",
        inputs=(Variable(f"context:{trace}", "context", reader.origin),),
        outputs=(Variable(f"answer:{trace}", "answer", content=SECRET),),
    )
    return [writer, reader, answer]


def request(trace: int, scope: str = HERE, size: int = 10) -> bytes:
    return encode_request(life(trace, scope, size))
