"""Our processor in the place of the stock one: what is replaced, what stays, what moves over."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from memtrace_otel.capture.delivery import LosslessSpanProcessor, replace_batch_processors
from memtrace_otel.capture.hooks import post_instrument


@pytest.fixture(autouse=True)
def spool_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMTRACE_SPOOL_DIR", str(tmp_path))


@pytest.fixture
def provider() -> Iterator[TracerProvider]:
    made = TracerProvider(shutdown_on_exit=False)
    yield made
    made.shutdown()


def processors(provider: TracerProvider) -> tuple[SpanProcessor, ...]:
    return provider._active_span_processor._span_processors


def test_each_batch_processor_is_replaced_in_its_place_and_others_stay(provider: TracerProvider) -> None:
    class Special(BatchSpanProcessor):
        pass

    exporters = [InMemorySpanExporter() for _ in range(4)]
    kept = SimpleSpanProcessor(exporters[0]), Special(exporters[1])
    for processor in (kept[0], BatchSpanProcessor(exporters[2]), kept[1], BatchSpanProcessor(exporters[3])):
        provider.add_span_processor(processor)
    assert replace_batch_processors(provider) == 2
    now = processors(provider)
    assert (now[0], now[2]) == kept
    assert [type(now[1]), type(now[3])] == [LosslessSpanProcessor] * 2
    provider.get_tracer("t").start_span("one").end()
    assert provider.force_flush()
    assert [[span.name for span in exporter.get_finished_spans()] for exporter in exporters] == [["one"]] * 4
    assert replace_batch_processors(provider) == 0
    assert processors(provider) == now


def test_spans_that_wait_move_over_and_the_exporter_stays_open(provider: TracerProvider) -> None:
    exporter = InMemorySpanExporter()
    stock = BatchSpanProcessor(exporter, schedule_delay_millis=60_000)
    provider.add_span_processor(stock)
    tracer = provider.get_tracer("t")
    for n in range(5):
        tracer.start_span(str(n)).end()
    late = tracer.start_span("late")
    replace_batch_processors(provider)
    # threads that were on their way through the old processor: an unended span is as good here
    stock.on_end(late)
    stock._batch_processor.emit(tracer.start_span("later"))
    stock._batch_processor._queue.appendleft(tracer.start_span("latest"))
    stock._batch_processor._worker_thread.join(5)
    assert not stock._batch_processor._worker_thread.is_alive()
    stock.shutdown()
    tracer.start_span("new").end()
    assert provider.force_flush()
    assert [span.name for span in exporter.get_finished_spans()] == [*"01234", "late", "later", "latest", "new"]


def test_what_somebody_chose_is_kept(provider: TracerProvider) -> None:
    for options in ({}, {"max_queue_size": 100, "max_export_batch_size": 10, "schedule_delay_millis": 2000}):
        provider.add_span_processor(BatchSpanProcessor(InMemorySpanExporter(), **options))  # type: ignore[arg-type]
    replace_batch_processors(provider)
    ours, chosen = processors(provider)
    assert isinstance(ours, LosslessSpanProcessor)
    assert isinstance(chosen, LosslessSpanProcessor)
    assert (ours._queue_size, ours._batch_size, ours._delay) == (2048, 256, 0.5)
    assert (chosen._queue_size, chosen._batch_size, chosen._delay) == (100, 10, 2.0)


def test_what_looks_different_is_left_alone(provider: TracerProvider) -> None:
    stock = BatchSpanProcessor(InMemorySpanExporter())
    inner = stock._batch_processor
    provider.add_span_processor(stock)
    stock._batch_processor = object()  # type: ignore[assignment]
    try:
        assert replace_batch_processors(provider) == 0
        assert processors(provider) == (stock,)
    finally:
        stock._batch_processor = inner
    for other in (trace.ProxyTracerProvider(), trace.NoOpTracerProvider(), object()):
        assert replace_batch_processors(other) == 0  # type: ignore[arg-type]


def test_the_hook_follows_the_setting(monkeypatch: pytest.MonkeyPatch, provider: TracerProvider) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    provider.add_span_processor(BatchSpanProcessor(InMemorySpanExporter()))
    monkeypatch.setenv("MEMTRACE_PROCESSOR", "stock")
    post_instrument()
    assert isinstance(processors(provider)[0], BatchSpanProcessor)
    monkeypatch.delenv("MEMTRACE_PROCESSOR")
    post_instrument()
    post_instrument()
    assert [type(each) for each in processors(provider)] == [LosslessSpanProcessor]


SIGTERM_RULES = """
import signal, sys, threading
from opentelemetry.sdk.trace.export import ConsoleSpanExporter
from memtrace_otel.capture.delivery import LosslessSpanProcessor
make = lambda: LosslessSpanProcessor(ConsoleSpanExporter(), spool_dir=sys.argv[2])
own = lambda number, frame: None
if sys.argv[1] == "handled":
    signal.signal(signal.SIGTERM, own)
if sys.argv[1] == "ignored":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if sys.argv[1] == "thread":
    thread = threading.Thread(target=make); thread.start(); thread.join()
else:
    make(); make()
found = signal.getsignal(signal.SIGTERM)
print("own" if found is own else found if isinstance(found, signal.Handlers) else "ours")
"""


@pytest.mark.parametrize(
    ("case", "found"), [("default", "ours"), ("handled", "own"), ("ignored", "1"), ("thread", "0")]
)
def test_sigterm_is_only_handled_where_nobody_does(case: str, found: str, tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", SIGTERM_RULES, case, str(tmp_path)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    words = {"0": str(signal.SIG_DFL), "1": str(signal.SIG_IGN)}
    assert done.stdout.strip() == words.get(found, found)


def test_replacing_while_threads_end_spans_loses_none(provider: TracerProvider) -> None:
    exporter = InMemorySpanExporter()
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=100_000, schedule_delay_millis=60_000))
    tracer = provider.get_tracer("t")
    going = threading.Event()

    def work() -> None:
        for _ in range(1000):
            tracer.start_span("s").end()
            going.set()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    going.wait()
    assert replace_batch_processors(provider) == 1
    for thread in threads:
        thread.join()
    assert provider.force_flush()
    assert len(exporter.get_finished_spans()) == 4000
