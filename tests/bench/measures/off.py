"""What a decorated function and a `with operation(...)` cost while nothing is recorded."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator

from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk.trace import TracerProvider
from smartcomment import disable_tracing

from memtrace_otel.capture import operation
from tests.bench import peer
from tests.bench.measure import Measure, at_most, progress, side_by_side

CALLS = 2_000


def plain(text: str) -> str:
    return text


def overhead(decorated: Callable[[str], str]) -> float:
    """Microseconds that a decorated function costs more than the plain one."""

    def loop(function: Callable[[str], str]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(CALLS):
                function("message")

        return run

    theirs, own = side_by_side(loop(decorated), loop(plain), calls=1, rounds=150)
    return (min(theirs) - min(own)) / CALLS


def with_block() -> float:
    """Microseconds of an empty block."""

    def loop() -> None:
        for _ in range(CALLS):
            with operation("search_memory", kind="retrieve", system="bench"):
                pass

    return min(side_by_side(loop, calls=1, rounds=150)[0]) / CALLS


def pieces(text: str) -> Iterator[str]:
    yield text


def generators() -> float:
    """Microseconds that a decorated generator of one piece costs more than the plain one."""
    decorated = operation(kind="respond", system="bench", inputs={"text": "query"}, output="answer")(pieces)
    return overhead(lambda text: deque(decorated(text), 1)[0]) - overhead(lambda text: deque(pieces(text), 1)[0])


def disabled() -> float:
    """The decorator in a process whose SDK is disabled by OTEL_SDK_DISABLED."""
    code = (
        "from opentelemetry import trace; from opentelemetry.sdk.trace import TracerProvider;"
        "trace.set_tracer_provider(TracerProvider());"
        "from tests.bench.measures.off import overhead, ours; print(overhead(ours))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "OTEL_SDK_DISABLED": "true"}, capture_output=True, check=True
    )
    return float(done.stdout)


@operation(kind="extract", system="bench", inputs={"text": "message"}, output="fact")
def ours(text: str) -> str:
    return text


def measure() -> Iterator[Measure]:
    progress("no SDK")
    disable_tracing()
    theirs = overhead(peer.comment_fn(op_name="bench.plain")(plain))
    yield at_most("off: decorated function, no SDK set up", overhead(ours), 0.5, "us", peer=theirs)
    yield at_most("off: with operation(...), no SDK set up", with_block(), 0.5, "us")
    yield at_most("off: decorated generator, no SDK set up", generators(), 0.5, "us")
    progress("SDK disabled, instrumentation suppressed")
    yield at_most("off: decorated function, OTEL_SDK_DISABLED", disabled(), 0.5, "us", peer=theirs)
    tracer = TracerProvider().get_tracer("bench")
    recorded = operation(kind="extract", system="bench", tracer=tracer, inputs={"text": "message"}, output="fact")(
        plain
    )
    with suppress_instrumentation():
        yield at_most("off: decorated function, instrumentation suppressed", overhead(recorded), 0.5, "us", peer=theirs)
