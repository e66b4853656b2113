"""A program whose children of multiprocessing make spans and simply return, or are terminated by their pool.

python children.py fork import sent.txt spool      # processor made when this module is imported, or in the `child`
python children.py fork pool sent.txt spool        # children of a pool, processor made when imported
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from program import Exporter

from memtrace_otel.capture.delivery import LosslessSpanProcessor

METHOD, WHERE, FILE, SPOOL = sys.argv[1:]
SPANS = 100


def set_up() -> None:
    provider = TracerProvider()
    provider.add_span_processor(LosslessSpanProcessor(Exporter(FILE, "slow"), spool_dir=SPOOL, delay_seconds=60.0))
    trace.set_tracer_provider(provider)


def end_late() -> None:
    time.sleep(0.5)  # the child's function has long returned
    trace.get_tracer("child").start_span("late").end()


def work() -> None:
    if WHERE == "child":
        set_up()
    threading.Thread(target=end_late).start()
    make_spans()


def make_spans(task: int = 0) -> None:
    for n in range(SPANS):
        trace.get_tracer("child").start_span(f"child-{n}").end()


if WHERE != "child":
    set_up()
if __name__ == "__main__" and METHOD != "none":
    context = multiprocessing.get_context(METHOD)
    if WHERE == "pool":
        with context.Pool(2) as pool:  # its end tells the children to return and sends SIGTERM after that
            pool.map(make_spans, range(4))
    else:
        child = context.Process(target=work)
        child.start()
        child.join()
