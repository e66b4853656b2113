"""What every form of an operation costs while nothing is recorded.

Of a decorated function that is what it costs more than the plain one; of a `with`, all of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any

from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Tracer
from smartcomment import disable_tracing

from memtrace_otel.capture import operation
from tests.bench import peer
from tests.bench.measure import Measure, at_most, progress, side_by_side

CALLS = 2_000
Loop = Callable[[], None]


def plain(text: str) -> str:
    return text


async def coroutine(text: str) -> str:
    return text


def generator(text: str) -> Iterator[str]:
    yield text


async def async_generator(text: str) -> AsyncIterator[str]:
    yield text


def calls(function: Callable[[str], object]) -> Loop:
    def run() -> None:
        for _ in range(CALLS):
            function("message")

    return run


def awaits(function: Callable[[str], Coroutine[Any, Any, object]]) -> Loop:
    async def run() -> None:
        for _ in range(CALLS):
            await function("message")

    return lambda: finish(run())


def reads(function: Callable[[str], Iterator[str]]) -> Loop:
    def run() -> None:
        for _ in range(CALLS):
            for _ in function("message"):
                pass

    return run


def reads_async(function: Callable[[str], AsyncIterator[str]]) -> Loop:
    async def run() -> None:
        for _ in range(CALLS):
            async for _ in function("message"):
                pass

    return lambda: finish(run())


def finish(work: Coroutine[Any, Any, None]) -> None:
    """Run what never waits, without an event loop."""
    with suppress(StopIteration):
        work.send(None)


FORMS: dict[str, tuple[Callable[..., Any], Callable[..., Loop]]] = {
    "decorated function": (plain, calls),
    "decorated coroutine function": (coroutine, awaits),
    "decorated generator of one item": (generator, reads),
    "decorated async generator of one item": (async_generator, reads_async),
}


def overhead(decorated: Callable[..., Any], function: Callable[..., Any], loop: Callable[..., Loop]) -> float:
    """Microseconds that a decorated function costs more than it does without."""
    theirs, own = side_by_side(loop(decorated), loop(function), calls=1, rounds=100)
    return (min(theirs) - min(own)) / CALLS


def blocks(tracer: Tracer | None) -> dict[str, Loop]:
    """`with` in loops."""

    def empty() -> None:
        for _ in range(CALLS):
            with operation("search_memory", kind="retrieve", system="bench", tracer=tracer):
                pass

    def more() -> None:
        given = {"server.address": "localhost"}
        for _ in range(CALLS):
            with operation(kind="rerank", system="bench", purpose="rerank", attributes=given, tracer=tracer):
                pass

    def calls_on_it() -> None:
        for _ in range(CALLS):
            with operation("search_memory", kind="retrieve", system="bench", tracer=tracer) as op:
                op.read("memory:1", role="hit", content="text", score=0.5)
                op.wrote("context:1", role="context", content="text")

    return {
        "with operation(...)": empty,
        "with operation(...), purpose and attributes": more,
        "calls of read and wrote in a with": calls_on_it,
    }


def costs(tracer: Tracer | None = None) -> dict[str, float]:
    """Microseconds of every form, of which nothing is recorded now."""
    decorator = operation(kind="extract", system="bench", tracer=tracer, inputs={"text": "message"}, output="fact")
    found = {name: overhead(decorator(function), function, loop) for name, (function, loop) in FORMS.items()}
    for name, loop in blocks(tracer).items():
        found[name] = min(side_by_side(loop, calls=1, rounds=100)[0]) / CALLS
    found["calls of read and wrote in a with"] -= found["with operation(...)"]
    return found


def disabled() -> dict[str, float]:
    """The same in a process whose SDK is disabled by OTEL_SDK_DISABLED."""
    code = (
        "import json; from opentelemetry import trace; from opentelemetry.sdk.trace import TracerProvider;"
        "trace.set_tracer_provider(TracerProvider());"
        "from tests.bench.measures.off import costs; print(json.dumps(costs()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "OTEL_SDK_DISABLED": "true"}, capture_output=True, check=True
    )
    return json.loads(done.stdout)


def rows(found: dict[str, float], why: str, theirs: float) -> Iterator[Measure]:
    for name, cost in found.items():
        peers = theirs if name == "decorated function" else None
        yield at_most(f"off: {name}, {why}", cost, 0.5, "us", peer=peers)


def measure() -> Iterator[Measure]:
    progress("no SDK")
    disable_tracing()
    theirs = overhead(peer.comment_fn(op_name="bench.plain")(plain), plain, calls)
    yield from rows(costs(), "no SDK set up", theirs)
    progress("SDK disabled, instrumentation suppressed")
    yield from rows(disabled(), "OTEL_SDK_DISABLED", theirs)
    with suppress_instrumentation():
        yield from rows(costs(TracerProvider().get_tracer("bench")), "instrumentation suppressed", theirs)
