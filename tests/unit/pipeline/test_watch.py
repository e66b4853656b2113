"""The watcher: attributes what is quiet, sends each verdict once, and goes on after errors."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from memtrace_otel.annotate import Annotation, BackendLog, MemoryLog, SendError, publish
from memtrace_otel.annotate.target import Target
from memtrace_otel.model import OperationSpan, VerdictLog
from memtrace_otel.otlp import decode_request, encode_request
from memtrace_otel.pipeline import diagnose as diagnosing
from memtrace_otel.pipeline.diagnose import shown_by
from memtrace_otel.pipeline.watch import Observer, Watcher, summary
from memtrace_otel.semconv import ATTRIBUTION_SCOPE, EVALUATION_LABEL
from memtrace_otel.sources import DamagedError, SourceError, SqliteStore
from tests.contract.planted import Fault, System, record
from tests.contract.story import STORY
from tests.unit.pipeline.fake_source import Clock, FakeSource

QUIET = 10.0


def story(fault: Fault = Fault.GARBLED, number: int = 0, scope: str = "") -> list[OperationSpan]:
    """Spans of one failing answer; its last span is the judgement."""
    spans = record(System.ADDITIVE, fault, STORY[number], STORY[3]).spans
    return [replace(span, scope=span.scope and scope) for span in spans] if scope else spans


def answer_in(spans: list[OperationSpan]) -> OperationSpan:
    return next(span for span in spans if span.kind == "respond")


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    return clock


class Backend(Observer):
    """A backend that is the receiver of verdicts, too, and what a watcher of it reports."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317")
        monkeypatch.setenv("OTEL_LOGS_EXPORTER", "none")
        monkeypatch.setattr(publish, "send", self.receive)
        self.source = FakeSource()
        self.verdicts: list[Annotation] = []
        self.expected: list[tuple[str, str]] = []
        self.failures = 0
        self.rounds: list[bool] = []
        self.is_down = False
        self.rejected = self.refused = ""
        """The receiver rejects, or refuses, the verdict on the answer of this trace."""
        self.requests = 0
        self.watcher = self.start()

    def start(self) -> Watcher:
        """Return a watcher as another process has it."""
        log = BackendLog(shown_by(self.source), MemoryLog())
        return Watcher(self.source, log, since=0, quiet=QUIET, told=self.verdicts.append, observer=self)

    def receive(self, target: Target, body: bytes) -> None:
        self.requests += 1
        if self.is_down:
            raise SendError(target, "it is down")
        spans = decode_request(body)
        if any(span.trace_id == self.rejected for span in spans):
            raise SendError(target, "no", partial=True, rejected=1)
        if any(span.trace_id == self.refused for span in spans):
            raise SendError(target, "HTTP 403 Forbidden", refused=True)
        self.source.add(spans)

    def expects(self, system: str, service: str) -> None:
        self.expected.append((system, service))

    def failed(self) -> None:
        self.failures += 1

    def searched(self, succeeded: bool, waiting: int) -> None:
        self.rounds.append(succeeded)

    @property
    def sent(self) -> list[str]:
        """Ids of our spans in the backend. No id may be there twice."""
        ids = [span.span_id for span in self.source.spans_given if span.instrumentation_scope == ATTRIBUTION_SCOPE]
        assert sorted(ids) == sorted(set(ids))
        return ids


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Backend:
    return Backend(monkeypatch)


def settle(clock: Clock, watcher: Watcher, rounds: int = 3) -> int:
    """Search, then attribute until everything was quiet; return how many verdicts are new."""
    watcher.search()
    new = 0
    for _ in range(rounds):
        new += watcher.attribute_due()
        clock.now += QUIET
    return new


def run_until(watcher: Watcher, clock: Clock, end: float, meanwhile: Callable[[], None] = lambda: None) -> list[float]:
    """Run a watcher in the time of the clock; return the pauses. `meanwhile` is called in each pause."""
    pauses: list[float] = []
    stopped = Event()

    def wait(seconds: float) -> bool:
        pauses.append(seconds)
        clock.now += max(0.1, min(seconds, end))
        meanwhile()
        if clock.now > end:
            stopped.set()
        return stopped.is_set()

    stopped.wait = wait  # type: ignore[method-assign]
    watcher.run(stopped)
    return pauses


# --- when a trace is attributed ------------------------------------------------------------------------------------
def test_a_failing_trace_is_attributed_once_it_has_been_quiet(backend: Backend, clock: Clock) -> None:
    spans = story()
    backend.source.add(spans[:-1], story(Fault.NONE, 1))
    assert backend.watcher.search() == 0
    backend.source.add(spans[-1:])
    clock.now += 600  # the judgement is old: only the long search finds it
    assert backend.watcher.search() == 1
    assert backend.watcher.attribute_due() == 0
    assert set(backend.expected) == {(answer_in(spans).system, answer_in(spans).service)}
    clock.now += QUIET / 2
    backend.source.add([OperationSpan(spans[-1].trace_id, "e" * 16, start=spans[-1].start)])
    clock.now += QUIET / 2
    assert backend.watcher.attribute_due() == 0
    clock.now += QUIET
    assert backend.watcher.attribute_due() == 1
    (made,) = backend.verdicts
    assert made.verdict.failure_type == "extraction"
    assert backend.sent
    assert f"{answer_in(spans).origin}: extraction at memtrace.extract" in summary(made)


def test_a_trace_that_is_never_quiet_is_attributed_after_ten_quiet_periods(backend: Backend, clock: Clock) -> None:
    spans = story()
    backend.source.add(spans)
    backend.watcher.search()
    for number in range(1, 30):
        backend.source.add([OperationSpan(spans[-1].trace_id, f"{number:016x}", start=spans[-1].start)])
        if backend.watcher.attribute_due():
            break
        clock.now += QUIET / 2
    assert 15 <= number <= 25


def test_failing_evaluations_without_a_pause_do_not_put_a_trace_off_for_ever(backend: Backend, clock: Clock) -> None:
    spans = story(Fault.MERGED_AWAY)
    late = next(span for span in spans if span.kind == "update")
    judge = next(span for span in spans if EVALUATION_LABEL in span.attributes)
    backend.source.add([span for span in spans if span is not late])
    attributed = list[int]()
    for number in range(60):
        now = time.time_ns()
        backend.source.add([replace(judge, span_id=f"{number + 1:016x}", start=now, end=now)])
        backend.watcher.search()
        attributed += [number] * backend.watcher.attribute_due()
        if number == 30:
            backend.source.add([late])
        clock.now += QUIET / 2
    assert [made.verdict.failure_type for made in backend.verdicts][1:] == ["update"]
    assert [number // 30 for number in attributed] == [0, 1]


def test_a_late_span_changes_the_verdict_and_a_finished_trace_is_read_no_more(backend: Backend, clock: Clock) -> None:
    spans = story(Fault.MERGED_AWAY)
    late = next(span for span in spans if span.kind == "update")
    backend.source.add([span for span in spans if span is not late])
    assert settle(clock, backend.watcher) == 1
    backend.source.add([late])
    settle(clock, backend.watcher, 10)
    first, second = (made.verdict for made in backend.verdicts)
    assert (second.failure_type, second.replaces) == ("update", first.attribution_id)
    reads = backend.source.reads.total()
    settle(clock, backend.watcher, 1000)
    assert backend.source.reads.total() < reads + 300


def test_a_late_evaluation_is_found_though_few_searches_look_far_back(backend: Backend, clock: Clock) -> None:
    def judged(number: int, age: int) -> OperationSpan:
        start = time.time_ns() - age * 10**9
        return OperationSpan(f"{number:032x}", "1" * 16, start=start, attributes={EVALUATION_LABEL: "fail"})

    found: dict[int, int] = {}
    for number in range(61):
        if number == 1:
            backend.source.add([judged(1, 1), judged(2, 600), judged(3, 3600)])
        found[number * 10] = backend.watcher.search()
        clock.now += 10
    assert {after: new for after, new in found.items() if new} == {10: 1, 120: 1, 600: 1}
    far = [since for since in backend.source.searches if time.time_ns() - since > 200 * 10**9]
    assert len(far) <= 6


def test_the_longest_search_grows_only_by_the_time_that_was_not_searched(
    backend: Backend, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    hour = 3600.0
    monkeypatch.setattr(time, "time_ns", lambda: int((clock.now + 1e6) * 1e9))
    since = time.time_ns() - int(hour * 1e9)
    watcher = Watcher(backend.source, MemoryLog(), since=since, quiet=QUIET)
    looked: list[float] = []

    def search() -> None:
        watcher.search()
        looked.append(round((time.time_ns() - backend.source.searches[-1]) / 1e9))

    search()
    clock.now += 240 * hour
    search()
    clock.now += hour
    backend.source.down = SourceError("fake", "it is down")
    with pytest.raises(SourceError):
        watcher.search()
    clock.now += 2 * hour
    backend.source.down = None
    search()
    clock.now += hour / 4
    search()
    assert looked == [hour, 240 * hour, 3 * hour, hour]


def test_a_verdict_waits_for_the_answering_span(
    backend: Backend, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    spans = [replace(span, resource={"service.name": "assistant"}) for span in story(Fault.MERGED_AWAY)]
    answer = answer_in(spans)
    backend.source.add([span for span in spans if span is not answer])
    assert settle(clock, backend.watcher, 60) == 0
    assert (backend.sent, backend.verdicts) == ([], [])
    assert caplog.text.count(answer.origin) == 1
    backend.source.add([answer])
    assert settle(clock, backend.watcher, 100) == 1
    assert [made.verdict.replaces for made in backend.verdicts] == [""]
    markers = [span for span in backend.source.spans_given if span.span_id in backend.sent]
    marker = next(span for span in markers if span.trace_id == answer.trace_id)
    assert marker.service == "assistant"
    assert answer.start <= marker.start <= marker.end <= answer.end


def test_an_answering_span_that_never_comes_is_waited_for_an_hour(backend: Backend, clock: Clock) -> None:
    backend.source.add([span for span in story() if span.kind != "respond"])
    assert settle(clock, backend.watcher) == 0
    clock.now += 7200
    backend.watcher.attribute_due()
    reads = backend.source.reads.total()
    for _ in range(100):
        clock.now += QUIET
        assert backend.watcher.attribute_due() == 0
    assert (backend.source.reads.total(), backend.sent) == (reads, [])


def test_a_summary_is_one_printable_line(backend: Backend, clock: Clock) -> None:
    backend.source.add([replace(span, name=f"a\n\x1b[31m{'b' * 500}") for span in story()])
    assert settle(clock, backend.watcher) == 1
    line = summary(backend.verdicts[0])
    assert line.isprintable()
    assert len(line) < 400


# --- nothing is sent twice -----------------------------------------------------------------------------------------
def test_a_restart_repeats_nothing_and_misses_nothing(backend: Backend, clock: Clock) -> None:
    backend.source.add(story())
    assert settle(clock, backend.watcher) == 1
    sent = backend.sent
    backend.source.add(story(Fault.GARBLED, 1))
    assert settle(clock, backend.start()) == 1
    assert backend.sent[: len(sent)] == sent
    assert settle(clock, backend.start()) == 0


def test_a_verdict_that_another_watcher_sends_meanwhile_is_not_sent_again(
    backend: Backend, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.source.add(story(), story(number=1))  # one memory: both are attributed together
    requests: list[list[str]] = []

    def receive(target: Target, body: bytes) -> None:
        requests.append([span.span_id for span in decode_request(body)])
        if len(requests) == 1:  # the other watcher works on the same verdict
            settle(clock, backend.start())
        backend.receive(target, body)

    monkeypatch.setattr(publish, "send", receive)
    settle(clock, backend.watcher)
    ids = [span.span_id for span in backend.source.spans_given if span.instrumentation_scope == ATTRIBUTION_SCOPE]
    assert {span_id for span_id in ids if ids.count(span_id) > 1} == set(requests[0])
    assert len(ids) > 2 * len(requests[0])


def test_two_watchers_do_not_work_in_the_same_order(backend: Backend, clock: Clock) -> None:
    failing = {EVALUATION_LABEL: "fail"}
    backend.source.add([OperationSpan(f"{n:032x}", "1" * 16, start=n, attributes=failing) for n in range(1, 41)])
    orders: list[list[str]] = []
    for watcher in (backend.start(), backend.start()):
        watcher.search()
        backend.source.reads.clear()
        watcher.attribute_due()
        orders.append(list(backend.source.reads))
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1]


def test_without_a_receiver_a_verdict_is_reported_once(
    backend: Backend, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT")
    backend.source.add(story())
    assert settle(clock, backend.watcher, 100) == 1
    assert (len(backend.verdicts), backend.sent) == (1, [])


def test_many_answers_of_one_trace_are_sent_with_few_reads(backend: Backend, clock: Clock) -> None:
    spans = story()
    answer = answer_in(spans)
    judge = next(span for span in spans if EVALUATION_LABEL in span.attributes)
    for number in range(40):
        outputs = (replace(answer.outputs[0], ref=f"answer:a-{number}"),)
        another = replace(answer, span_id=f"{number:08x}aaaaaaaa", outputs=outputs)
        about = (replace(answer.outputs[0], ref=f"answer:a-{number}", role="answer", origin=another.origin),)
        spans += [another, replace(judge, span_id=f"{number:08x}bbbbbbbb", inputs=about)]
    backend.source.add(spans)
    backend.watcher.search()
    backend.watcher.attribute_due()
    clock.now += QUIET
    backend.source.reads.clear()
    assert backend.watcher.attribute_due() == 41
    assert backend.source.reads[answer.trace_id] < 60
    assert len(backend.sent) == len(set(backend.sent))


# --- errors of the receiver ----------------------------------------------------------------------------------------
def test_a_receiver_that_is_down_gets_every_verdict_later_once(backend: Backend, clock: Clock) -> None:
    backend.source.add(story(), story(number=1, scope="b" * 16))
    backend.is_down = True

    def mend() -> None:
        backend.is_down = clock.now < 1500

    pauses = run_until(backend.watcher, clock, 3000, mend)
    assert len(backend.verdicts) == 2  # recorded and reported meanwhile
    assert len(backend.sent) > 8
    assert 3 < backend.requests < 20  # one try for all verdicts, with longer and longer pauses
    assert max(pauses) == 60


def test_no_round_succeeds_while_the_receiver_is_down(backend: Backend, clock: Clock) -> None:
    backend.source.add(story())
    backend.is_down = True
    run_until(backend.watcher, clock, 1500)
    first = backend.rounds.index(False)
    assert len(backend.rounds[first:]) > 4
    assert not any(backend.rounds[first:])


def test_a_rejected_verdict_is_left_out_and_holds_up_no_other(
    backend: Backend, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    spans = story()
    backend.source.add(spans, story(number=1))
    backend.rejected = answer_in(spans).trace_id
    pauses = run_until(backend.watcher, clock, 3000)
    assert (len(backend.verdicts), backend.requests) == (2, 2)
    assert backend.sent
    assert max(pauses) < 12
    assert caplog.text.count(f"the verdict on {answer_in(spans).origin} is left out") == 1


def test_a_refused_verdict_is_sent_when_the_receiver_takes_it_and_holds_up_no_other(
    backend: Backend, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    spans = story()
    backend.source.add(spans, story(number=1))
    backend.refused = answer_in(spans).trace_id

    def mend() -> None:
        if clock.now > 20_000:
            backend.refused = ""

    run_until(backend.watcher, clock, 30_000, mend)
    assert len(backend.verdicts) == 2
    assert len({s.trace_id for s in backend.source.spans_given if s.span_id in backend.sent}) == 6
    assert 7 < caplog.text.count("is sent again in ") < 11  # after 1, 4, 16, 60, 60 ... minutes


def test_new_evaluations_do_not_bring_a_refused_verdict_forward(backend: Backend, clock: Clock) -> None:
    spans = story()
    backend.source.add(spans)
    backend.refused = answer_in(spans).trace_id
    number = iter(range(1, 10_000))

    def judge() -> None:
        backend.source.add([replace(spans[-1], span_id=f"{next(number):016x}")])

    run_until(backend.watcher, clock, 3000, judge)
    assert backend.requests < 6
    assert backend.rounds.count(False) == backend.requests  # a receiver that refuses everything is no success


# --- errors of the source ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("error", [DamagedError("fake", "damaged"), SourceError("fake", "cut off")])
def test_a_trace_that_cannot_be_read_holds_up_no_other(
    backend: Backend, clock: Clock, caplog: pytest.LogCaptureFixture, error: SourceError
) -> None:
    bad = story()
    backend.source.add(bad, story(Fault.GARBLED, 1, scope="b" * 16))
    damaged = answer_in(bad).trace_id
    backend.source.broken[damaged] = error
    assert settle(clock, backend.watcher) == 1
    assert f"trace {damaged} is left out for now: " in caplog.text
    assert backend.failures == 1
    backend.source.broken.clear()
    clock.now += 4 * QUIET
    assert settle(clock, backend.watcher) == 1


def test_an_error_of_ours_on_one_trace_holds_up_no_other_and_tells_no_content(
    backend: Backend, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bad = story()
    backend.source.add(bad, story(Fault.GARBLED, 1))
    attribute = diagnosing.attribute

    def fail(graph, failure):  # type: ignore[no-untyped-def]
        if failure.trace_id == answer_in(bad).trace_id:
            raise ValueError("a content")
        return attribute(graph, failure)

    monkeypatch.setattr(diagnosing, "attribute", fail)
    assert settle(clock, backend.watcher) == 1
    assert "is left out for now: ValueError" in caplog.text
    assert "a content" not in caplog.text


def test_a_verdict_made_of_a_part_replaces_no_complete_one(
    backend: Backend, clock: Clock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.source.add(story(Fault.DELETED))
    assert settle(clock, backend.watcher) == 1
    sent = backend.sent
    monkeypatch.setattr(FakeSource, "trace_ids", lambda self, scope=None: self.incomplete.append("a bound") or [])
    backend.watcher = Watcher(
        backend.source,
        BackendLog(lambda trace_id: FakeSource.trace(backend.source, trace_id), MemoryLog()),
        since=0,
        quiet=QUIET,
    )
    assert settle(clock, backend.watcher) == 0
    assert "does not replace the earlier verdict" in caplog.text
    assert backend.sent == sent


def test_a_source_that_does_not_answer_is_asked_after_longer_and_longer_pauses(
    backend: Backend, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    backend.source.add(story())
    backend.source.down = SourceError("fake", "connection refused")

    def mend() -> None:
        if clock.now > 1100:
            backend.source.down = None

    pauses = run_until(backend.watcher, clock, 2000, mend)
    failed = caplog.text.count("connection refused")
    assert pauses[:failed] == sorted(pauses[:failed])
    assert failed >= 3
    assert len(backend.verdicts) == 1


def test_a_long_search_that_fails_stops_no_shorter_one(
    backend: Backend, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[float] = []
    monkeypatch.setattr(time, "time_ns", lambda: int((clock.now + 1e6) * 1e9))

    def fail(self: FakeSource, since: int, known: object) -> list[str]:
        looked.append(round((time.time_ns() - since) / 1e9))
        if looked[-1] > 1000:
            raise SourceError("fake", "no time for that")
        return []

    monkeypatch.setattr(FakeSource, "failing", fail)
    for _ in range(7):
        backend.watcher.step()
        clock.now += 100
    assert ([back > 1000 for back in looked], set(looked[1:6])) == ([True, *[False] * 5, True], {120, 900})


# --- a database as source and log ----------------------------------------------------------------------------------
@pytest.fixture
def store(tmp_path: Path, backend: Backend) -> Iterator[SqliteStore]:
    with SqliteStore.open(tmp_path / "a.db") as store:
        yield store


def watch(store: SqliteStore, log: VerdictLog | None = None) -> Watcher:
    return Watcher(store, log or store, since=0, quiet=QUIET)


def test_a_database_is_source_and_log(store: SqliteStore, backend: Backend, clock: Clock) -> None:
    spans = story(Fault.MERGED_AWAY)
    late = next(span for span in spans if span.kind == "update")
    store.add_request(encode_request([span for span in spans if span is not late]))
    watcher = watch(store)
    assert settle(clock, watcher) == 1
    store.add_request(encode_request([late]))
    assert settle(clock, watcher, 10) == 1
    (kept,) = store.verdicts()
    assert '"failure_type": "update"' in kept.document
    sent = backend.sent
    assert settle(clock, watch(store)) == 0
    assert backend.sent == sent


def test_while_another_process_holds_the_file_lock_nothing_is_attributed(
    store: SqliteStore, clock: Clock, tmp_path: Path
) -> None:
    store.add_request(encode_request(story()))
    watcher = watch(store)
    with SqliteStore.open(tmp_path / "a.db") as other, other.turn():
        assert settle(clock, watcher) == 0
        assert watcher.step() < 1
    assert settle(clock, watcher) == 1


def test_a_database_that_looks_into_the_backend_sends_nothing_that_is_shown_there(
    store: SqliteStore, backend: Backend, clock: Clock
) -> None:
    spans = story()
    backend.source.add(spans)
    assert settle(clock, backend.watcher) == 1
    sent = backend.sent
    store.add_request(encode_request(spans))
    settle(clock, watch(store, BackendLog(shown_by(backend.source), store)))
    assert backend.sent == sent
    assert len(store.verdicts()) == 1


def test_a_second_signal_ends_a_watch_of_a_backend_that_hangs() -> None:
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
