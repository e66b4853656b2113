"""What is thrown away half-way in reference cycles dies in the garbage collector, anywhere."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace

from memtrace_otel import semconv
from memtrace_otel.capture import operation
from memtrace_otel.capture.abandoned import collecting, settle_abandoned
from tests.conftest import Recording

_PROGRAM = """
import gc
from opentelemetry.sdk.trace import TracerProvider
from memtrace_otel.capture import operation
from memtrace_otel.instrumentation.patches import Patches
from memtrace_otel.instrumentation.steps import observed

tracer = TracerProvider().get_tracer("t")

@operation(kind="respond", system="t", tracer=tracer, inputs={"query": "query"}, output="answer")
def decorated(query):
    yield "a"
    yield "b"

def inside(query):
    with operation(kind="respond", system="t", tracer=tracer) as op:
        op.wrote("answer:a", content=query)
        yield "a"

class Waits:
    def __await__(self):
        yield "a"

class Client:
    async def ask(self, query):
        await Waits()

def step(call):
    call.open(None, "respond", scope="")
    yield

def coroutine(query):
    return Client().ask(query)

class Reader:
    pass

left = {kind}
patches = Patches(tracer, "t")
patches.wrap(Client, "ask", step)
gc.set_threshold(1)
for number in range(3000):
    reader = Reader()
    reader.itself, reader.stream = reader, left(f"question {number}")
    reader.stream.send(None)
print("survived")
"""


@pytest.mark.parametrize("kind", ["decorated", "inside", "coroutine"])
def test_what_dies_in_a_collector_touches_no_context(kind: str) -> None:
    program = _PROGRAM.replace("{kind}", kind)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "survived\n", "")


def test_what_died_in_a_collector_is_told_with_the_next_operation(recording: Recording) -> None:
    class Reader:
        itself: object
        stream: object
        while_collected = False

        def __del__(self) -> None:
            Reader.while_collected = collecting()

    @operation(kind="respond", system="t", tracer=recording.tracer, output="answer")
    def answer() -> Iterator[str]:
        yield "a"
        yield "b"

    reader, stream = Reader(), answer()
    reader.itself, reader.stream = reader, stream
    next(stream)
    with recording.tracer.start_as_current_span("elsewhere"):
        here = trace.get_current_span()
        del reader, stream
        gc.collect()
        assert (Reader.while_collected, collecting()) == (True, False)
        assert recording.spans() == []
        with operation(kind="other", system="t", tracer=recording.tracer):
            pass
        assert trace.get_current_span() is here
    [told], [other] = recording.named("memtrace.respond"), recording.named("memtrace.other")
    assert (told.attributes or {})[semconv.OUTPUTS_SIZES] == (1,)
    assert told.parent is None
    assert other.parent == here.get_span_context()
    settle_abandoned()
    assert len(recording.spans()) == 3


_FINALIZERS = """
import faulthandler, gc
faulthandler.dump_traceback_later(60, exit=True)
from opentelemetry.sdk.trace import TracerProvider
from memtrace_otel.capture import operation

tracer = TracerProvider().get_tracer("t")

class Session:
    def __init__(self):
        self.itself = self

    def __del__(self):
        with operation("create_memory", kind="create", system="t", tracer=tracer):
            pass

Session(), Session()
gc.collect()
"""


def test_two_finalizers_that_use_operations_in_one_collection_do_not_wait_for_each_other() -> None:
    subprocess.run([sys.executable, "-c", _FINALIZERS], check=True)
