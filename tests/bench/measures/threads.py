"""Operations recorded of eight threads that know nothing of tracing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from smartcomment import comment_graph, comment_session

from memtrace_otel import semconv
from memtrace_otel.capture import operation
from memtrace_otel.capture.processor import LosslessSpanProcessor
from tests.bench import peer
from tests.bench.measure import Measure, at_least, progress

THREADS, EACH = 8, 1_000


def upper(text: str) -> str:
    return text.upper()


def work(function: Callable[[str], str]) -> None:
    """The threaded program."""
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda thread: [function(f"{thread}-{n}") for n in range(EACH)], range(THREADS)))


def measure() -> Iterator[Measure]:
    progress(f"{THREADS} x {EACH:,} operations")
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(LosslessSpanProcessor(exporter))
    tracer = provider.get_tracer("bench")
    work(operation(kind="extract", system="bench", tracer=tracer, inputs={"text": "message"}, output="fact")(upper))
    provider.shutdown()
    with comment_graph() as graph, comment_session():
        work(peer.comment_fn(op_name="bench.work")(upper))
        theirs = graph.op_count
    facts = {span.attributes[semconv.OUTPUTS] for span in exporter.get_finished_spans() if span.attributes}
    name = f"threads: different operations recorded of {THREADS} x {EACH:,}"
    yield at_least(name, len(facts), THREADS * EACH, "operations", peer=theirs)
