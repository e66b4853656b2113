"""`watch`: what fails is attributed once it is quiet, new failures first, through errors of the backend."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from threading import Event

import pytest

from memtrace_otel.annotate import Annotation, SendError, publish
from memtrace_otel.annotate.target import Target
from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import decode_request
from memtrace_otel.semconv import ATTRIBUTION_SCOPE
from memtrace_otel.store import StoreError
from memtrace_otel.store.http import UnreachableError
from memtrace_otel.watch import Watch, summary
from tests.contract.planted import Fault, System, record
from tests.contract.story import STORY
from tests.unit.store.listed_source import ListedSource

QUIET = 10.0


def story(fault: Fault = Fault.GARBLED, number: int = 0) -> list[OperationSpan]:
    return record(System.ADDITIVE, fault, STORY[number], STORY[3]).spans


@dataclass
class Clock:
    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    return clock


class Told:
    """A source, the receiver that is the same backend, and a watch over them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317")
        monkeypatch.setenv("OTEL_LOGS_EXPORTER", "none")
        monkeypatch.setattr(publish, "send", self.take)
        self.source = ListedSource()
        self.verdicts: list[Annotation] = []
        self.down = False
        self.watch = self.restarted()

    def restarted(self) -> Watch:
        return Watch(self.source, since=0, quiet=QUIET, told=self.verdicts.append)

    def take(self, target: Target, body: bytes) -> None:
        if self.down:
            raise SendError(target, "it is down")
        self.source.tell(decode_request(body))

    @property
    def ours(self) -> list[str]:
        return [span.span_id for span in self.source.told if span.instrumentation_scope == ATTRIBUTION_SCOPE]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    return Told(monkeypatch)


def test_a_failing_trace_is_attributed_when_it_has_been_quiet(told: Told, clock: Clock) -> None:
    spans = story()
    told.source.tell(spans[:-1], story(Fault.NONE, 1))
    assert told.watch.search() == 0
    told.source.tell(spans[-1:])
    clock.now += 600  # its time is long past: only the search of everything finds it
    assert told.watch.search() == 1
    assert told.watch.attribute_due() == 0
    clock.now += QUIET / 2
    told.source.tell([OperationSpan(spans[-1].trace_id, "e" * 16, start=spans[-1].start)])
    clock.now += QUIET / 2
    assert told.watch.attribute_due() == 0
    clock.now += QUIET
    assert told.watch.attribute_due() == 1
    (made,) = told.verdicts
    assert made.verdict.failure_type == "extraction"
    assert sorted(told.ours) == sorted(set(told.ours)) != []
    assert f"{made.verdict.failure.answer_span.origin}: extraction at memtrace.extract" in summary(made)


def test_a_name_of_anybody_steers_no_terminal(told: Told, clock: Clock) -> None:
    told.source.tell([replace(span, name=f"a\n\x1b[31m{'b' * 500}") for span in story()])
    assert settle(told, clock) == 1
    line = summary(told.verdicts[0])
    assert " at a [31mbbb" in line
    assert line.isprintable()
    assert len(line) < 400


def test_a_trace_that_never_gets_quiet_is_attributed_all_the_same(told: Told, clock: Clock) -> None:
    spans = story()
    told.source.tell(spans)
    told.watch.search()
    for n in range(1, 30):
        told.source.tell([OperationSpan(spans[-1].trace_id, f"{n:016x}", start=spans[-1].start)])
        if told.watch.attribute_due():
            return
        clock.now += QUIET / 2
    pytest.fail("it was never attributed")


def settle(told: Told, clock: Clock, watch: Watch | None = None) -> int:
    """Search, and attribute what is due until it is quiet."""
    watch = watch or told.watch
    watch.search()
    new = 0
    for _ in range(3):
        new += watch.attribute_due()
        clock.now += QUIET
    return new


def test_another_start_repeats_nothing_and_misses_nothing(told: Told, clock: Clock) -> None:
    told.source.tell(story())
    assert settle(told, clock) == 1
    sent = list(told.ours)
    told.source.tell(story(Fault.GARBLED, 1))
    assert settle(told, clock, told.restarted()) == 1
    assert told.ours[: len(sent)] == sent
    assert sorted(told.ours) == sorted(set(told.ours))
    assert settle(told, clock, told.restarted()) == 0


def test_a_span_that_comes_later_changes_the_verdict(told: Told, clock: Clock) -> None:
    spans = story(Fault.MERGED_AWAY)
    late = next(span for span in spans if span.kind == "update")
    told.source.tell([span for span in spans if span is not late])
    assert settle(told, clock) == 1
    told.source.tell([late])
    for _ in range(10):
        clock.now += QUIET
        told.watch.attribute_due()
    first, second = (made.verdict for made in told.verdicts)
    assert second.replaces == first.attribution_id
    assert second.failure_type == "update"
    asked = sum(told.source.asked.values())
    for _ in range(1000):
        clock.now += QUIET
        told.watch.attribute_due()
    assert sum(told.source.asked.values()) < asked + 200  # it is let alone after some time


def test_a_verdict_that_goes_nowhere_is_told_once(told: Told, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT")
    told.source.tell(story())
    assert settle(told, clock) == 1
    for _ in range(100):
        clock.now += QUIET
        assert told.watch.attribute_due() == 0
    assert len(told.verdicts) == 1
    assert told.ours == []


def test_a_receiver_that_is_down_gets_the_verdict_later_once(told: Told, clock: Clock) -> None:
    told.source.tell(story())
    told.down = True
    with pytest.raises(SendError):
        settle(told, clock)
    told.down = False
    clock.now += 2 * QUIET
    assert told.watch.attribute_due() == 1
    assert sorted(told.ours) == sorted(set(told.ours)) != []


def test_a_trace_that_cannot_be_read_keeps_nobody_waiting(
    told: Told, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bad = story()
    good = [replace(span, scope=span.scope and "b" * 16) for span in story(Fault.GARBLED, 1)]
    told.source.tell(bad, good)
    told.watch.search()
    told.watch.attribute_due()
    clock.now += QUIET
    read = ListedSource._read
    damaged = bad[0].trace_id

    def refuse(self: ListedSource, trace_id: str) -> list[OperationSpan]:
        if trace_id == damaged:
            raise StoreError("listed", "damaged")
        return read(self, trace_id)

    monkeypatch.setattr(ListedSource, "_read", refuse)
    assert told.watch.attribute_due() == 1
    assert "is left out for now: listed: damaged" in caplog.text


def test_it_goes_on_when_the_backend_is_back_and_ends_when_told(
    told: Told, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told.source.tell(story())
    search, pauses = ListedSource._search, list[float]()
    stopped = Event()

    def down(self: ListedSource, *arguments: object) -> object:
        if len(pauses) < 3:
            raise UnreachableError("listed", "connection refused")
        return search(self, *arguments)  # type: ignore[arg-type]

    def wait(seconds: float) -> bool:
        pauses.append(seconds)
        clock.now += seconds
        if told.verdicts or len(pauses) > 50:
            stopped.set()
        return stopped.is_set()

    monkeypatch.setattr(ListedSource, "_search", down)
    monkeypatch.setattr(stopped, "wait", wait)
    told.watch.run(5.0, stopped)
    assert pauses[0] < pauses[1] < pauses[2]
    assert len(told.verdicts) == 1
    assert caplog.text.count("connection refused") == 3
