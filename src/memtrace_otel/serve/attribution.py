"""Failing traces are attributed once they are quiet, and again when a late span may change the picture."""

from __future__ import annotations

import gc
import heapq
import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from memtrace_otel import settings
from memtrace_otel.model import Attributed, is_failing, is_unique
from memtrace_otel.semconv import ATTRIBUTION_SCOPE, CHANGING_KINDS, OpKind
from memtrace_otel.serve.progress import Pair, Progress, pair_of
from memtrace_otel.sources import DamagedError, NewSpan, RemoteSource, SqliteStore, StoreError
from memtrace_otel.sources.records import may_write, unique_refs
from memtrace_otel.sources.wanted import indexed_judged_traces

if TYPE_CHECKING:
    from memtrace_otel.serve.arrivals import WatchedStore

_logger = logging.getLogger(__name__)
_MOST_TRACES = 10_000
_FORGET_SECONDS = 10.0
"""Between looks for traces that are watched no longer."""
_WATCHED_SECONDS = 24 * 3600.0
"""How long after its last change a failing trace may be attributed again, like those that the next server looks at."""
_MOST_NAMED = 1000
"""Traces, or refs, that one graph names."""
_TOGETHER, _MOST_ASKED = 15, 256
"""Other traces that are attributed at once, and how many are asked for the memories that they are of."""
_TURN_SECONDS = 0.2
"""When to look again while another process attributes on the same file, or the decoding is behind."""
_LEAST_QUIET = 0.2
"""Seconds. Under load something always waits to be decoded, for less than that."""
_LONGEST_PAUSE = 300.0
"""Between tries while the receiver of verdicts does not take them."""
_LOOK_SECONDS = 5.0
"""How long others wait for anything to come from the backend that is looked into."""
_TRACE_ID = 32
_NEVER = float("inf")
_PATIENCE = 10
"""A trace that never gets quiet is attributed after so many quiet periods."""
_MOST_PAIRS = 1000
"""Systems and services that are waited for; a scrape shows fewer."""
_RESUMED_SPANS = 10_000
"""About a second of reading."""
_RESUMED_NANOSECONDS = int(_WATCHED_SECONDS) * 10**9


@dataclass(slots=True)
class _Watched:
    """A trace with a failed answer: its newest span starts at `last` (ns), its memories are `scopes`, its graph names
    operations of the traces `missing` that are not here, and reads the unique refs `read` from it does not say whom. A
    change of what it has without a memory would name one of `unscoped`, as in `Outcome`.

    It is `unsent` while a verdict of it is, and taken `alone` since an error beside others.
    """

    last: int = 0
    scopes: set[str] = field(default_factory=set[str])
    missing: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()
    unscoped: frozenset[str] = frozenset()
    unsent: bool = False
    changed: float = 0.0
    due: float | None = None
    tried: float = 0.0  # to be sent
    latest: float = 0.0  # when it is attributed whatever comes
    alone: bool = False

    @property
    def is_apart(self) -> bool:
        """Whether others would wait for what may be its fault: the receiver may never take its verdict."""
        return self.alone or self.unsent


class _Index(dict[str, set[str]]):
    """Watched traces by what each of them depends on."""

    def move(self, trace_id: str, before: AbstractSet[str], after: AbstractSet[str]) -> None:
        """Note that the trace depends on `after`, no longer on `before`."""
        for key in before - after:
            self[key].discard(trace_id)
            if not self[key]:
                del self[key]
        for key in after - before:
            self.setdefault(key, set()).add(trace_id)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of attributing traces of one graph. `sent` and `unsent`: the receiver took something now, or did not
    take it.

    `scopes`: the memories that its graph is of; `missing`: traces of operations that this names and that are not here;
    `read`: the unique refs that it reads without an origin; `unscoped`: the traces of its operations of no memory that
    wrote something, and the unique refs among what they wrote.
    """

    progress: Progress
    sent: bool = False
    unsent: bool = False
    scopes: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()
    unscoped: frozenset[str] = frozenset()


class Memories(Protocol):
    """What the store tells of the memories that spans work on, and of verdicts."""

    def verdicts(self, trace_id: str) -> Sequence[object]:
        """Return the newest verdict on every answer of a trace."""
        ...

    def scopes_of(self, trace_id: str) -> Iterable[str]:
        """Return those of the spans of a trace, '' among them where one is of none."""
        ...

    def changed_by(self, span: NewSpan) -> set[str]:
        """Return those whose records a span changes, as far as it names them: it may be of another one, or of none."""
        ...


class Attribution:
    """Watches traces with an answer that an evaluation calls a failure, or that has a verdict; which evaluation counts
    is for `diagnose` to say.

    `backend` is looked into before verdicts are sent: what it shows is not sent again.
    """

    def __init__(self, quiet_seconds: float, backend: RemoteSource | None = None) -> None:
        self._quiet = max(quiet_seconds, _LEAST_QUIET)
        self._backend = backend
        if backend:
            backend.api.hurry(_LOOK_SECONDS)  # what fails is tried again later, as a whole
        self._watched: dict[str, _Watched] = {}
        self._by_scope = _Index()
        self._by_missing = _Index()
        self._by_read = _Index()
        self._by_unscoped = _Index()
        self._answering: set[Pair] = set()
        self._untold: set[Pair] = set()
        self._dropped = 0
        self._forgotten = 0.0
        self._not_before = 0.0  # others have the turn, as far as is known, or the decoding is behind
        self._pause = self._send_again = 0.0  # of one receiver: while it is down, one try tells for all traces

    def resume(self, store: WatchedStore) -> None:
        """Watch the failing traces of the last day, and those among the spans that arrived last: what was due when an
        earlier process ended is due again.

        A verdict that is there already adds nothing.
        """
        now = time.monotonic()
        since = time.time_ns() - _RESUMED_NANOSECONDS
        judged = (store.indexed_since(since, kind) for kind in (OpKind.JUDGE, OpKind.RESPOND))
        for spans in (store.latest(_RESUMED_SPANS), *judged):
            try:
                self._notice_failing(spans, now, store)
            except DamagedError as error:
                _logger.warning("earlier failing traces may not be attributed: %s", error)

    def notice(self, spans: Iterable[NewSpan], memories: Memories | None = None) -> None:
        """Look at spans that are new to the store."""
        now = time.monotonic()
        others = [span for span in spans if span.instrumentation_scope != ATTRIBUTION_SCOPE]
        self._notice_failing(others, now, memories)
        if not self._watched:
            return
        scopes: defaultdict[str, set[str]] = defaultdict(set)
        for span in others:
            scopes[span.trace_id].add(span.fields.scope)
        oldest: dict[str, int] = {}
        for span in others:
            if span.trace_id in self._watched:
                self._watch(span.trace_id, span.start, span.fields.scope, now)
            for trace_id in self._by_missing.get(span.trace_id, ()):
                self._postpone(self._watched[trace_id], now)
            for ref in span.fields.written & self._by_read.keys():
                for trace_id in self._by_read[ref]:
                    self._postpone(self._watched[trace_id], now)
            for watched in self._changed_by(span):
                self._postpone(watched, now)
        newest = max(watched.last for watched in self._watched.values())
        for span in others:
            if span.start >= newest:  # a span of another trace matters when it worked on the same memory before
                continue
            affected = {span.fields.scope}
            if not span.fields.scope and span.fields.kind:  # a part of what its trace does, which may have come before
                affected |= scopes[span.trace_id]
                if affected == {""} and memories:
                    affected |= set(memories.scopes_of(span.trace_id))
            if memories and self._by_scope and span.fields.kind in CHANGING_KINDS:
                affected |= memories.changed_by(span)
            for scope in affected:
                oldest[scope] = min(oldest.get(scope, span.start), span.start)
        oldest.pop("", None)
        for scope, start in oldest.items():
            for watched in map(self._watched.__getitem__, self._by_scope.get(scope, ())):
                if start < watched.last:
                    self._postpone(watched, now)
        if now - self._forgotten > _FORGET_SECONDS:
            self._forget(now)

    def _notice_failing(self, spans: Iterable[NewSpan], now: float, memories: Memories | None) -> None:
        for span in spans:
            if span.instrumentation_scope == ATTRIBUTION_SCOPE:
                continue
            self._expect(span.fields.kind, span.fields.system, span.service)
            for trace_id in self._concerned(span, memories):
                self._watch(trace_id, span.start, span.fields.scope, now)

    def answering(self) -> frozenset[Pair]:
        """Return whose answers were seen for the first time since this was asked for last."""
        told, self._untold = frozenset(self._untold), set()
        return told

    def attribute_next(self, store: WatchedStore) -> Progress:
        """Attribute the trace that waits longest, when one has been quiet, and those that wait of the same memories;
        return what came of it.

        Whose answers these are was told a quiet period before: a scrape shows first that they have not failed.
        """
        if self._untold:
            return Progress(answering=self.answering())
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            _logger.warning("%d failing traces are not attributed: more than %d wait", dropped, _MOST_TRACES)
            return Progress(errors=dropped)
        waiting = ((self._when(one), one.tried, id) for id, one in self._watched.items())
        when, _, trace_id = min(waiting, default=(_NEVER, 0.0, ""))
        if max(when, self._not_before) > time.monotonic():
            return Progress()
        if store.behind() > self._quiet:  # a cause, or a marker of ours, that came before this was quiet may wait
            self._not_before = time.monotonic() + _TURN_SECONDS
            return Progress()
        watched = self._watched[trace_id]
        watched.due = None
        together = [trace_id]
        try:
            with store.turn(wait=False) as mine:  # meanwhile what arrives is looked at
                if not mine:
                    watched.due = self._not_before = time.monotonic() + _TURN_SECONDS
                    return Progress()
                if not self._look_at(trace_id, store):  # its evaluation was faster: its spans make it due
                    watched.unsent = False
                    return Progress()
                together += self._beside(trace_id, store)
                for one in together[1:]:
                    self._look_at(one, store)
                if self._untold:  # an answer of long ago
                    for one in together:
                        self._watched[one].due = time.monotonic() + self._quiet
                    return Progress(answering=self.answering())
                done, outcome = _attribute(store, together, self._backend)
                self._remember(done, outcome)
                if self.wait():
                    gc.collect()  # an idle server holds no graph: theirs are full of circles
                return outcome.progress
        except Exception as error:
            if isinstance(error, StoreError) and not isinstance(error, DamagedError):
                watched.due = time.monotonic() + self._quiet
                raise
            return self._failed(together, error)

    def _failed(self, trace_ids: Sequence[str], error: Exception) -> Progress:
        """One odd trace must not stop others; its contents stay out of the log."""
        first = self._watched[trace_ids[0]]
        if len(trace_ids) > 1:
            for trace_id in trace_ids:
                self._watched[trace_id].alone = True
            first.due = time.monotonic()
            return Progress()
        first.unsent = False
        if isinstance(error, DamagedError):
            _logger.warning("trace %s is not attributed: %s", trace_ids[0], error)
        else:
            _logger.warning("attribution of trace %s failed: %s", trace_ids[0], type(error).__name__)
        return Progress(errors=1)

    def _look_at(self, trace_id: str, store: WatchedStore) -> bool:
        """Learn from the spans of a trace; return whether there are any."""
        watched, spans = self._watched[trace_id], store.trace(trace_id)
        self._add_scopes(trace_id, {span.scope for span in spans})
        watched.last = max([watched.last, *(span.start for span in spans)])
        for span in spans:
            self._expect(span.kind, span.system, span.service)
        return bool(spans)

    def _beside(self, trace_id: str, store: WatchedStore) -> list[str]:
        """Return other traces that have been quiet, of just the same memories: one graph does for all of them."""
        own = {*store.scopes_of(trace_id)} - {""}
        if not own or self._watched[trace_id].is_apart:
            return []
        now = time.monotonic()
        quiet = (id for id, one in self._watched.items() if one.due is not None and one.due <= now and not one.is_apart)
        same = (id for id in islice(quiet, _MOST_ASKED) if {*store.scopes_of(id)} - {""} == own)
        return list(islice(same, _TOGETHER))

    def wait(self) -> float:
        """Return the seconds until a trace is due, infinity when none is."""
        when = min(map(self._when, self._watched.values()), default=_NEVER)
        return max(0.0, max(when, self._not_before) - time.monotonic())

    def _concerned(self, span: NewSpan, memories: Memories | None) -> set[str]:
        """Return the traces of which an evaluation on a span says that they fail, or no longer do."""
        judged = indexed_judged_traces(span.trace_id, span.fields)
        if not judged:  # of nearly all spans
            return judged
        threshold = settings.EVALUATION_THRESHOLD.read()
        if any(is_failing(*evaluation, threshold) for evaluation in span.fields.evaluations):
            return judged
        return {one for one in judged if one in self._watched or (memories and memories.verdicts(one))}

    def _changed_by(self, span: NewSpan) -> Iterator[_Watched]:
        """Yield the traces for which a span changed something before that is of no memory."""
        if span.fields.kind not in CHANGING_KINDS:
            return
        for name in {origin[:_TRACE_ID] for origin in span.fields.origins} | span.fields.written:
            for watched in map(self._watched.__getitem__, self._by_unscoped.get(name, ())):
                if span.start < watched.last:
                    yield watched

    def _when(self, watched: _Watched) -> float:
        if watched.due is None:
            return self._send_again if watched.unsent else _NEVER
        return watched.due

    def _expect(self, kind: str, system: str, service: str) -> None:
        if kind != OpKind.RESPOND or len(self._answering) >= _MOST_PAIRS:
            return
        pair = pair_of(system, service)
        if pair not in self._answering:
            self._answering.add(pair)
            self._untold.add(pair)

    def _remember(self, trace_ids: Iterable[str], outcome: Outcome) -> None:
        """Note what the verdicts on some traces depend on. Put what was not sent off, longer each time; once something
        is sent the rest goes out, too."""
        for trace_id in trace_ids:
            watched = self._watched[trace_id]
            watched.due, watched.tried, watched.unsent = None, time.monotonic(), outcome.unsent
            watched.alone = False
            self._add_scopes(trace_id, outcome.scopes)
            self._by_missing.move(trace_id, watched.missing, outcome.missing)
            self._by_read.move(trace_id, watched.read, outcome.read)
            self._by_unscoped.move(trace_id, watched.unscoped, outcome.unscoped)
            watched.missing, watched.read, watched.unscoped = outcome.missing, outcome.read, outcome.unscoped
        if outcome.unsent:
            self._pause = min(max(2 * self._pause, self._quiet, 1.0), _LONGEST_PAUSE)
            self._send_again = time.monotonic() + self._pause
        elif outcome.sent:
            self._pause = self._send_again = 0.0

    def _watch(self, trace_id: str, start: int, scope: str, now: float) -> None:
        if not trace_id:
            return
        if trace_id not in self._watched:
            if len(self._watched) >= _MOST_TRACES:
                oldest = next(iter(self._watched))
                self._dropped += self._when(self._watched[oldest]) < _NEVER
                self._unwatch(oldest)
            self._watched[trace_id] = _Watched()
        watched = self._watched[trace_id]
        watched.last = max(watched.last, start)
        self._add_scopes(trace_id, {scope})
        self._postpone(watched, now)

    def _add_scopes(self, trace_id: str, scopes: AbstractSet[str]) -> None:
        watched = self._watched[trace_id]
        self._by_scope.move(trace_id, watched.scopes, watched.scopes | scopes)
        watched.scopes |= scopes

    def _unwatch(self, trace_id: str) -> None:
        watched = self._watched.pop(trace_id)
        self._by_scope.move(trace_id, watched.scopes, set())
        self._by_missing.move(trace_id, watched.missing, set())
        self._by_read.move(trace_id, watched.read, set())
        self._by_unscoped.move(trace_id, watched.unscoped, set())

    def _postpone(self, watched: _Watched, now: float) -> None:
        if watched.due is None:
            watched.latest = now + _PATIENCE * self._quiet
        watched.changed = now
        watched.due = min(now + self._quiet, watched.latest)

    def _forget(self, now: float) -> None:
        self._forgotten = now
        for trace_id, watched in list(self._watched.items()):
            if watched.due is None and now - watched.changed > _WATCHED_SECONDS:
                self._unwatch(trace_id)


def _attribute(
    store: SqliteStore, trace_ids: Sequence[str], backend: RemoteSource | None
) -> tuple[Sequence[str], Outcome]:
    """Attribute the failures of the first of some traces and of those that its graph does for, write the verdicts, send
    those that `backend` does not show where the environment says. Return these traces and what came of it.

    An answer that is not here comes later, or to another server, which has the memory that it worked on.
    """
    from memtrace_otel.annotate import AttributionMetrics, RejectedError, SendError, TargetError
    from memtrace_otel.pipeline.diagnose import diagnose_first  # with networkx: not for an idle server
    from memtrace_otel.serve.looking import LookError, Verdicts

    started, clock = time.time_ns(), time.perf_counter()
    verdicts = Verdicts(store, backend)
    try:
        together, found = diagnose_first(store, trace_ids)
        if found is None:
            return together, Outcome(Progress())
        annotations = verdicts.record(found, started)
    except StoreError:
        raise
    except Exception:
        if len(trace_ids) == 1:  # else each is tried alone
            AttributionMetrics().failed(time.perf_counter() - clock)
        raise
    unsent = sent = False
    try:
        delivery = verdicts.deliver(annotations)
        sent = bool(delivery.spans or delivery.events)
    except RejectedError as error:
        sent = bool(error.delivery.spans or error.delivery.events)
        _logger.warning("%s", error)
    except (LookError, SendError, TargetError) as error:
        unsent = isinstance(error, LookError) or (isinstance(error, SendError) and not error.partial)
        _logger.warning("%s%s", error, "; tried again later" if unsent else "")
    operations = found.graph.operations()
    inputs = (variable for span in operations for variable in span.inputs)
    writing = [span for span in operations if may_write(span) and not found.graph.scope_of(span.origin)]
    new = [one for one in annotations if one.is_new]
    attributed = tuple(Attributed.of(one.verdict, one.seconds) for one in new if one.spans)
    return together, Outcome(
        Progress(verdicts=len(new), attributed=attributed, failed_sends=int(unsent)),
        sent,
        unsent,
        scopes=frozenset(found.graph.scopes()),
        missing=_least({origin[:_TRACE_ID] for origin in found.graph.missing()}),
        read=_least({variable.ref for variable in inputs if not variable.origin and is_unique(variable.ref)}),
        unscoped=_least({span.trace_id for span in writing}) | _least(unique_refs(writing)),
    )


def _least(names: set[str]) -> frozenset[str]:
    """What is remembered of names, the same ones each time."""
    return frozenset(heapq.nsmallest(_MOST_NAMED, names))
