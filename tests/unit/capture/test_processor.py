"""The lossless processor in one process: batches, waiting times, failures of exporter and disk, lost spans."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from opentelemetry.context import get_value
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import set_span_in_context

from memtrace_otel import semconv
from memtrace_otel.capture import drops, operation
from memtrace_otel.capture.delivery import LosslessSpanProcessor
from memtrace_otel.capture.delivery.losses import Losses
from memtrace_otel.capture.delivery.queue import write_to_spool
from memtrace_otel.capture.delivery.spool import Spool, SpoolFull
from memtrace_otel.graph import build_graph
from memtrace_otel.otlp import decode_request


class Receiver(SpanExporter):
    """Keeps the names of the spans; `answer` returns the result of an export."""

    def __init__(self, answer: Callable[[Sequence[ReadableSpan]], object] = lambda spans: None) -> None:
        self.answer = answer
        self.batches: list[list[str]] = []
        self.spans: list[ReadableSpan] = []
        self.ended = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self.answer(spans)
        if result is not SpanExportResult.FAILURE:
            self.batches.append([span.name for span in spans])
            self.spans += spans
        return result  # type: ignore[return-value]

    def shutdown(self) -> None:
        self.ended = True

    @property
    def names(self) -> Counter[str]:
        return Counter(name for batch in self.batches for name in batch)


class Pipeline:
    """A provider with a lossless processor around `receiver`."""

    def __init__(self, receiver: Receiver, directory: Path, **options: object) -> None:
        options = {"delay_seconds": 0.02, "spool_dir": directory} | options
        self.processor = LosslessSpanProcessor(receiver, **options)  # type: ignore[arg-type]
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(self.processor)
        self.tracer = self.provider.get_tracer("tests")

    def make(self, amount: int, name: str = "span") -> Counter[str]:
        for n in range(amount):
            self.tracer.start_span(f"{name}{n}").end()
        return Counter(f"{name}{n}" for n in range(amount))

    def make_watched(self, amount: int, clock: Clock, name: str = "span") -> list[float]:
        """Seconds that each span made its caller sleep."""
        waits: list[float] = []
        for n in range(amount):
            before = clock.slept
            self.tracer.start_span(f"{name}{n}").end()
            waits.append(clock.slept - before)
        return waits


class Clock:
    """The clock of the caller's side of the processor: time goes by as callers sleep, not as the machine is busy."""

    def __init__(self) -> None:
        self.began, self.slept = time.monotonic(), 0.0

    def monotonic(self) -> float:
        return self.began + self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        time.sleep(seconds)


MakePipeline = Callable[..., Pipeline]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("memtrace_otel.capture.delivery.processor.time", clock)
    return clock


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[MakePipeline]:
    made: list[Pipeline] = []

    def make(receiver: Receiver, **options: object) -> Pipeline:
        made.append(Pipeline(receiver, tmp_path, **options))
        return made[-1]

    drops.clear()
    yield make
    for each in made:
        each.processor.shutdown(0.1)
    drops.clear()


def eventually(condition: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.01)


def down(spans: Sequence[ReadableSpan]) -> SpanExportResult:
    return SpanExportResult.FAILURE


def test_spans_arrive_in_batches_within_the_delay(pipeline: MakePipeline) -> None:
    receiver = Receiver()
    made = pipeline(receiver, batch_size=10).make(25)
    eventually(lambda: receiver.names == made)
    assert max(map(len, receiver.batches)) <= 10


def test_flush_returns_when_everything_has_arrived(pipeline: MakePipeline) -> None:
    receiver = Receiver(lambda spans: time.sleep(0.02))
    ours = pipeline(receiver, batch_size=10, delay_seconds=60.0)
    made = ours.make(55)
    assert ours.provider.force_flush(5000)
    assert receiver.names == made


def test_shutdown_delivers_spans_and_ends_the_exporter(pipeline: MakePipeline) -> None:
    receiver = Receiver()
    ours = pipeline(receiver, delay_seconds=60.0)
    made = ours.make(1000)
    ours.provider.shutdown()
    assert receiver.names == made
    assert receiver.ended


def test_after_shutdown_spans_are_counted_and_nothing_is_raised(pipeline: MakePipeline) -> None:
    ours = pipeline(Receiver())
    ours.processor.shutdown()
    ours.processor.shutdown()
    ours.make(3)
    assert drops["span:shutdown"] == 3
    assert not ours.processor.force_flush()


def test_only_sampled_spans_are_taken(tmp_path: Path, pipeline: MakePipeline) -> None:
    receiver = Receiver()
    ours = pipeline(receiver)
    provider = TracerProvider(ALWAYS_OFF, shutdown_on_exit=False)
    provider.add_span_processor(ours.processor)
    provider.get_tracer("tests").start_span("no").end()
    ours.make(1)
    ours.processor.force_flush()
    assert receiver.names == {"span0": 1}


def test_exporter_runs_without_instrumentation(pipeline: MakePipeline) -> None:
    seen: list[object] = []
    ours = pipeline(Receiver(lambda spans: seen.append(get_value("suppress_instrumentation"))))
    ours.make(1)
    ours.processor.force_flush()
    assert seen == [True]


@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError, SystemExit])
def test_exporter_may_return_none_or_raise(error: type[BaseException], pipeline: MakePipeline) -> None:
    def explode(spans: Sequence[ReadableSpan]) -> None:
        receiver.answer = lambda spans: None
        raise error

    receiver = Receiver(explode)
    made = pipeline(receiver).make(5)
    eventually(lambda: receiver.names == made)
    assert not drops, "nothing was lost"


def test_failed_batch_waits_on_disk_and_arrives_when_the_exporter_works(tmp_path: Path, pipeline: MakePipeline) -> None:
    receiver = Receiver(down)
    ours = pipeline(receiver)
    made = ours.make(300)
    eventually(lambda: ours.processor.waiting == 0 and ours.processor.spooled_bytes > 0)
    made += ours.make(10, "later")
    assert not ours.processor.force_flush(2000)
    receiver.answer = lambda spans: None
    assert ours.processor.force_flush(10_000)
    assert receiver.names == made
    assert ours.processor.spooled_bytes == 0
    assert not list(tmp_path.rglob("*.spool"))


def test_failed_flush_keeps_the_pauses_of_a_dead_exporter(pipeline: MakePipeline) -> None:
    attempts: list[float] = []

    def refuse(spans: Sequence[ReadableSpan]) -> SpanExportResult:
        attempts.append(time.monotonic())
        return SpanExportResult.FAILURE

    ours = pipeline(Receiver(refuse), batch_size=1)
    ours.make(1)
    eventually(lambda: attempts)
    for _ in range(3):
        assert not ours.processor.force_flush(1000)
    flushed = len(attempts)
    time.sleep(1.5)  # pauses are 8 s by now
    assert len(attempts) <= flushed + 1


def test_hanging_exporter_never_blocks_a_caller_and_loses_nothing(pipeline: MakePipeline, clock: Clock) -> None:
    hanging = threading.Event()
    receiver = Receiver(lambda spans: hanging.wait(30))
    ours = pipeline(receiver, queue_size=100, batch_size=10, delay_seconds=60.0)
    assert not any(ours.make_watched(200, clock))
    eventually(lambda: ours.processor.waiting <= 110)
    hanging.set()
    assert ours.processor.force_flush(10_000)
    assert receiver.names == Counter(f"span{n}" for n in range(200))
    assert drops == {}


def test_memory_and_waiting_are_bounded_while_exporter_and_disk_hang(
    pipeline: MakePipeline, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, disk, writers = os.pwrite, threading.Event(), set[threading.Thread]()

    def hang(descriptor: int, data: bytes, offset: int) -> int:
        writers.add(threading.current_thread())
        disk.wait(30)
        return write(descriptor, data, offset)

    receiver = Receiver(lambda spans: disk.wait(30))
    ours = pipeline(receiver, queue_size=10, batch_size=5, block_seconds=0.03)
    made = ours.make(5, "first")
    eventually(lambda: ours.processor._queue.exporting)
    monkeypatch.setattr("os.pwrite", hang)
    waits = ours.make_watched(100, clock)
    assert len(ours.processor._queue) == 40
    assert 0 < max(waits) < 0.03
    assert sum(waits) < 1.1  # no wait after a second without progress
    disk.set()
    assert threading.current_thread() not in writers
    assert ours.processor.force_flush(30_000)
    made += Counter(f"span{n}" for n in range(100))
    assert (made - receiver.names).total() == drops["span:full"] == 60


@pytest.mark.parametrize("missing", ["memtrace-export", "memtrace-spool"])
def test_flush_delivers_spans_without_threads(
    missing: str, pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == missing:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    receiver = Receiver()
    ours = pipeline(receiver)
    made = ours.make(20)
    assert ours.processor.force_flush(10_000)
    assert receiver.names == made
    monkeypatch.setattr(threading.Thread, "start", start)
    ours.make(1, "later")
    eventually(lambda: receiver.names["later0"])


def test_dropped_spans_are_named_in_their_trace_and_make_its_graph_incomplete(pipeline: MakePipeline) -> None:
    receiver = Receiver(down)
    ours = pipeline(receiver, spool_bytes=0, queue_size=5, batch_size=5, block_seconds=0.0)
    ours.make(20)
    eventually(lambda: ours.processor._sender.failures)
    with ours.tracer.start_as_current_span("turn") as turn:
        context = set_span_in_context(turn)
        for _ in range(50):
            with operation(
                "search_memory", kind="retrieve", system="s", scope="abc", tracer=ours.tracer, parent=context
            ):
                pass
        dropped = drops["span:full"]
        assert dropped > 0  # some spans find room while the worker tries the disk
        receiver.answer = lambda spans: None
        assert ours.processor.force_flush()
    (named,) = [
        span
        for span in receiver.spans
        if span.context.trace_id == turn.context.trace_id and span.name == "memtrace.other"
    ]
    assert named.parent is not None
    assert named.parent.span_id == turn.context.span_id
    assert named.attributes == {
        semconv.OP_KIND: "other",
        semconv.SYSTEM: "s",
        semconv.SCOPE: "abc",
        semconv.INCOMPLETE: ("lost_spans",),
        semconv.LOST: dropped,
    }
    graph = build_graph(decode_request(encode_spans([named]).SerializeToString()), whole=False)
    assert graph.incomplete == {"lost_spans": dropped}


def test_number_of_traces_with_named_losses_is_bounded(pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memtrace_otel.capture.delivery.losses.MAX_TRACES", 10)
    ours = pipeline(Receiver())
    ours.processor.shutdown()
    ours.make(50)
    assert drops["span:shutdown"] == 50
    assert len(ours.processor._losses) == 10


@pytest.mark.parametrize("room", [3_000, 10_000])
def test_spans_are_written_as_far_as_the_spool_has_room(tmp_path: Path, room: int) -> None:
    drops.clear()
    tracer, spool = TracerProvider(shutdown_on_exit=False).get_tracer("tests"), Spool(tmp_path / "s", room)
    made = [tracer.start_span(5 if n == 5 else f"span{n}") for n in range(200)]  # type: ignore[arg-type]
    spans = [span._readable_span() for span in made]  # type: ignore[attr-defined]
    records, left = write_to_spool(spans, spool, Losses())
    assert len(records) == 200 - len(left) - drops["span:unencodable"]
    assert left == spans[-len(left) :]
    assert drops["span:unencodable"] == 1
    with pytest.raises(SpoolFull):
        spool.append(records[-1].body, records[-1].body)
    drops.clear()


def test_batch_of_a_slow_export_is_on_disk_and_not_sent_again(tmp_path: Path, pipeline: MakePipeline) -> None:
    hanging = threading.Event()
    receiver = Receiver(lambda spans: hanging.wait(30))
    ours = pipeline(receiver)
    made = ours.make(20)
    eventually(lambda: ours.processor.spooled_bytes > 0)
    (path,) = tmp_path.rglob("*.spool")
    eventually(lambda: all(name.encode() in path.read_bytes() for name in made))
    hanging.set()
    assert ours.processor.force_flush(5000)
    assert receiver.names == made


def test_refused_batch_is_sent_in_smaller_batches(pipeline: MakePipeline) -> None:
    receiver = Receiver(lambda spans: SpanExportResult.FAILURE if len(spans) > 3 else None)
    ours = pipeline(receiver, batch_size=64, delay_seconds=60.0)
    made = ours.make(64)
    ours.processor.force_flush(5000)
    receiver.answer = lambda spans: SpanExportResult.FAILURE if len(spans) > 3 else None
    eventually(lambda: ours.processor.force_flush(1000) or receiver.names == made)
    assert receiver.names == made
    assert drops == {}


def test_span_that_is_always_refused_does_not_block_other_spans(pipeline: MakePipeline) -> None:
    def picky(spans: Sequence[ReadableSpan]) -> object:
        return SpanExportResult.FAILURE if any(span.name == "span7" for span in spans) else None

    receiver = Receiver(picky)
    ours = pipeline(receiver, batch_size=16)
    made = ours.make(30)
    del made["span7"]
    eventually(lambda: made <= receiver.names, 20)

    def rejected() -> int:
        ours.make(1, "proof that it works")
        return drops["span:rejected"]

    eventually(rejected, 20)
    eventually(lambda: semconv.SPAN_NAME_PREFIX + "other" in receiver.names)
    assert drops["span:rejected"] == 1


def test_queue_keeps_spans_without_a_spool(pipeline: MakePipeline) -> None:
    receiver = Receiver(down)
    ours = pipeline(receiver, spool_bytes=0, queue_size=10, batch_size=5, block_seconds=0.0)
    made = ours.make(20)
    eventually(lambda: ours.processor._sender.failures)
    receiver.answer = lambda spans: None
    assert ours.processor.force_flush()
    assert receiver.names == made
    assert drops == {}


def test_spans_without_room_at_the_end_are_counted(pipeline: MakePipeline) -> None:
    ours = pipeline(Receiver(down), spool_bytes=0)
    ours.make(20)
    ours.processor.shutdown(1.0)
    assert drops == {"span:exit": 20}


def test_losses_that_a_lost_span_named_are_named_again(pipeline: MakePipeline) -> None:
    ours = pipeline(Receiver(), delay_seconds=60.0)
    losses = ours.processor._losses
    span = ours.tracer.start_span("slow step", attributes={semconv.LOST: 3, semconv.INCOMPLETE: ["truncated"]})
    losses.note(span._readable_span(), "full")  # type: ignore[attr-defined]
    (told,) = losses.take(9)
    losses.note(told, "telling")
    assert drops == {"span:full": 1}
    (again,) = losses.take(9)
    assert again.context.trace_id == span.get_span_context().trace_id
    assert (again.attributes or {})[semconv.LOST] == 4


def test_all_losses_are_named_at_once(pipeline: MakePipeline) -> None:
    receiver = Receiver()
    ours = pipeline(receiver, batch_size=10, delay_seconds=60.0)
    for _ in range(45):
        span = ours.tracer.start_span("lost")
        ours.processor._losses.note(span._readable_span(), "full")  # type: ignore[attr-defined]
    ours.make(1)
    eventually(lambda: receiver.names[semconv.SPAN_NAME_PREFIX + "other"] == 45, 20)


@pytest.mark.parametrize("hanging", [False, True])
def test_failed_flush_writes_all_spans_to_the_spool(hanging: bool, tmp_path: Path, pipeline: MakePipeline) -> None:
    go_on = threading.Event()

    def refuse(spans: Sequence[ReadableSpan]) -> SpanExportResult:
        go_on.wait(30 if hanging else 0)
        return SpanExportResult.SUCCESS if hanging else SpanExportResult.FAILURE

    receiver = Receiver(refuse)
    ours = pipeline(receiver, delay_seconds=60.0, batch_size=20)
    made = ours.make(200)
    assert not ours.provider.force_flush(100)
    (path,) = tmp_path.rglob("*.spool")
    body = path.read_bytes()
    assert Counter(name for name in made if name.encode() in body) == made
    receiver.answer = lambda spans: None
    go_on.set()
    assert ours.provider.force_flush(20_000)
    assert receiver.names == made


def test_failed_flush_writes_losses_to_the_spool(tmp_path: Path, pipeline: MakePipeline) -> None:
    ours = pipeline(Receiver(down), delay_seconds=60.0)
    span = ours.tracer.start_span("lost")
    ours.processor._losses.note(span._readable_span(), "full")  # type: ignore[attr-defined]
    ours.make(1)
    assert not ours.provider.force_flush(1000)
    (path,) = tmp_path.rglob("*.spool")
    assert semconv.LOST.encode() in path.read_bytes()


def test_full_spool_moves_on_behind_a_span_that_is_always_refused(pipeline: MakePipeline) -> None:
    receiver = Receiver(down)
    ours = pipeline(receiver, spool_bytes=20_000, batch_size=1)
    made = ours.make(200)
    del made["span0"]
    eventually(lambda: ours.processor.spooled_bytes > 0 and ours.processor.waiting > 0)
    receiver.answer = lambda spans: SpanExportResult.FAILURE if spans[0].name == "span0" else None
    eventually(lambda: ours.processor.force_flush(500) or made <= receiver.names)
    assert drops["error:delivery"] == 0


def test_span_that_cannot_be_encoded_is_dropped_alone(pipeline: MakePipeline) -> None:
    ours = pipeline(Receiver(down))
    ours.tracer.start_span(5).end()  # type: ignore[arg-type]
    made = ours.make(3)
    eventually(lambda: drops["span:unencodable"] == 1 and ours.processor.waiting == 0)
    receiver = Receiver()
    ours.processor.shutdown(1.0)
    other = pipeline(receiver)
    eventually(lambda: made <= receiver.names)
    assert other.processor.spooled_bytes >= 0


def test_span_that_ends_inside_on_end_does_not_deadlock(pipeline: MakePipeline) -> None:
    """A finalizer or a signal handler may end a span at any point of our code."""
    import sys

    receiver = Receiver(down)
    ours = pipeline(receiver, queue_size=50, batch_size=50, delay_seconds=60.0, block_seconds=1.0)
    depth = 0

    def interrupt(frame: object, event: str, argument: object) -> object:
        nonlocal depth
        if depth == 0 and threading.current_thread() is threading.main_thread():
            depth = 1
            ours.tracer.start_span("inner").end()
            depth = 0
        return interrupt

    measuring = sys.gettrace()  # of coverage, maybe
    sys.settrace(interrupt)  # type: ignore[arg-type]
    try:
        for _ in range(8):
            ours.tracer.start_span("outer").end()
    finally:
        sys.settrace(measuring)
    receiver.answer = lambda spans: None
    assert ours.processor.force_flush(20_000)
    assert receiver.names["outer"] == 8
    assert receiver.names["inner"] > 100
    assert drops == {}


def test_standard_environment_variables_apply(pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "7")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "many")
    receiver = Receiver()
    ours = pipeline(receiver, delay_seconds=None)
    made = ours.make(20)
    eventually(lambda: len(receiver.spans) == 14)
    time.sleep(0.6)  # our own delay would be over
    assert len(receiver.spans) == 14
    ours.processor.force_flush()
    assert receiver.names == made
    assert list(map(len, receiver.batches)) == [7, 7, 6]
