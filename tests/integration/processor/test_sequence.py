"""Sequence numbers over a real fork into one database: a loss in parent and child is told, even behind one resource."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from memtrace_otel.graph.build import lost_spans
from memtrace_otel.sources import SqliteStore

PROGRAM = """
import os, sys
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from memtrace_otel import operation
from memtrace_otel.capture.delivery import LosslessSpanProcessor
from memtrace_otel.sources.exporter import MemtraceSpanExporter

class Losing(MemtraceSpanExporter):
    def export(self, spans):
        return super().export([span for span in spans if "memory:lost" not in span.attributes["memtrace.outputs"]])

def make(*ids):
    for id in ids:
        with operation("create_memory", kind="create", system="notes", scope="a" * 16) as op:
            op.wrote(f"memory:{id}", action="ADD")

database, spool = sys.argv[1:]
provider = TracerProvider(resource=Resource({"service.name": "notes", "process.pid": 1}))
provider.add_span_processor(LosslessSpanProcessor(Losing(database), spool_dir=spool))
trace.set_tracer_provider(provider)
make("before", "before")
child = os.fork()
make("after", "lost", "after", *["parent", "lost", "parent"] * (child != 0))
if child:
    os.waitpid(child, 0)
"""


def test_losses_are_told_of_parent_and_child(tmp_path: Path) -> None:
    database = tmp_path / "memtrace.db"
    subprocess.run([sys.executable, "-c", PROGRAM, database, tmp_path / "spool"], check=True, timeout=60)
    with SqliteStore.open(database, create=False) as store:
        spans = list(store.spans())
    assert len(spans) == 2 + 2 + 4
    assert len({span.seq for span in spans}) == len(spans)
    assert lost_spans(spans) == 1 + 2
    # The SDK gives a child a `service.instance.id`; earlier releases, and whatever removes it, leave one resource.
    assert lost_spans(replace(span, resource={"service.name": "notes"}) for span in spans) == 1 + 2
