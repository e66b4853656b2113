"""The lossless processor in one process: what it takes, how long it waits, what happens to what it cannot send."""

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
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import set_span_in_context

from memtrace_otel import semconv
from memtrace_otel.capture import drops, operation
from memtrace_otel.capture.delivery import LosslessSpanProcessor
from memtrace_otel.capture.delivery.losses import Losses
from memtrace_otel.capture.delivery.queue import InMemory, stow
from memtrace_otel.capture.delivery.spool import Spool, SpoolFull
from memtrace_otel.graph import build_graph
from memtrace_otel.otlp import decode_request


class Receiver(SpanExporter):
    """Keeps the names of what it takes; `answer` decides about a batch and may take its time."""

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


def test_shutdown_delivers_what_waits_and_ends_the_exporter(pipeline: MakePipeline) -> None:
    receiver = Receiver()
    ours = pipeline(receiver, delay_seconds=60.0)
    made = ours.make(1000)
    ours.provider.shutdown()
    assert receiver.names == made
    assert receiver.ended


def test_a_worker_that_comes_free_amid_the_end_takes_nothing_with_it(
    tmp_path: Path, pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, secure = threading.Event(), InMemory._secure  # pyright: ignore[reportPrivateUsage]
    ended = threading.Event()

    def secure_late(in_memory: InMemory, flight: object) -> None:
        hanging.set()  # the worker goes on between the end's first step and its last
        ended.wait(10)
        secure(in_memory, flight)  # type: ignore[arg-type]

    receiver = Receiver(lambda spans: hanging.wait(30))
    receiver.shutdown = ended.set  # type: ignore[method-assign]  # the last that the worker does
    ours = pipeline(receiver, delay_seconds=30.0, batch_size=4)
    made = ours.make(10)
    monkeypatch.setattr(InMemory, "_secure", secure_late)
    ours.processor.shutdown(0.1)
    (path,) = tmp_path.rglob("*.spool")
    body = path.read_bytes()
    assert receiver.names + Counter(name for name in made if name.encode() in body) == made


@pytest.mark.parametrize("before_the_end", [True, False])
def test_a_disk_that_hangs_in_a_write_does_not_hold_the_end_up(
    before_the_end: bool, pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, ended, writing = threading.Event(), threading.Event(), threading.Event()

    def hang(*arguments: object) -> None:
        writing.set()
        hanging.wait(60)
        raise OSError

    monkeypatch.setattr(Spool, "_write", hang)
    monkeypatch.setattr("memtrace_otel.capture.delivery.spool._HUNG_SECONDS", 0.1)
    receiver = Receiver(lambda spans: SpanExportResult.FAILURE)
    ours = pipeline(receiver, delay_seconds=0.02 if before_the_end else 30.0)

    def end() -> None:
        ours.processor.shutdown(0.1)
        ours.make(2, "late")
        ended.set()

    try:
        ours.make(10)
        assert not before_the_end or writing.wait(30), "the worker or the watcher writes"
        threading.Thread(target=end, daemon=True).start()
        assert ended.wait(30), "while the write still hangs"
        assert writing.is_set()
        assert drops["span:exit"] == 10
        assert drops["span:shutdown"] == 2
    finally:
        hanging.set()
        watcher = ours.processor._delivery._watcher  # pyright: ignore[reportPrivateUsage]
        assert watcher is not None
        watcher.join(60)
    assert drops["span:exit"] == 10, "counted once"


def test_a_disk_that_hangs_over_what_was_delivered_does_not_hold_the_end_up(
    pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, acknowledging, ended, answer = (threading.Event() for _ in range(4))

    def hang(*_: object) -> None:
        acknowledging.set()
        disk.wait(120)

    monkeypatch.setattr("memtrace_otel.capture.delivery.segment.Segment.acknowledge", hang)
    monkeypatch.setattr("memtrace_otel.capture.delivery.spool._HUNG_SECONDS", 0.1)
    ours = pipeline(Receiver(lambda spans: answer.wait(60)))
    try:
        ours.make(10)
        eventually(lambda: (flight := ours.processor._delivery.in_memory._flight) and flight.secured)
        answer.set()  # the worker holds the batch, and the spool, while the disk hangs
        assert acknowledging.wait(60)
        threading.Thread(target=lambda: ours.processor.shutdown(0.1) or ended.set(), daemon=True).start()
        assert ended.wait(60), "while the disk still hangs"
    finally:
        disk.set()


def test_a_flush_waits_for_losses_that_are_on_their_way_to_the_spool(
    pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery = pipeline(Receiver(), delay_seconds=60.0).processor._delivery
    span = TracerProvider().get_tracer("tests").start_span("lost")
    delivery._losses.note(span._readable_span(), "full")  # type: ignore[attr-defined]
    telling, go_on = threading.Event(), threading.Event()

    def refuse(spans: Sequence[ReadableSpan], *_: object) -> tuple[list[object], Sequence[ReadableSpan]]:
        telling.set()
        go_on.wait(60)
        return [], spans

    monkeypatch.setattr("memtrace_otel.capture.delivery.queue.stow", refuse)
    watcher = threading.Thread(target=delivery.in_memory.stow_told, args=(0,))
    watcher.start()
    assert telling.wait(60)
    assert not delivery._idle()
    go_on.set()
    watcher.join()
    assert not delivery._idle()  # the spool had no room for them
    delivery._losses.take()
    assert delivery._idle()


def test_what_is_counted_as_left_is_not_kept_when_it_comes_back(pipeline: MakePipeline) -> None:
    ours = pipeline(Receiver(), batch_size=40, delay_seconds=60.0)
    in_memory = ours.processor._delivery.in_memory
    made = ours.make(10)
    flight = in_memory.take_off(4)
    assert flight is not None
    flight.secured, flight.left = [], flight.spans  # the spool had no room for them
    assert Counter(span.name for span in in_memory.left()) == made
    in_memory.land(flight, False)
    assert not in_memory.left()


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


def test_the_exporters_own_calls_make_no_spans(pipeline: MakePipeline) -> None:
    seen: list[object] = []
    ours = pipeline(Receiver(lambda spans: seen.append(get_value("suppress_instrumentation"))))
    ours.make(1)
    ours.processor.force_flush()
    assert seen == [True]


@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError, SystemExit])
def test_an_exporter_that_returns_nothing_or_raises(error: type[BaseException], pipeline: MakePipeline) -> None:
    def explode(spans: Sequence[ReadableSpan]) -> None:
        receiver.answer = lambda spans: None
        raise error

    receiver = Receiver(explode)
    made = pipeline(receiver).make(5)
    eventually(lambda: receiver.names == made)
    assert not drops, "nothing was lost"


def test_a_failed_batch_waits_on_disk_and_arrives_once_the_exporter_works(
    tmp_path: Path, pipeline: MakePipeline
) -> None:
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


def test_a_flush_in_vain_does_not_hurry_a_dead_exporter_for_ever(pipeline: MakePipeline) -> None:
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


def test_a_hanging_exporter_holds_a_caller_up_once_and_nothing_is_lost(pipeline: MakePipeline, clock: Clock) -> None:
    hanging = threading.Event()
    receiver = Receiver(lambda spans: hanging.wait(30))
    ours = pipeline(receiver, queue_size=50, batch_size=10, delay_seconds=60.0)
    waits = ours.make_watched(200, clock)
    assert 0.03 < max(waits) < 0.05
    assert len([wait for wait in waits if wait > 0.03]) <= 2
    eventually(lambda: ours.processor.waiting <= 60)
    hanging.set()
    assert ours.processor.force_flush(10_000)
    assert receiver.names == Counter(f"span{n}" for n in range(200))
    assert drops == {}


@pytest.mark.parametrize("missing", ["memtrace-export", "memtrace-watch"])
def test_a_lack_of_threads_holds_nobody_up_and_a_later_span_tries_again(
    missing: str, pipeline: MakePipeline, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, tries = threading.Thread.start, list[str]()

    def refuse(thread: threading.Thread) -> None:
        if thread.name == missing:
            tries.append(missing)
            raise RuntimeError("can't start new thread")
        start(thread)

    hanging = threading.Event()
    receiver = Receiver(lambda spans: hanging.wait(30))
    monkeypatch.setattr("memtrace_otel.capture.delivery.worker._START_SECONDS", 1000.0)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    ours = pipeline(receiver, queue_size=10, batch_size=5)
    assert not any(ours.make_watched(50, clock))
    assert tries == [missing]
    assert 0 < drops["span:full"] <= 30
    hanging.set()
    monkeypatch.setattr(threading.Thread, "start", start)
    ours.processor._delivery._start_at = 0.0
    ours.make(1, "later")
    eventually(lambda: receiver.names["later0"] or ours.make(1, "later"))
    assert ours.processor._delivery.started


def test_a_flush_without_threads_works_by_itself_and_alone(
    pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, workers = threading.Thread.start, list[object]()

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "memtrace-export":
            raise RuntimeError("can't start new thread")
        start(thread)

    def amid(spans: Sequence[ReadableSpan]) -> None:
        monkeypatch.setattr(threading.Thread, "start", start)
        ours.processor._delivery._start_at = 0.0
        ours.make(1, "amid")
        workers.append(ours.processor._delivery._worker)
        receiver.answer = lambda spans: None

    monkeypatch.setattr(threading.Thread, "start", refuse)
    receiver = Receiver(amid)
    ours = pipeline(receiver)
    made = ours.make(20)
    assert ours.processor.force_flush(10_000)
    assert workers == [None]
    assert receiver.names == made + Counter(["amid0"])


def refuse_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("memtrace-"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)


def test_a_flush_without_threads_raises_nothing_when_the_disk_refuses(
    pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_threads(monkeypatch)
    receiver = Receiver(down)
    ours = pipeline(receiver, batch_size=1)
    made = ours.make(1)
    assert not ours.processor.force_flush(1000)

    def full(descriptor: int, data: bytes, offset: int) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr("os.pwrite", full)
        assert not ours.processor.force_flush(1000)
    assert drops["error:delivery"] == 1
    assert ours.processor._sender.failures == 2  # a pause follows
    receiver.answer = lambda spans: None
    assert ours.processor.force_flush(10_000)
    assert receiver.names == made


def test_a_spool_that_fails_at_the_end_keeps_nothing_else_from_it(
    tmp_path: Path, pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object) -> None:
        raise TimeoutError("the spool is busy")

    refuse_threads(monkeypatch)
    receiver = Receiver(down)
    ours = pipeline(receiver, batch_size=1)
    ours.make(3)
    span = ours.tracer.start_span("lost")
    ours.processor._losses.note(span._readable_span(), "full")  # type: ignore[attr-defined]
    monkeypatch.setattr(ours.processor._delivery, "_has_emptied", busy)
    monkeypatch.setattr(ours.processor._delivery.in_memory, "save", busy)
    ours.processor.shutdown(1.0)
    (path,) = tmp_path.rglob("*.spool")
    assert path.read_bytes().count(semconv.LOST.encode()) == 4  # of the lost one, and of three not saved
    assert receiver.ended
    assert not ours.processor._spool._segments


async def test_an_event_loop_is_never_held_up(pipeline: MakePipeline, clock: Clock) -> None:
    hanging = threading.Event()
    receiver = Receiver(lambda spans: hanging.wait(30))
    ours = pipeline(receiver, queue_size=50, batch_size=10, delay_seconds=60.0, block_seconds=5.0)
    made = ours.make(100)
    assert clock.slept == 0
    await asyncio.sleep(0)
    hanging.set()
    assert await asyncio.to_thread(ours.processor.force_flush, 10_000)
    assert receiver.names == made


async def test_an_event_loop_never_writes_to_a_slow_disk(
    pipeline: MakePipeline, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, disk = os.pwrite, threading.Event()

    def slow(descriptor: int, data: bytes, offset: int) -> int:
        assert threading.current_thread() is not threading.main_thread() or len(data) == 1  # one byte is a mark
        disk.wait(10)
        return write(descriptor, data, offset)

    hanging = threading.Event()
    receiver = Receiver(lambda spans: hanging.wait(30))
    ours = pipeline(receiver, queue_size=10, batch_size=5)
    made = ours.make(5)
    eventually(lambda: ours.processor._delivery.in_memory.in_flight)
    monkeypatch.setattr("os.pwrite", slow)
    assert not any(ours.make_watched(20, clock, "more"))  # up to twice the queue
    assert max(ours.make_watched(2, clock, "then")) < 0.05  # the disk may be quick
    eventually(lambda: ours.processor._spool.stuck)
    assert not any(ours.make_watched(38, clock, "last"))  # it is not
    disk.set()
    hanging.set()
    assert await asyncio.to_thread(ours.processor.force_flush, 30_000)
    made += Counter(f"{name}{n}" for name, amount in (("more", 20), ("then", 2), ("last", 38)) for n in range(amount))
    assert (made - receiver.names).total() == drops["span:full"]
    assert 0 < drops["span:full"] <= 40


@pytest.mark.parametrize("loop", [False, True])
def test_nobody_waits_for_a_slow_disk_and_memory_is_bounded(
    loop: bool, pipeline: MakePipeline, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, disk, writers = os.pwrite, threading.Event(), set[threading.Thread]()

    def slow(descriptor: int, data: bytes, offset: int) -> int:
        writers.add(threading.current_thread())
        disk.wait(0 if threading.current_thread() is threading.main_thread() else 30)
        return write(descriptor, data, offset)

    async def make_on_a_loop() -> list[float]:
        return ours.make_watched(100, clock)

    hanging = threading.Event()
    receiver = Receiver(lambda spans: hanging.wait(30))
    ours = pipeline(receiver, queue_size=10, batch_size=5, block_seconds=0.02)
    made = ours.make(5, "first")
    eventually(lambda: ours.processor._delivery.in_memory.in_flight)
    monkeypatch.setattr("os.pwrite", slow)
    monkeypatch.setattr("memtrace_otel.capture.delivery.spool._STUCK_SECONDS", 1000.0)  # slow, that is, not stuck
    waits = asyncio.run(make_on_a_loop()) if loop else ours.make_watched(100, clock)
    most = len(ours.processor._queue)
    disk.set()
    hanging.set()
    assert most == 40
    assert max(waits) < 0.02
    assert threading.main_thread() not in writers
    assert ours.processor.force_flush(30_000)
    made += Counter(f"span{n}" for n in range(100))
    assert (made - receiver.names).total() == drops["span:full"] == 60
    assert not receiver.names - made - Counter({semconv.SPAN_NAME_PREFIX + "other": 60})


@pytest.mark.parametrize("room", [3_000, 10_000])
def test_what_has_no_room_on_disk_together_is_written_as_far_as_it_has(tmp_path: Path, room: int) -> None:
    drops.clear()
    tracer, spool = TracerProvider(shutdown_on_exit=False).get_tracer("tests"), Spool(tmp_path / "s", room)
    made = [tracer.start_span(5 if n == 5 else f"span{n}") for n in range(200)]  # type: ignore[arg-type]
    spans = [span._readable_span() for span in made]  # type: ignore[attr-defined]
    records, left = stow(spans, spool, Losses())
    assert len(records) == 200 - len(left) - drops["span:unencodable"]
    assert left == spans[-len(left) :]
    assert drops["span:unencodable"] == 1
    with pytest.raises(SpoolFull):
        spool.append(records[-1].body, records[-1].body)
    drops.clear()


def test_a_slow_export_is_secured_on_disk_and_not_sent_again(tmp_path: Path, pipeline: MakePipeline) -> None:
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


def test_a_batch_that_is_too_large_is_sent_in_pieces(pipeline: MakePipeline) -> None:
    receiver = Receiver(lambda spans: SpanExportResult.FAILURE if len(spans) > 3 else None)
    ours = pipeline(receiver, batch_size=64, delay_seconds=60.0)
    made = ours.make(64)
    ours.processor.force_flush(5000)
    receiver.answer = lambda spans: SpanExportResult.FAILURE if len(spans) > 3 else None
    eventually(lambda: ours.processor.force_flush(1000) or receiver.names == made)
    assert receiver.names == made
    assert drops == {}


def test_a_batch_that_comes_back_amid_the_watchers_work_is_kept(
    pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = pipeline(Receiver(), batch_size=40, delay_seconds=60.0)
    in_memory = ours.processor._delivery.in_memory
    made = ours.make(10)
    flight = in_memory.take_off(4)
    assert flight is not None
    flight.secured, flight.left = [], flight.spans  # the spool had no room for them
    give_back = threading.Thread(target=in_memory.land, args=(flight, False))
    stowed: Counter[str] = Counter()

    def append(spans: Sequence[ReadableSpan], *_: object) -> tuple[list[object], Sequence[ReadableSpan]]:
        if not stowed:
            give_back.start()
            give_back.join(0.2)
        stowed.update(span.name for span in spans)
        return [], ()

    monkeypatch.setattr("memtrace_otel.capture.delivery.queue.stow", append)
    in_memory.stow()
    give_back.join()
    monkeypatch.undo()
    assert stowed + Counter(span.name for span in ours.processor._queue) == made


def test_a_span_that_is_always_refused_does_not_hold_the_others_up(pipeline: MakePipeline) -> None:
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


def test_drops_are_told_in_their_trace_and_make_its_graph_incomplete(pipeline: MakePipeline) -> None:
    receiver = Receiver(down)
    ours = pipeline(receiver, spool_bytes=0, queue_size=5, batch_size=5, block_seconds=0.0)
    ours.make(10)
    eventually(lambda: ours.processor._sender.failures)
    with ours.tracer.start_as_current_span("turn") as turn:
        context = set_span_in_context(turn)
        for _ in range(50):
            with operation(
                "search_memory", kind="retrieve", system="s", scope="abc", tracer=ours.tracer, parent=context
            ):
                pass
        dropped = drops["span:full"]
        assert dropped > 0  # some may slip in while the worker tries the disk
        receiver.answer = lambda spans: None
        assert ours.processor.force_flush()
    (told,) = [
        span
        for span in receiver.spans
        if span.context.trace_id == turn.context.trace_id and span.name == "memtrace.other"
    ]
    assert told.parent is not None
    assert told.parent.span_id == turn.context.span_id
    assert told.attributes == {
        semconv.OP_KIND: "other",
        semconv.SYSTEM: "s",
        semconv.SCOPE: "abc",
        semconv.INCOMPLETE: ("lost_spans",),
        semconv.LOST: dropped,
    }
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    graph = build_graph(decode_request(encode_spans([told]).SerializeToString()), whole=False)
    assert graph.incomplete == {"lost_spans": dropped}


def test_with_no_room_on_disk_the_queue_keeps_what_it_can(pipeline: MakePipeline) -> None:
    receiver = Receiver(down)
    ours = pipeline(receiver, spool_bytes=0, queue_size=10, batch_size=5, block_seconds=0.0)
    made = ours.make(20)
    eventually(lambda: ours.processor._sender.failures)
    receiver.answer = lambda spans: None
    assert ours.processor.force_flush()
    assert receiver.names == made
    assert drops == {}


def test_what_neither_arrives_nor_finds_room_at_the_end_is_counted(pipeline: MakePipeline) -> None:
    ours = pipeline(Receiver(down), spool_bytes=0)
    ours.make(20)
    ours.processor.shutdown(1.0)
    assert drops == {"span:exit": 20}


def test_what_ends_while_the_process_leaves_and_finds_no_room_is_told_on_disk(pipeline: MakePipeline) -> None:
    ours = pipeline(Receiver(down), spool_bytes=50_000)
    ours.make(200)
    ours.processor.leave(1.0)
    before = drops["span:exit"]
    ours.make(3, "late")
    ours.processor._spool.close()  # the process ends
    receiver = Receiver()
    assert pipeline(receiver, spool_bytes=50_000).processor.force_flush()
    told = [(span.attributes or {}).get(semconv.LOST) for span in receiver.spans]
    assert drops == {"span:exit": before, "span:shutdown": 3}
    assert sum(amount for amount in told if isinstance(amount, int)) == before + 3


def test_the_traces_that_are_told_of_are_bounded(pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memtrace_otel.capture.delivery.losses.MAX_TRACES", 10)
    ours = pipeline(Receiver())
    ours.processor.shutdown()
    ours.make(50)
    assert drops["span:shutdown"] == 50
    assert len(ours.processor._losses) == 11
    told = {span.context.trace_id: (span.attributes or {})[semconv.LOST] for span in ours.processor._losses.take()}
    assert sorted(told.values()) == [*[1] * 10, 40]  # type: ignore[type-var]


def test_what_a_lost_span_was_to_tell_of_is_told_with_it(pipeline: MakePipeline) -> None:
    ours = pipeline(Receiver(), delay_seconds=60.0)
    losses = ours.processor._losses
    span = ours.tracer.start_span("slow step", attributes={semconv.LOST: 3, semconv.INCOMPLETE: ["truncated"]})
    losses.note(span._readable_span(), "full")  # type: ignore[attr-defined]
    (told,) = losses.take()
    losses.note(told, "telling")
    assert drops == {"span:full": 1}
    (again,) = losses.take()
    assert again.context.trace_id == span.get_span_context().trace_id
    assert (again.attributes or {})[semconv.LOST] == 4


def test_all_losses_are_told_at_once(pipeline: MakePipeline) -> None:
    receiver = Receiver()
    ours = pipeline(receiver, batch_size=10, delay_seconds=60.0)
    for _ in range(45):
        span = ours.tracer.start_span("lost")
        ours.processor._losses.note(span._readable_span(), "full")  # type: ignore[attr-defined]
    ours.make(1)
    eventually(lambda: receiver.names[semconv.SPAN_NAME_PREFIX + "other"] == 45, 20)


@pytest.mark.parametrize("hanging", [False, True])
def test_a_flush_in_vain_leaves_nothing_in_memory_alone(hanging: bool, tmp_path: Path, pipeline: MakePipeline) -> None:
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


def test_a_flush_in_vain_brings_losses_to_the_spool(tmp_path: Path, pipeline: MakePipeline) -> None:
    ours = pipeline(Receiver(down), delay_seconds=60.0)
    span = ours.tracer.start_span("lost")
    ours.processor._losses.note(span._readable_span(), "full")  # type: ignore[attr-defined]
    ours.make(1)
    assert not ours.provider.force_flush(1000)
    (path,) = tmp_path.rglob("*.spool")
    assert semconv.LOST.encode() in path.read_bytes()


@pytest.mark.parametrize("delivered", [False, True])
@pytest.mark.parametrize("spool_bytes", [None, 0])
def test_what_an_exporter_is_told_of_losses_while_it_hangs_is_kept(
    delivered: bool, spool_bytes: int | None, tmp_path: Path, pipeline: MakePipeline
) -> None:
    told, go_on = threading.Event(), threading.Event()

    def hang(spans: Sequence[ReadableSpan]) -> SpanExportResult:
        told.set()
        go_on.wait(60)
        receiver.answer = lambda spans: None
        return SpanExportResult.SUCCESS if delivered else SpanExportResult.FAILURE

    receiver = Receiver(hang)
    ours = pipeline(receiver, spool_bytes=spool_bytes)
    span = ours.tracer.start_span("lost")
    ours.processor._losses.note(span._readable_span(), "full")  # type: ignore[attr-defined]
    ours.processor._delivery.start()
    assert told.wait(60)
    assert not ours.provider.force_flush(100)
    found = [path.read_bytes().count(semconv.LOST.encode()) for path in tmp_path.rglob("*.spool")]
    assert sum(found) == (spool_bytes is None)
    go_on.set()
    eventually(lambda: ours.provider.force_flush(5000))
    assert [(span.attributes or {}).get(semconv.LOST) for span in receiver.spans] == [1]
    assert drops == {"span:full": 1}


def test_what_an_exporter_is_told_of_losses_amid_the_end_is_left_on_disk(
    tmp_path: Path, pipeline: MakePipeline
) -> None:
    told, go_on = threading.Event(), threading.Event()
    receiver = Receiver(lambda spans: told.set() or go_on.wait(60))
    ours = pipeline(receiver)
    span = ours.tracer.start_span("lost")
    ours.processor._losses.note(span._readable_span(), "full")  # type: ignore[attr-defined]
    ours.processor._delivery.start()
    assert told.wait(60)
    ours.processor.shutdown(0.1)
    (path,) = tmp_path.rglob("*.spool")
    assert path.read_bytes().count(semconv.LOST.encode()) == 1
    go_on.set()
    eventually(lambda: receiver.ended)


def test_a_flush_in_vain_does_not_wait_for_a_disk_that_hangs(
    pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, disk, writers = os.pwrite, threading.Event(), set[threading.Thread]()

    def hang(descriptor: int, data: bytes, offset: int) -> int:
        writers.add(threading.current_thread())
        disk.wait(60)
        return write(descriptor, data, offset)

    monkeypatch.setattr("os.pwrite", hang)
    monkeypatch.setattr("memtrace_otel.capture.delivery.worker._SAVE_SECONDS", 0.1)
    receiver = Receiver(down)
    ours = pipeline(receiver, delay_seconds=60.0)
    made = ours.make(10)
    assert not ours.provider.force_flush(100)  # returns, that is
    assert threading.current_thread() not in writers
    receiver.answer = lambda spans: None
    disk.set()
    eventually(lambda: ours.provider.force_flush(5000))
    assert receiver.names == made


def test_a_full_spool_goes_on_behind_a_span_that_is_always_refused(pipeline: MakePipeline) -> None:
    receiver = Receiver(down)
    ours = pipeline(receiver, spool_bytes=20_000, batch_size=1)
    made = ours.make(200)
    del made["span0"]
    eventually(lambda: ours.processor.spooled_bytes > 0 and ours.processor._spool._refused)
    receiver.answer = lambda spans: SpanExportResult.FAILURE if spans[0].name == "span0" else None
    eventually(lambda: ours.processor.force_flush(500) or made <= receiver.names)
    assert drops["error:delivery"] == 0


def test_a_span_that_cannot_be_encoded_is_dropped_alone(pipeline: MakePipeline) -> None:
    ours = pipeline(Receiver(down))
    ours.tracer.start_span(5).end()  # type: ignore[arg-type]
    made = ours.make(3)
    eventually(lambda: drops["span:unencodable"] == 1 and ours.processor.waiting == 0)
    receiver = Receiver()
    ours.processor.shutdown(1.0)
    other = pipeline(receiver)
    eventually(lambda: made <= receiver.names)
    assert other.processor.spooled_bytes >= 0


def test_a_span_ended_amid_the_end_of_another_does_not_hang(pipeline: MakePipeline) -> None:
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


def test_standard_variables_are_honoured(pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch) -> None:
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
