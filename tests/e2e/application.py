"""An observed application in a process of its own, with failing and with good answers:

    python -m tests.e2e.application SERVICE FAILURES GOOD ENDPOINT...

Its spans go to every OTLP/HTTP endpoint. Prints the ids of the failing traces.
"""

from __future__ import annotations

import secrets
import sys

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Tracer

from memtrace_otel import configure
from memtrace_otel.capture import feedback, operation, scope_id

SYSTEM = "notes"


def answer(tracer: Tracer, fails: bool) -> str:
    """A fact is stored, overwritten when the answer `fails`, and asked for; return the id of the asking trace."""
    user = secrets.token_hex(8)
    about = {"system": SYSTEM, "scope": scope_id("store", user=user), "tracer": tracer}
    said, kept = "My train leaves at 9:40", "Ana's train leaves at 9:40"
    with operation("upsert_memory", kind="ingest", **about) as add:
        add.read(f"message:{user}", role="message", content=said)
        with operation(kind="extract", **about) as extract:
            extract.read(f"message:{user}", role="message", content=said)
            extract.wrote(f"fact:{user}", content=kept)
        with operation("create_memory", kind="create", **about) as create:
            create.read(f"fact:{user}", content=kept)
            create.wrote(f"memory:{user}", action="ADD", content=kept)
    if fails:
        with operation("update_memory", kind="update", **about) as update:
            update.read(f"memory:{user}", role="previous", content=kept)
            kept = "Ana takes the train"
            update.wrote(f"memory:{user}", action="UPDATE", content=kept)
    with tracer.start_as_current_span("turn"):
        question = "When does my train leave?"
        with operation("search_memory", kind="retrieve", **about) as search:
            search.read(f"query:{user}", role="query", content=question)
            search.read(f"memory:{user}", role="hit", content=kept, score=0.9)
            search.wrote(f"context:{user}", role="context", content=kept)
        with operation("chat", kind="respond", **about) as chat:
            chat.read(f"query:{user}", role="query", content=question)
            chat.read(f"context:{user}", role="context", origin=search.origin)
            chat.wrote(f"answer:{user}", role="answer", content="I do not know." if fails else "At 9:40.")
        feedback("fail" if fails else "pass", expected="At 9:40", answer=chat.origin, tracer=tracer)
    return chat.origin.partition("-")[0]


def main(service: str, failures: str, good: str, *endpoints: str) -> None:
    configure(capture_content="SPAN_ONLY")
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    for endpoint in endpoints:
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{endpoint}/v1/traces")))
    tracer = provider.get_tracer("tests")
    for _ in range(int(good)):
        answer(tracer, fails=False)
    print(*(answer(tracer, fails=True) for _ in range(int(failures))))
    provider.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
