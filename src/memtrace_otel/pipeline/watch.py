"""Failing traces of a tracing backend are attributed as they come. Nothing is kept: the markers are the memory.

A trace is looked at when a search finds a failing evaluation about it, attributed once it has not changed for the quiet
period, and looked at again later, in ever longer steps, for spans that come late, the answering one among them: without
it no verdict is told. A verdict that the backend shows already adds nothing; another one replaces it. So a start after
a crash, or another machine, goes on where the last one was; what a backend lost that was killed is sent again.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import Protocol
from uuid import uuid4

from memtrace_otel.annotate import Annotation, BackendAnnotations, SendError, deliver
from memtrace_otel.annotate.backend import Sent
from memtrace_otel.model import Attributed, OperationSpan, Verdict
from memtrace_otel.pipeline.diagnose import Diagnosis, diagnose_backend, record
from memtrace_otel.semconv import ATTRIBUTION_SCOPE, OpKind
from memtrace_otel.sources import RemoteSource, StoreError
from memtrace_otel.sources.ahead import TOGETHER
from memtrace_otel.sources.http import FailedError, UnreachableError, one_line

_logger = logging.getLogger(__name__)
_SECOND = 1_000_000_000
_EVER = float("inf")
_SEARCHES = {120.0: 0.0, 900.0: 120.0, _EVER: 600.0}
"""How far back a search looks (s): the farther, for evaluations that come late, the more seconds after the last."""
_JITTER = 0.1
"""Of the interval: two that watch and began at one moment drift apart."""
_LATER = 4
"""A trace is looked at again after so many quiet periods, then after so many times as long, and so on."""
_WATCHED_SECONDS = 3600.0
"""After this time without a change it is let alone."""
_PATIENCE = 10
"""A trace that never gets quiet is attributed after so many quiet periods."""
_LONGEST_PAUSE = 60.0
"""Between tries while the backend does not answer."""
_REFUSED_SECONDS, _REFUSED_LONGEST = 60.0, 3600.0
"""To the next try with what the receiver refuses: the first time, and at most."""
_LOOK_SECONDS = 2.0
"""How long the traces that were read to see what is there serve the verdicts of one trace."""
_MOST = 100_000
_SHOWN = 100
"""Characters of an operation's name."""


@dataclass(slots=True)
class _Case:
    """A failing trace: since when it waits to be quiet (None: it does not), when it changed last, when to look at it,
    and after that (s, monotonic)."""

    waiting: float | None
    changed: float
    due: float | None
    step: float
    attributed: bool = False
    spans: int = 0
    """Tells of what it was read to hold last."""
    verdicts: set[str] = field(default_factory=set[str])
    """The ids of those that were told: the backend may be slow to show them, or never do."""
    rejected: set[str] = field(default_factory=set[str])
    """The ids of those that the receiver does not take: OTLP says not to send them again."""
    refused: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    """The answers on which it takes no request: when to send it again, and how long that waits (s)."""


class Observer(Protocol):
    """Is told what a watch does."""

    def expects(self, system: str, service: str) -> None:
        """A failing answer was found that is attributed after the quiet period."""
        ...

    def attributed(self, told: Attributed) -> None:
        """There is a verdict that the backend does not show; comes once."""
        ...

    def failed(self) -> None:
        """A trace could not be attributed; it is tried again later."""
        ...

    def searched(self, succeeded: bool, waiting: int) -> None:
        """A search ended; so many traces are due."""
        ...


class _Nobody:
    def expects(self, system: str, service: str) -> None:
        pass

    def attributed(self, told: Attributed) -> None:
        pass

    def failed(self) -> None:
        pass

    def searched(self, succeeded: bool, waiting: int) -> None:
        pass


class Watch:
    """Follows a backend. `since` (ns since the epoch) is how far back failures count: later, as long before then."""

    def __init__(
        self,
        source: RemoteSource,
        *,
        since: int,
        quiet: float,
        told: Callable[[Annotation], None] = lambda made: None,
        observer: Observer = _Nobody(),  # noqa: B008
    ) -> None:
        self._source = source
        self._since = self._complete = since
        self._length = time.time_ns() - since
        self._quiet = quiet
        self._told = told
        self._observer = observer
        self._cases: dict[str, _Case] = {}
        self._sent: Sent = {}
        self._evaluations: dict[str, None] = {}
        self._searched = dict.fromkeys(_SEARCHES, -_EVER)
        self._taken, self._refusal = False, None  # of a round, by the receiver

    def run(self, interval: float, stopped: Event) -> None:
        """Search every `interval` seconds until `stopped`. A backend that does not answer is asked again."""
        pause, search = interval, 0.0
        while not stopped.is_set():
            try:
                if time.monotonic() >= search:
                    self.search()
                    search = time.monotonic() + interval * random.uniform(1 - _JITTER, 1 + _JITTER)
                self.attribute_due()
                self._observer.searched(True, self._due())
            except (StoreError, SendError) as error:
                _logger.warning("%s", error)
                self._observer.searched(False, self._due())
                pause = min(2 * pause, max(interval, _LONGEST_PAUSE))
                stopped.wait(pause)
            else:
                pause = interval
                stopped.wait(max(0.0, min(search - time.monotonic(), self._wait())))

    def search(self) -> int:
        """Look for failing traces; return how many are new."""
        now, clock = time.monotonic(), time.time_ns()
        back = max(back for back, every in _SEARCHES.items() if now - self._searched[back] >= every)
        whole = back == _EVER
        since = min(clock - self._length, self._complete) if whole else clock - int(back * _SECOND)
        self._source.api.allow(TOGETHER)
        new = 0
        try:
            found = self._source.failing(max(self._since, since), self._evaluations, counted_since=self._since)
        except FailedError:  # perhaps at so long a one: shorter ones go on meanwhile
            self._searched[back] = now
            raise
        for trace_id in found:
            case = self._cases.get(trace_id)
            if case is None:
                new += 1
                self._cases[trace_id] = _Case(now, now, now, self._quiet)
            else:  # evaluated again, maybe in another trace
                self._wait_for_quiet(case, now)
        if whole and not self._source.api.exhausted:
            self._complete = clock
        self._searched |= {shorter: now for shorter in _SEARCHES if shorter <= back}
        self._forget()
        return new

    def attribute_due(self) -> int:
        """Attribute some of the traces that are due and quiet, new ones first; return how many verdicts are new. Raises
        StoreError, SendError: what was not done stays due."""
        now = time.monotonic()
        due = [
            (case.attributed, case.due, random.random(), trace_id)  # by chance: else two that watch go in step
            for trace_id, case in self._cases.items()
            if case.due is not None and case.due <= now
        ]
        some = [trace_id for *_, trace_id in sorted(due)[:TOGETHER]]
        self._source.api.allow(max(1, len(some)))
        self._taken, self._refusal = False, None
        new = self._attribute([trace_id for trace_id in some if self._is_quiet(trace_id)])
        if self._refusal and not self._taken:  # perhaps it takes nothing at all
            raise self._refusal
        return new

    def _attribute(self, trace_ids: list[str]) -> int:
        new = 0
        answers: set[str] = set()
        try:
            for diagnosis in diagnose_backend(self._source, trace_ids, known=True):
                store, looked = self._look()
                answers |= {verdict.failure.answer_span.origin for verdict in diagnosis.verdicts}
                for verdict in diagnosis.verdicts:  # each is sent soon after the backend was looked at
                    if time.monotonic() - looked > _LOOK_SECONDS:
                        store, looked = self._look()
                    new += self._publish(diagnosis.only(lambda one, verdict=verdict: one is verdict), store)
        except FailedError as error:
            self._source.trace(uuid4().hex)  # fails, too, where the backend fails at anything
            return new + self._apart(trace_ids, error)
        except (UnreachableError, SendError):
            raise
        except StoreError as error:
            return new + self._apart(trace_ids, error)
        for trace_id in trace_ids:
            case = self._cases[trace_id]
            case.refused = {answer: told for answer, told in case.refused.items() if answer in answers}
            self._postpone(case)
        return new

    def _apart(self, trace_ids: list[str], error: StoreError) -> int:
        """Attribute each alone: one that cannot be must not keep the others waiting, and is left out."""
        if len(trace_ids) > 1:
            return sum(self._attribute([trace_id]) for trace_id in trace_ids)
        self._leave_out(trace_ids[0], error)
        return 0

    def _is_quiet(self, trace_id: str) -> bool:
        """Read a trace; tell whether it has been the same for the quiet period."""
        case, now = self._cases[trace_id], time.monotonic()
        try:
            trace = [span for span in self._source.trace(trace_id) if not _is_ours(span)]
        except UnreachableError:
            raise
        except StoreError as error:
            self._leave_out(trace_id, error)
            return False
        for span in trace:
            if span.kind == OpKind.RESPOND:
                self._observer.expects(span.system, span.service)
        spans = hash(frozenset(span.span_id for span in trace))
        if spans != case.spans:
            case.spans, case.changed, case.step = spans, now, self._quiet
        if now - case.changed >= self._quiet:
            return True
        self._wait_for_quiet(case, case.changed)
        return case.due is not None and case.due <= now

    def _look(self) -> tuple[BackendAnnotations, float]:
        """Return what will look at the backend, and the time."""
        return BackendAnnotations(self._source.whole, self._sent), time.monotonic()

    def _publish(self, diagnosis: Diagnosis, store: BackendAnnotations) -> int:
        """Tell of the one verdict, when it is new, and send it unless it was rejected; return whether it is new."""
        case = self._cases[diagnosis.verdicts[0].failure.trace_id]
        self._source.api.allow_at_least(1)  # what was read for the verdict may have left nothing
        (made,) = record(store, diagnosis, known=case.verdicts)
        failure = made.verdict.failure
        if failure.lacks_answer and not case.attributed:
            _logger.warning("%s: the verdict waits for this answering span", failure.answer_span.origin)
        if made.is_new:
            self._told(made)
            if made.spans:  # else its ids may be anything
                self._observer.attributed(Attributed.of(made.verdict, made.seconds))
        verdict = made.verdict
        later, _ = case.refused.get(failure.answer_span.origin, (0.0, 0.0))
        if verdict.attribution_id in case.rejected or time.monotonic() < later:
            return made.is_new
        try:
            self._taken |= deliver([made], store).spans > 0
        except SendError as error:
            if error.partial:
                case.rejected.add(verdict.attribution_id)
                case.refused.pop(failure.answer_span.origin, None)
                _logger.warning("the verdict on %s is left out: %s", failure.answer_span.origin, error)
            elif error.refused:
                self._refused(case, verdict, error)
            else:  # the others come first when it goes on; due, else a round without one seems well
                case.due = time.monotonic()
                raise
        else:
            case.refused.pop(failure.answer_span.origin, None)
        return made.is_new

    def _refused(self, case: _Case, verdict: Verdict, error: SendError) -> None:
        """Put a verdict off, longer each time: others may be taken, and this one, too, when the receiver is mended."""
        answer = verdict.failure.answer_span.origin
        _, waited = case.refused.get(answer, (0.0, _REFUSED_SECONDS / _LATER))
        seconds = min(waited * _LATER, _REFUSED_LONGEST)
        case.refused[answer] = time.monotonic() + seconds, seconds
        _logger.warning("the verdict on %s is sent again in %.0f s: %s", answer, seconds, error)
        self._refusal = self._refusal or error
        self._observer.failed()

    def _leave_out(self, trace_id: str, error: StoreError) -> None:
        _logger.warning("trace %s is left out for now: %s", trace_id, error)
        self._observer.failed()
        self._postpone(self._cases[trace_id])

    def _postpone(self, case: _Case) -> None:
        """Say when to look at a trace again; never, when it has long been the same."""
        case.step = max(case.step, 1.0) * _LATER
        now = time.monotonic()
        case.waiting, case.attributed = None, True
        case.due = now + case.step if now + case.step - case.changed <= _WATCHED_SECONDS else None
        if case.refused:  # one that is past was not tried: the trace could not be read
            again = min((due for due, _ in case.refused.values() if due > now), default=now + case.step)
            case.due = again if case.due is None else min(again, case.due)

    def _wait_for_quiet(self, case: _Case, now: float) -> None:
        """Put off the look at a trace for which something came now, up to where patience ends since the first time."""
        if case.waiting is None:
            case.waiting = now
        case.due = min(now + self._quiet, case.waiting + _PATIENCE * self._quiet)

    def _due(self) -> int:
        now = time.monotonic()
        return sum(case.due is not None and case.due <= now for case in self._cases.values())

    def _wait(self) -> float:
        """Seconds until a trace is due."""
        due = [case.due for case in self._cases.values() if case.due is not None]
        return max(0.0, min(due) - time.monotonic()) if due else float("inf")

    def _forget(self) -> None:
        """Past a bound forget those that are done longest: found again, they are attributed again, to no effect; and
        what was sent, which the backend shows by now."""
        if sum(map(len, self._sent.values())) > _MOST:
            self._sent.clear()
        while len(self._evaluations) > _MOST:
            del self._evaluations[next(iter(self._evaluations))]
        for trace_id in [id for id, case in self._cases.items() if case.due is None][
            : max(0, len(self._cases) - _MOST)
        ]:
            del self._cases[trace_id]


def _is_ours(span: OperationSpan) -> bool:
    return span.instrumentation_scope == ATTRIBUTION_SCOPE


def summary(annotation: Annotation) -> str:
    """Return one line on a verdict, without contents."""
    verdict = annotation.verdict
    where = (
        f"{one_line(verdict.operation, _SHOWN)} ({verdict.trace_id}-{verdict.span_id})"
        if verdict.span_id
        else "no operation"
    )
    replaced = f", replaces {verdict.replaces}" if verdict.replaces else ""
    return (
        f"{verdict.failure.answer_span.origin}: {verdict.failure_type} at {where}, "
        f"confidence {verdict.confidence:.2f}{'' if verdict.complete else ', incomplete'}{replaced}"
    )
