"""A program that ends without a word to its provider.

python leaving.py sent.txt spool slow '{"shutdown_on_exit": false}' [early] [dropped] [forking]

`early`: the provider is made before our processor is imported; `dropped`: nothing holds it at the end.
"""

from __future__ import annotations

import json
import os
import sys

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

FILE, SPOOL, BEHAVIOUR, OPTIONS, *WAYS = sys.argv[1:]
SPANS = 100


def work() -> None:
    provider = TracerProvider(**json.loads(OPTIONS)) if "early" in WAYS else None
    from program import exporter

    from memtrace_otel.capture.delivery import LosslessSpanProcessor

    provider = provider or TracerProvider(**json.loads(OPTIONS))
    processor = LosslessSpanProcessor(exporter(BEHAVIOUR, FILE), spool_dir=SPOOL, delay_seconds=60.0)
    provider.add_span_processor(processor)
    if "dropped" not in WAYS:
        trace.set_tracer_provider(provider)
    name = "child" if "forking" in WAYS and os.fork() == 0 else "span"
    for n in range(SPANS):
        provider.get_tracer("leaving").start_span(f"{name}-{n}").end()
    if "forking" in WAYS and name == "span":
        os.wait()


work()
