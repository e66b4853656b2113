"""A program whose children of multiprocessing make spans and simply return.

python children.py fork import sent.txt spool      # processor made when this module is imported, or in the `child`
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from program import Exporter

from memtrace_otel.capture.processor import LosslessSpanProcessor

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
    for n in range(SPANS):
        trace.get_tracer("child").start_span(f"child-{n}").end()


if WHERE == "import":
    set_up()
if __name__ == "__main__" and METHOD != "none":
    child = multiprocessing.get_context(METHOD).Process(target=work)
    child.start()
    child.join()
