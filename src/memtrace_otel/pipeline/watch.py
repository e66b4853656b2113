"""`Watcher` follows a source: failing traces are attributed as they come, and the verdicts are sent.

A trace is attributed once it has not changed for the quiet period. Late spans may change a verdict, also spans of other
traces: so a trace is attributed again after longer and longer steps. A verdict that is known already adds nothing;
another one replaces it. So after a restart, or on another machine, a watcher goes on where the last one was.
"""

from __future__ import annotations

import gc
import logging
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from threading import Event
from uuid import uuid4

from memtrace_otel.annotate import Annotation, SendError, deliver
from memtrace_otel.model import OperationSpan, VerdictLog
from memtrace_otel.model.printable import one_line
from memtrace_otel.pipeline.diagnose import TOGETHER, Diagnosis, PartialTraceError, diagnose, record
from memtrace_otel.semconv import ATTRIBUTION_SCOPE, OpKind
from memtrace_otel.sources import DamagedError, SourceError, TraceSource

_logger = logging.getLogger(__name__)
_SECOND = 1_000_000_000
_EVER = float("inf")
_SEARCHES = {120.0: 0.0, 900.0: 120.0, _EVER: 600.0}
"""How far back a search looks (s), and the least time since the last search that looked as far (s)."""
_JITTER = 0.1
"""Of the interval: two watchers that started together drift apart."""
_STEP = 4
"""A trace is attributed again after so many quiet periods, then after so many times as long, and so on."""
_WATCHED_SECONDS = 3600.0
"""A trace that has not changed for so long is not attributed again."""
_PATIENCE = 10
"""A trace that never gets quiet is attributed after so many quiet periods."""
_LONGEST_PAUSE = 60.0
"""Longest pause (s) while the source or the receiver does not answer."""
_REFUSED_SECONDS, _REFUSED_LONGEST = 60.0, 3600.0
"""Time to the next try with a verdict that the receiver refuses: the first time, and at most."""
_LOCK_SECONDS = 0.2
"""Time to the next try while another process holds the file lock of the log."""
_MOST = 100_000
_SHOWN = 100
"""Characters of an operation's name in a summary."""


@dataclass(slots=True)
class _Case:
    """A failing trace. Times are of the monotonic clock (s); `due` None: the trace is not attributed again.

    `waiting`: since when the trace waits to be quiet, None when it does not. `spans`: a hash of the ids of its spans.
    `rejected`: attribution ids that the receiver rejected, which OTLP forbids to repeat. `refused`: answers whose
    verdict the receiver refused, with the time of the next try and the pause before it.
    """

    waiting: float | None
    changed: float
    due: float | None
    step: float
    attributed: bool = False
    spans: int = 0
    rejected: set[str] = field(default_factory=set[str])
    refused: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])


class Observer:
    """Is told what a watcher does; every method does nothing by default."""

    def expects(self, system: str, service: str) -> None:
        """A failing answer of this service was found; it is attributed after the quiet period."""

    def attributed(self, made: Annotation) -> None:
        """There is a new verdict; called once for each."""

    def failed(self) -> None:
        """A trace could not be attributed, or its verdict was refused; it is tried again later."""

    def searched(self, succeeded: bool, waiting: int) -> None:
        """A round ended; `waiting` traces are due."""


class Watcher:
    """Follows a source. `since` (ns since the epoch): how far back failures count at the start; later, as far back.

    Verdicts are kept in `log` and sent as OTEL_EXPORTER_OTLP_* say. Use `run`, or call `step` in a loop.
    """

    def __init__(
        self,
        source: TraceSource,
        log: VerdictLog,
        *,
        quiet: float,
        since: int,
        interval: float = 10.0,
        told: Callable[[Annotation], None] = lambda made: None,
        observer: Observer | None = None,
    ) -> None:
        self._source = source
        self._log = log
        self._quiet = quiet
        self._since = self._complete = since
        self._length = time.time_ns() - since
        self._interval = interval
        self._told = told
        self._observer = observer or Observer()
        self._cases: dict[str, _Case] = {}
        self._evaluations: dict[str, None] = {}
        self._searched = dict.fromkeys(_SEARCHES, -_EVER)
        self._next_search = self._pause = 0.0
        self._sent = False  # of a round: a receiver took something
        self._refusal: SendError | None = None  # of a round: the first verdict that was refused
        self._down: SendError | None = None  # of a round: the receiver takes nothing
        self._unsent: set[str] = set()  # of a round: traces with a verdict that was not sent

    def run(self, stopped: Event) -> None:
        """Work until `stopped`. A source or receiver that does not answer is asked again."""
        while not stopped.is_set():
            stopped.wait(self.step())

    def step(self) -> float:
        """Search when the interval has passed, attribute what is due; return the seconds to wait before the next step.

        Errors of the source and of the receiver are logged, and the pause gets longer.
        """
        try:
            if time.monotonic() >= self._next_search:
                self.search()
                self._next_search = time.monotonic() + self._interval * random.uniform(1 - _JITTER, 1 + _JITTER)
            self.attribute_due()
        except (SourceError, SendError) as error:
            _logger.warning("%s", error)
            self._observer.searched(False, len(self._due()))
            self._pause = min(2 * (self._pause or self._interval), max(self._interval, _LONGEST_PAUSE))
            return self._pause
        self._pause = 0.0
        self._observer.searched(True, len(self._due()))
        return max(0.0, min(self._next_search, self._next_due()) - time.monotonic())

    def search(self) -> int:
        """Look for failing traces; return how many are new."""
        now, clock = time.monotonic(), time.time_ns()
        back = max(back for back, every in _SEARCHES.items() if now - self._searched[back] >= every)
        since = clock - int(back * _SECOND) if back < _EVER else min(clock - self._length, self._complete)
        new = 0
        try:
            with self._source.session(cases=TOGETHER) as reader:
                found = reader.failing(max(self._since, since), self._evaluations)
        except SourceError:  # perhaps only at so long a search: shorter searches go on meanwhile
            self._searched[back] = now
            raise
        for trace_id in found:
            case = self._cases.get(trace_id)
            if case is None:
                new += 1
                self._cases[trace_id] = _Case(now, now, now, self._quiet)
            else:  # evaluated again, perhaps in another trace
                self._wait_for_quiet(case, now)
        if back == _EVER and not reader.incomplete:
            self._complete = clock
        self._searched |= {shorter: now for shorter in _SEARCHES if shorter <= back}
        self._forget()
        return new

    def attribute_due(self) -> int:
        """Attribute some of the traces that are due and quiet, new ones first; return how many verdicts are new.

        Raises SourceError, SendError; unfinished traces stay due. While the receiver takes nothing, verdicts are
        recorded all the same.
        """
        with self._log.turn(wait=False) as mine:
            if not mine:
                for case in self._due():
                    case.due = time.monotonic() + _LOCK_SECONDS
                return 0
            now = time.monotonic()
            due = [
                (case.attributed, case.due, random.random(), trace_id)  # by chance: two watchers must not go in step
                for trace_id, case in self._cases.items()
                if case.due is not None and case.due <= now
            ]
            if not due:
                return 0
            some = [trace_id for *_, trace_id in sorted(due)[:TOGETHER]]
            self._sent, self._refusal, self._down, self._unsent = False, None, None, set()
            new = self._attribute(self._quiet_ones(some))
            for trace_id in self._unsent:  # no round succeeds until the verdicts are sent
                self._cases[trace_id].due = time.monotonic()
            gc.collect()  # an idle process holds no graph: a graph has reference cycles
            if self._down:
                raise self._down
            if self._refusal and not self._sent:  # perhaps the receiver takes nothing at all
                raise self._refusal
            return new

    def _quiet_ones(self, trace_ids: list[str]) -> list[str]:
        """Read traces; return those that have been the same for the quiet period."""
        quiet: list[str] = []
        with self._source.session(cases=len(trace_ids)) as reader:
            for trace_id in trace_ids:
                try:
                    spans = reader.trace(trace_id)
                except SourceError as error:
                    self._leave_out(trace_id, error)
                    self._postpone(self._cases[trace_id])
                    continue
                if self._is_quiet(self._cases[trace_id], spans):
                    quiet.append(trace_id)
        return quiet

    def _is_quiet(self, case: _Case, spans: Iterable[OperationSpan]) -> bool:
        now = time.monotonic()
        spans = [span for span in spans if span.instrumentation_scope != ATTRIBUTION_SCOPE]
        for span in spans:
            if span.kind == OpKind.RESPOND:
                self._observer.expects(span.system, span.service)
        state = hash(frozenset(span.span_id for span in spans))
        if state != case.spans:
            case.spans, case.changed, case.step = state, now, self._quiet
        if now - case.changed >= self._quiet:
            return True
        self._wait_for_quiet(case, case.changed)
        return case.due is not None and case.due <= now

    def _attribute(self, trace_ids: list[str]) -> int:
        """Attribute traces and send the verdicts. Traces that cannot be attributed together are attributed alone."""
        new = 0
        answers: set[str] = set()
        diagnoses = diagnose(self._source, self._log, trace_ids, known=True, leave_out=self._leave_out)
        while trace_ids:
            try:
                diagnosis = next(diagnoses, None)
            except Exception as error:  # a fault of ours on one trace must not stop the others
                if len(trace_ids) > 1:
                    return new + sum(self._attribute([trace_id]) for trace_id in trace_ids)
                self._leave_out(trace_ids[0], error)
                break
            if diagnosis is None:
                break
            answers |= {verdict.failure.answer_span.origin for verdict in diagnosis.verdicts}
            new += self._publish(diagnosis)
        for trace_id in trace_ids:
            case = self._cases[trace_id]
            case.refused = {answer: retry for answer, retry in case.refused.items() if answer in answers}
            self._postpone(case)
        return new

    def _publish(self, diagnosis: Diagnosis) -> int:
        """Record the verdicts and send them, one after the other; return how many are new."""
        new = 0
        if not diagnosis.verdicts:
            record(self._log, diagnosis)
        for verdict, seconds in zip(diagnosis.verdicts, diagnosis.seconds, strict=True):
            try:
                (made,) = record(self._log, replace(diagnosis, verdicts=(verdict,), seconds=(seconds,)))
            except PartialTraceError as error:
                self._leave_out(verdict.failure.trace_id, error)
                continue
            new += made.is_new
            if made.is_new:
                self._told(made)
                self._observer.attributed(made)
            self._send(made)
        return new

    def _send(self, made: Annotation) -> None:
        """Send one verdict, unless the receiver has rejected it or refused it a short time ago."""
        failure = made.verdict.failure
        answer, case = failure.answer_span.origin, self._cases[failure.trace_id]
        if failure.lacks_answer and not case.attributed:
            _logger.warning("%s: the verdict waits for this answering span", answer)
        retry, _ = case.refused.get(answer, (0.0, 0.0))
        if made.verdict.attribution_id in case.rejected or time.monotonic() < retry:
            return
        if self._down and made.spans:
            self._unsent.add(failure.trace_id)
            return
        try:
            delivery = deliver([made], self._log)
        except SendError as error:
            if error.partial:
                case.rejected.add(made.verdict.attribution_id)
                _logger.warning("the verdict on %s is left out: %s", answer, error)
            elif error.refused:
                self._put_off(case, answer, error)
                return
            else:  # the verdicts that follow are recorded, and sent later, too
                self._down = error
                self._unsent.add(failure.trace_id)
                return
        else:
            self._sent |= delivery.spans > 0
        case.refused.pop(answer, None)

    def _put_off(self, case: _Case, answer: str, error: SendError) -> None:
        """Try a refused verdict again, after a longer pause each time: other verdicts may be taken meanwhile."""
        _, pause = case.refused.get(answer, (0.0, _REFUSED_SECONDS / _STEP))
        pause = min(pause * _STEP, _REFUSED_LONGEST)
        case.refused[answer] = time.monotonic() + pause, pause
        _logger.warning("the verdict on %s is sent again in %.0f s: %s", answer, pause, error)
        self._refusal = self._refusal or error
        self._observer.failed()

    def _leave_out(self, trace_id: str, error: Exception) -> None:
        """Tell that a trace is tried again later. Raises SourceError when the source does not answer at all."""
        if isinstance(error, SourceError) and not isinstance(error, DamagedError):
            self._source.trace(uuid4().hex)
        reason = error if isinstance(error, SourceError) else type(error).__name__  # other texts may have contents
        _logger.warning("trace %s is left out for now: %s", trace_id, reason)
        self._observer.failed()

    def _postpone(self, case: _Case) -> None:
        """Set when to attribute a trace again; never, when the trace has long been the same."""
        case.step = max(case.step, 1.0) * _STEP
        now = time.monotonic()
        case.waiting, case.attributed = None, True
        case.due = now + case.step if now + case.step - case.changed <= _WATCHED_SECONDS else None
        if case.refused:
            again = min((retry for retry, _ in case.refused.values() if retry > now), default=now + case.step)
            case.due = again if case.due is None else min(again, case.due)

    def _wait_for_quiet(self, case: _Case, changed: float) -> None:
        """Put off a trace that changed at a time, but not past the end of patience."""
        if case.waiting is None:
            case.waiting = changed
        case.due = min(changed + self._quiet, case.waiting + _PATIENCE * self._quiet)

    def _due(self) -> list[_Case]:
        now = time.monotonic()
        return [case for case in self._cases.values() if case.due is not None and case.due <= now]

    def _next_due(self) -> float:
        return min((case.due for case in self._cases.values() if case.due is not None), default=_EVER)

    def _forget(self) -> None:
        """Forget the oldest finished traces past a bound: found again, they are attributed again, to no effect."""
        while len(self._evaluations) > _MOST:
            del self._evaluations[next(iter(self._evaluations))]
        done = [trace_id for trace_id, case in self._cases.items() if case.due is None]
        for trace_id in done[: max(0, len(self._cases) - _MOST)]:
            del self._cases[trace_id]


def summary(annotation: Annotation) -> str:
    """Return one line on a verdict, without contents."""
    verdict = annotation.verdict
    where = "no operation"
    if verdict.span_id:
        where = f"{one_line(verdict.operation, _SHOWN)} ({verdict.trace_id}-{verdict.span_id})"
    replaced = f", replaces {verdict.replaces}" if verdict.replaces else ""
    return (
        f"{verdict.failure.answer_span.origin}: {verdict.failure_type} at {where}, "
        f"confidence {verdict.confidence:.2f}{'' if verdict.complete else ', incomplete'}{replaced}"
    )
