"""`watch`: what fails is attributed once it is quiet, new failures first, through errors of the backend."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Event

import pytest

from memtrace_otel.annotate import Annotation, AttributionMetrics, SendError, publish
from memtrace_otel.annotate.target import Target
from memtrace_otel.model import Attributed, OperationSpan, Variable, Verdict
from memtrace_otel.otlp import decode_request
from memtrace_otel.pipeline.watch import Observer, Watch, summary
from memtrace_otel.semconv import ATTRIBUTION_SCOPE, EVALUATION_LABEL
from memtrace_otel.sources import SourceLimitError, StoreError
from memtrace_otel.sources.http import Address, BackendApi, Bounds, FailedError, UnreachableError
from memtrace_otel.sources.remote import Found
from memtrace_otel.sources.wanted import Wanted
from tests.contract.planted import Fault, System, record
from tests.contract.story import STORY
from tests.unit.sources.listed_source import ListedSource

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
        self.rejected = self.refused = ""
        """The receiver takes no verdict on this trace: a part of the request, or no such request."""
        self.tries = 0
        self.watch = self.restarted()

    def restarted(self) -> Watch:
        return Watch(self.source, since=0, quiet=QUIET, told=self.verdicts.append)

    def take(self, target: Target, body: bytes) -> None:
        if self.down:
            raise SendError(target, "it is down")
        spans = decode_request(body)
        self.tries += 1
        if any(span.trace_id == self.rejected for span in spans):
            raise SendError(target, "1 rejected: no", partial=True)
        if any(span.trace_id == self.refused for span in spans):
            raise SendError(target, "HTTP 403 Forbidden", refused=True)
        self.source.tell(spans)

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


def test_a_live_trace_whose_failing_evaluations_never_pause_is_attributed_all_the_same(
    told: Told, clock: Clock
) -> None:
    """And again, when late spans change the picture meanwhile."""
    spans = story(Fault.MERGED_AWAY)
    late = next(span for span in spans if span.kind == "update")
    judge = next(span for span in spans if EVALUATION_LABEL in span.attributes)
    told.source.tell([span for span in spans if span is not late])
    attributed = list[int]()
    for n in range(60):
        now = time.time_ns()
        told.source.tell([replace(judge, span_id=f"{n + 1:016x}", start=now, end=now)])
        told.watch.search()
        attributed += [n] * told.watch.attribute_due()
        if n == 30:
            told.source.tell([late])
        clock.now += QUIET / 2
    assert [made.verdict.failure_type for made in told.verdicts][1:] == ["update"]
    assert [n // 30 for n in attributed] == [0, 1]


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


def test_a_verdict_waits_for_the_answering_span(told: Told, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    counted = Counted()
    watch = Watch(told.source, since=0, quiet=QUIET, told=told.verdicts.append, observer=counted)
    spans = [replace(span, resource={"service.name": "assistant"}) for span in story(Fault.MERGED_AWAY)]
    answer = next(span for span in spans if span.kind == "respond")
    told.source.tell([span for span in spans if span is not answer])
    assert settle(told, clock, watch) == 0
    assert (told.ours, told.verdicts, counted.verdicts) == ([], [], 0)
    asked = sum(told.source.asked.values())
    for _ in range(60):
        clock.now += QUIET
        assert watch.attribute_due() == 0
    assert caplog.text.count(answer.origin) == 1
    assert sum(told.source.asked.values()) < asked + 100
    told.source.tell([answer])
    new = 0
    for _ in range(100):
        clock.now += QUIET
        new += watch.attribute_due()
    assert (new, counted.verdicts, [made.verdict.replaces for made in told.verdicts]) == (1, 1, [""])
    marker = next(span for span in told.source.told if span.span_id in told.ours and span.trace_id == answer.trace_id)
    assert marker.service == "assistant"
    assert answer.start <= marker.start <= marker.end <= answer.end


def test_an_answering_span_that_never_comes_is_not_waited_for_without_end(told: Told, clock: Clock) -> None:
    told.source.tell([span for span in story() if span.kind != "respond"])
    assert settle(told, clock) == 0
    clock.now += 7200
    told.watch.attribute_due()
    asked = sum(told.source.asked.values())
    for _ in range(1000):
        clock.now += QUIET
        assert told.watch.attribute_due() == 0
    assert sum(told.source.asked.values()) == asked
    assert told.ours == []


def test_a_verdict_made_of_a_part_replaces_none(
    told: Told, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told.source.tell(story(Fault.DELETED))
    assert settle(told, clock) == 1
    sent = list(told.ours)

    def refuse(self: ListedSource, scopes: Collection[str]) -> dict[str, list[str]]:
        raise SourceLimitError("listed", "too many traces", is_reply=True)

    with monkeypatch.context() as broken:
        broken.setattr(ListedSource, "find_traces", refuse)
        assert settle(told, clock, told.restarted()) == 0
    assert "does not replace the verdict that is there" in caplog.text
    assert caplog.text.count("not all is read") == 1
    assert told.ours == sent
    assert len(told.verdicts) == 1


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
    told.watch.attribute_due()
    assert sorted(told.ours) == sorted(set(told.ours)) != []
    assert len(told.verdicts) == 1


def test_no_round_seems_well_while_the_receiver_is_down(told: Told, clock: Clock) -> None:
    """However much longer the quiet period is than the interval."""
    rounds, stopped = list[bool](), Event()

    class Counted:
        def expects(self, system: str, service: str) -> None: ...
        def attributed(self, told: Attributed) -> None: ...
        def failed(self) -> None: ...
        def searched(self, succeeded: bool, waiting: int) -> None:
            rounds.append(succeeded)

    def wait(seconds: float) -> bool:
        clock.now += max(seconds, 0.1)
        if clock.now > 1500:
            stopped.set()
        return stopped.is_set()

    told.source.tell(story())
    told.down = True
    stopped.wait = wait  # type: ignore[method-assign]
    Watch(told.source, since=0, quiet=3 * QUIET, observer=Counted()).run(QUIET / 2, stopped)
    first = rounds.index(False)
    assert len(rounds[first:]) > 4
    assert not any(rounds[first:])


def test_a_verdict_that_the_receiver_rejects_is_left_out_and_holds_up_no_other(
    told: Told, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spans = story()
    told.source.tell(spans, story(number=1))
    told.rejected = next(span for span in spans if span.kind == "respond").trace_id
    waits, stopped = list[float](), Event()

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        clock.now += seconds
        if clock.now > 3000:
            stopped.set()
        return stopped.is_set()

    monkeypatch.setattr(stopped, "wait", wait)
    told.watch.run(5.0, stopped)
    assert (len(told.verdicts), told.tries) == (2, 2)
    assert sorted(told.ours) == sorted(set(told.ours)) != []
    assert max(waits) < 6  # no pause
    assert caplog.text.count("is left out") == caplog.text.count(f"the verdict on {told.rejected}-") == 1


class Rounds(Observer):
    """What a watch says of its rounds."""

    def __init__(self) -> None:
        self.succeeded: list[bool] = []

    def searched(self, succeeded: bool, waiting: int) -> None:
        self.succeeded.append(succeeded)


def run_until(watch: Watch, clock: Clock, end: float, then: Callable[[], None] = lambda: None) -> None:
    """Run a watch in the time of the clock; `then` is called in each pause."""
    stopped = Event()

    def wait(seconds: float) -> bool:
        clock.now += max(1.0, seconds)
        then()
        if clock.now > end:
            stopped.set()
        return stopped.is_set()

    stopped.wait = wait  # type: ignore[method-assign]
    watch.run(60.0, stopped)


def test_a_verdict_whose_request_is_refused_holds_up_no_other_and_is_sent_when_it_is_taken(
    told: Told, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    spans = story()
    told.source.tell(spans, story(number=1))
    told.refused = next(span for span in spans if span.kind == "respond").trace_id

    def mend() -> None:
        if clock.now > 20_000:
            told.refused = ""

    run_until(told.watch, clock, 30_000, mend)
    assert (len(told.verdicts), len(told.ours)) == (2, len(set(told.ours)))
    assert len({span.trace_id for span in told.source.told if span.span_id in told.ours}) == 6
    assert 7 < caplog.text.count("is sent again in ") < 11  # after 1, 4, 16, 60, 60 ... minutes


def test_new_evaluations_do_not_bring_the_next_try_with_a_refused_verdict_forward(told: Told, clock: Clock) -> None:
    spans = story()
    told.source.tell(spans)
    told.refused = next(span for span in spans if span.kind == "respond").trace_id
    number = iter(range(1, 10_000))

    def judge() -> None:
        told.source.tell([replace(spans[-1], span_id=f"{next(number):016x}")])

    run_until(told.watch, clock, 3000, judge)
    assert told.tries < 6


def test_a_refused_verdict_on_an_answer_that_no_longer_fails_is_done(told: Told, clock: Clock) -> None:
    spans = story()
    told.source.tell(spans)
    told.refused = next(span for span in spans if span.kind == "respond").trace_id
    run_until(told.watch, clock, 1500)
    told.source.told.clear()
    reads = list[str]()
    read = told.source._read
    told.source._read = lambda trace_id: reads.append(trace_id) or read(trace_id)  # type: ignore[method-assign]
    run_until(told.watch, clock, 100_000)
    assert len(reads) < 30


@pytest.mark.parametrize("then", ["left out", "rejected"])
def test_what_was_refused_and_is_not_sent_again_makes_no_haste(
    then: str, told: Told, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = story()
    told.source.tell(spans)
    answer = next(span for span in spans if span.kind == "respond")
    told.refused = answer.trace_id
    waits = list[float]()
    read = ListedSource._read

    def hide(self: ListedSource, trace_id: str) -> list[OperationSpan]:
        if clock.now > 1500 and then == "left out" and trace_id == answer.trace_id:
            raise SourceLimitError("listed", "no trace", is_reply=True)
        return read(self, trace_id)

    def reject() -> None:
        waits.append(clock.now)
        if clock.now > 1500 and then == "rejected":
            told.refused, told.rejected = "", answer.trace_id

    monkeypatch.setattr(ListedSource, "_read", hide)
    run_until(told.watch, clock, 10_000, reject)
    assert len(waits) < 200


def test_a_receiver_that_refuses_everything_is_no_success(told: Told, clock: Clock) -> None:
    spans = story()
    told.source.tell(spans)
    told.refused = next(span for span in spans if span.kind == "respond").trace_id
    rounds = Rounds()
    run_until(Watch(told.source, since=0, quiet=QUIET, observer=rounds), clock, 3000)
    assert rounds.succeeded.count(False) == told.tries > 2


def test_a_trace_whose_reply_is_always_cut_off_holds_up_no_other(
    told: Told, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans, read = story(), ListedSource._read
    told.source.tell(spans, story(number=1))
    answer = next(span for span in spans if span.kind == "respond")

    def cut(self: ListedSource, trace_id: str) -> list[OperationSpan]:
        if trace_id == answer.trace_id:
            raise FailedError("listed", "IncompleteRead(1 bytes read, 7 more expected)")
        return read(self, trace_id)

    monkeypatch.setattr(ListedSource, "_read", cut)
    run_until(told.watch, clock, 3000)
    assert len(told.verdicts) == 1


def test_a_verdict_from_all_that_may_be_read_is_sent(told: Told, clock: Clock) -> None:
    small = [replace(span, scope=span.scope and "b" * 16) for span in story(number=1)]
    told.source = ListedSource(BackendApi(Address(False, "listed", 1), bounds=Bounds(requests=20)))
    spans = story()
    many = [OperationSpan(f"{n:032x}", "1" * 16, start=n, scope=spans[0].scope) for n in range(1, 100)]
    told.source.tell(many, spans, small)
    watch = told.restarted()
    assert settle(told, clock, watch) == 2
    assert sorted(made.verdict.complete for made in told.verdicts) == [False, True]
    assert {made.root.span_id for made in told.verdicts} <= set(told.ours)


def test_the_answers_of_one_trace_are_sent_after_few_looks_at_it(told: Told, clock: Clock) -> None:
    spans = story()
    answer = next(span for span in spans if span.kind == "respond")
    judge = next(span for span in spans if EVALUATION_LABEL in span.attributes)
    for number in range(40):
        another = replace(answer, span_id=f"{number:08x}aaaaaaaa", outputs=(Variable(f"answer:a-{number}"),))
        about = (Variable(f"answer:a-{number}", "answer", another.origin),)
        spans += [another, replace(judge, span_id=f"{number:08x}bbbbbbbb", inputs=about)]
    told.source.tell(spans)
    told.watch.search()
    told.watch.attribute_due()
    clock.now += QUIET
    before = told.source.asked[answer.trace_id]
    assert told.watch.attribute_due() == 41
    assert told.source.asked[answer.trace_id] - before < 6
    assert sorted(told.ours) == sorted(set(told.ours))
    sent = len(told.ours)
    before = told.source.asked[answer.trace_id]
    clock.now += 4 * QUIET
    assert told.watch.attribute_due() == 0
    assert told.source.asked[answer.trace_id] - before < 6
    assert len(told.ours) == sent


class Counted:
    """Counts the verdicts that it is told."""

    def __init__(self) -> None:
        self.verdicts = 0
        self.failures = 0

    def expects(self, system: str, service: str) -> None: ...

    def attributed(self, told: Attributed) -> None:
        self.verdicts += 1

    def failed(self) -> None:
        self.failures += 1

    def searched(self, succeeded: bool, waiting: int) -> None: ...


def test_no_verdict_is_counted_twice_where_the_backend_never_shows_it(
    told: Told, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT")
    monkeypatch.setattr("memtrace_otel.pipeline.watch._MOST", 1)
    counted, exported = Counted(), list[Verdict]()
    monkeypatch.setattr(AttributionMetrics, "attributed", lambda self, verdict, seconds: exported.append(verdict))
    told.source.tell(story(), [replace(span, scope=span.scope and "b" * 16) for span in story(number=1)])
    watch = Watch(told.source, since=0, quiet=QUIET, told=told.verdicts.append, observer=counted)
    for _ in range(10):
        settle(told, clock, watch)
    assert (len(told.verdicts), counted.verdicts, len(exported)) == (2, 2, 2)


def judged(number: int, start: int) -> OperationSpan:
    """An answer that is called a failure."""
    return OperationSpan(f"{number:032x}", "1" * 16, start=start, attributes={EVALUATION_LABEL: "fail"})


def test_two_that_watch_do_not_go_in_step(told: Told, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    told.source.tell([judged(number, number) for number in range(1, 41)])
    orders, waits = list[list[str]](), list[list[float]]()
    for watch in (told.restarted(), told.restarted()):
        told.source.asked.clear()
        watch.search()
        told.source.asked.clear()
        watch.attribute_due()
        orders.append(list(told.source.asked))  # by when each was first asked for
        waited, stopped = list[float](), Event()

        def wait(seconds: float, waited: list[float] = waited, stopped: Event = stopped) -> bool:
            waited.append(seconds)
            clock.now += seconds
            if len(waited) > 5:
                stopped.set()
            return stopped.is_set()

        monkeypatch.setattr(stopped, "wait", wait)
        Watch(ListedSource(), since=0, quiet=QUIET).run(10.0, stopped)
        waits.append(waited)
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1]
    assert waits[0] != waits[1]
    assert all(9 <= seconds <= 11 for seconds in waits[0])


def test_what_another_one_sends_meanwhile_is_not_sent_again(
    told: Told, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    told.source.tell(story(), story(number=1))  # of one memory: they are attributed together
    sent: list[list[str]] = []

    def take(target: Target, body: bytes) -> None:
        sent.append([span.span_id for span in decode_request(body)])
        if len(sent) == 1:  # the other one is at the same verdict, and goes on
            settle(told, clock, told.restarted())
        told.take(target, body)

    monkeypatch.setattr(publish, "send", take)
    assert settle(told, clock) == 1
    twice = {span_id for span_id in told.ours if told.ours.count(span_id) > 1}
    assert twice == set(sent[0])
    assert len(told.ours) > 2 * len(twice)


def test_a_late_evaluation_is_found_though_few_searches_look_far_back(
    told: Told, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    back, search = list[float](), ListedSource._search

    def noted(self: ListedSource, wanted: Wanted, since: int, until: int) -> Found:
        back.append((time.time_ns() - since) / 1e9)
        return search(self, wanted, since, until)

    monkeypatch.setattr(ListedSource, "_search", noted)
    found: dict[int, int] = {}
    for number in range(60):
        if number == 1:
            told.source.tell([judged(1, time.time_ns() - 10**9), judged(2, time.time_ns() - 600 * 10**9)])
            told.source.tell([judged(3, time.time_ns() - 3600 * 10**9)])
        found[number * 10] = told.watch.search()
        clock.now += 10
    assert {after: new for after, new in found.items() if new} == {10: 1, 120: 1}
    assert told.watch.search() == 1
    assert len([seconds for seconds in back if seconds > 200]) <= 6


def test_a_failure_is_found_whose_evaluation_took_longer_than_a_search_looks_back(
    told: Told, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tempo searches by the time of a whole trace: it is known before a search that looks as far back as the start."""

    def search(self: ListedSource, wanted: Wanted, since: int, until: int) -> Found:
        return {
            span.trace_id: [span.span_id]
            for span in self.told
            if wanted.holds(span) and span.start < until and span.end >= since
        }

    monkeypatch.setattr(ListedSource, "_search", search)
    told.watch.search()
    told.source.tell([replace(judged(1, time.time_ns() - 150 * 10**9), end=time.time_ns())])
    new = 0
    for _ in range(100):
        clock.now += 10
        new += told.watch.search()
    assert new == 1


def test_how_far_back_everything_is_does_not_grow_but_by_an_outage(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    hour, searched = 3600.0, list[float]()
    monkeypatch.setattr(time, "time_ns", lambda: int((clock.now + 1e6) * 1e9))

    def noted(self: ListedSource, since: int, known: object, *, counted_since: int) -> list[str]:
        if down:
            raise UnreachableError("listed", "it is down")
        searched.append(round((time.time_ns() - since) / 1e9))
        return []

    monkeypatch.setattr(ListedSource, "failing", noted)
    down = False
    watch = Watch(ListedSource(), since=time.time_ns() - int(hour * 1e9), quiet=QUIET)
    watch.search()
    clock.now += 240 * hour
    watch.search()
    clock.now += hour
    down = True
    with pytest.raises(UnreachableError):
        watch.search()
    clock.now += 2 * hour
    down = False
    watch.search()
    clock.now += hour / 4
    watch.search()
    assert searched == [hour, 240 * hour, 3 * hour, hour]


@pytest.mark.parametrize("error", [StoreError("listed", "damaged"), FailedError("listed", "damaged")])
def test_a_trace_that_cannot_be_read_keeps_nobody_waiting(
    error: StoreError, told: Told, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bad = story()
    good = [replace(span, scope=span.scope and "b" * 16) for span in story(Fault.GARBLED, 1)]
    told.source.tell(bad, good)
    counted = Counted()
    watch = Watch(told.source, since=0, quiet=QUIET, observer=counted)
    watch.search()
    watch.attribute_due()
    clock.now += QUIET
    read = ListedSource._read
    damaged = next(span for span in bad if span.kind == "respond").trace_id

    def refuse(self: ListedSource, trace_id: str) -> list[OperationSpan]:
        if trace_id == damaged:
            raise error
        return read(self, trace_id)

    with monkeypatch.context() as broken:
        broken.setattr(ListedSource, "_read", refuse)
        assert watch.attribute_due() == 1
    assert f"trace {damaged} is left out for now: " in caplog.text
    assert counted.failures == 1
    clock.now += 4 * QUIET
    assert watch.attribute_due() == 1  # it can be read again


def test_a_memory_whose_search_fails_keeps_nobody_waiting(
    told: Told, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    good = [replace(span, scope=span.scope and "b" * 16) for span in story(Fault.GARBLED, 1)]
    told.source.tell(story(), good)
    told.watch.search()
    told.watch.attribute_due()
    clock.now += QUIET
    search, read, down = ListedSource._search, ListedSource._read, True

    def fail(self: ListedSource, wanted: Wanted, since: int, until: int) -> Found:
        if wanted.scopes and wanted.scopes != {"b" * 16}:
            raise FailedError("listed", "damaged")
        return search(self, wanted, since, until)

    def read_if_up(self: ListedSource, trace_id: str) -> list[OperationSpan]:
        if down and all(span.trace_id != trace_id for span in self.told):
            raise FailedError("listed", "it is down")
        return read(self, trace_id)

    monkeypatch.setattr(ListedSource, "_search", fail)
    monkeypatch.setattr(ListedSource, "_read", read_if_up)
    with pytest.raises(UnreachableError):
        told.watch.attribute_due()
    down = False
    assert told.watch.attribute_due() == 1
    assert "is left out for now: " in caplog.text


def test_a_long_search_that_fails_stops_no_shorter_one(
    told: Told, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    monkeypatch.setattr(time, "time_ns", lambda: int((clock.now + 1e6) * 1e9))

    def fail(self: ListedSource, since: int, known: object, *, counted_since: int) -> list[str]:
        looked.append(round(time.time_ns() / 1e9 - since / 1e9))
        if looked[-1] > 1000:
            raise FailedError("listed", "no time for that")
        return []

    monkeypatch.setattr(ListedSource, "failing", fail)
    for _ in range(7):
        with suppress(FailedError):
            told.watch.search()
        clock.now += 100
    assert ([back > 1000 for back in looked], set(looked[1:6])) == ([True, *[False] * 5, True], {120, 900})


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


def test_a_second_signal_does_not_wait_for_a_backend_that_hangs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        address = f"jaeger+http://127.0.0.1:{hanging.getsockname()[1]}"
        command = [sys.executable, "-m", "memtrace_otel.cli", "watch", "--source", address]
        watching = subprocess.Popen(command, stderr=subprocess.PIPE)
        asked, _ = hanging.accept()
        with asked, watching:
            watching.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):
                watching.wait(0.5)
            watching.send_signal(signal.SIGTERM)
            assert watching.wait(10) == -signal.SIGTERM
