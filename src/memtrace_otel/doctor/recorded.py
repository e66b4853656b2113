"""What was recorded last, and what it lacks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from memtrace_otel import semconv, settings
from memtrace_otel.doctor.finding import Finding, ok, problem, warning
from memtrace_otel.doctor.foreign import check_foreign_contents
from memtrace_otel.doctor.program import ObservedProgram
from memtrace_otel.doctor.remedies import change_setting
from memtrace_otel.graph.losses import lost_spans
from memtrace_otel.model import OperationSpan
from memtrace_otel.semconv import Incomplete, OpKind
from memtrace_otel.sources import SqliteStore

_WINDOW = 3600 * 1_000_000_000
_MAX_SPANS = 20_000
_AHEAD = 60 * 1_000_000_000
_OF_A_TURN = frozenset({OpKind.RETRIEVE, OpKind.RERANK, OpKind.ASSEMBLE, OpKind.RESPOND, OpKind.JUDGE})
"""Operations that only make sense together with others of the same turn."""
_MUCH = 0.2
_PLACES = 3
_TRIED = (
    "; a program that has run to its end came by nothing that is watched, was killed, ended by os._exit, "
    "or ran below a caller that does not sample (OTEL_TRACES_SAMPLER=always_on)"
)


def check_recorded(database: Path, rerun: str, program: ObservedProgram | None = None) -> Iterator[Finding]:
    """The last hour that the database holds, at most 20,000 spans of it. Raises StoreError when it cannot be read.

    `rerun` is what to type to record something; of `program` it is taken where its settings stand.
    """
    if not database.is_file():
        yield warning("recorded", f"nothing yet: there is no database{_TRIED}", rerun)
        return
    with SqliteStore.open(database, create=False) as store:
        last = store.stats().last
        spans = list(islice(store.spans(since=last - _WINDOW), _MAX_SPANS))
    operations = [span for span in spans if span.kind and not span.part]
    if not operations:
        found = f"{len(spans)} spans, but no memory operation" if spans else "the database is empty"
        yield warning("recorded", found + _TRIED, rerun)
        return
    yield _check_age(operations)
    for check in (_check_parents, _check_origins):
        yield from check(operations)
    yield from _check_contents(operations, program)
    yield from _check_capture(operations, program)
    yield from check_foreign_contents(spans)
    yield from _check_losses(spans, program)


def _check_age(operations: Sequence[OperationSpan]) -> Finding:
    systems = Counter(span.system for span in operations)
    last = max(operations, key=lambda span: span.start)
    ahead = last.start - time.time_ns()
    if ahead > _AHEAD:
        return problem(
            "clock",
            f"the last operation starts {_duration(ahead)} from now: the clock of {last.service or 'its process'} "
            "is ahead, and what was written after an answer seems to come before it",
            "timedatectl set-ntp true",
        )
    what = ", ".join(f"{count} of {system or 'no system'}" for system, count in systems.most_common())
    return ok("recorded", f"{what}; the last one, {last.name}, {_duration(-ahead)} ago")


def _check_parents(operations: Sequence[OperationSpan]) -> Iterator[Finding]:
    """Operations of a turn that are alone in their trace: the context got lost on the way to them."""
    sizes = Counter(span.trace_id for span in operations)
    of_turns = [span for span in operations if span.kind in _OF_A_TURN]
    lone = [span for span in of_turns if not span.parent_id and sizes[span.trace_id] == 1]
    only_answers = all(span.kind == OpKind.RESPOND for span in of_turns)  # each is a whole turn
    if len(lone) > _MUCH * len(of_turns) and not only_answers:
        yield warning(
            "parent",
            f"{len(lone)} operations of a turn are alone in their trace, {_places(lone)}: what was searched and what "
            "was answered cannot be told to belong together",
            'with opentelemetry.trace.get_tracer("app").start_as_current_span("turn"): ...  # around each turn; '
            "in threads of your own: contextvars.copy_context().run",
        )


def _check_origins(operations: Sequence[OperationSpan]) -> Iterator[Finding]:
    unknown = [span for span in operations if Incomplete.UNKNOWN_ORIGIN in span.incomplete]
    if len(unknown) > _MUCH * len(operations):
        yield warning(
            "origin",
            f"{len(unknown)} of {len(operations)} operations read records whose writer this process did not see, "
            f"{_places(unknown)}: they are matched by the last write in the database",
            "memtrace-otel run -- ...  # start the programs that write the memory in the same way, with the same --db",
        )


def _check_contents(operations: Sequence[OperationSpan], program: ObservedProgram | None) -> Iterator[Finding]:
    off = [span for span in operations if Incomplete.CONTENT_OFF in span.incomplete]
    if off:
        yield warning(
            "recorded contents",
            f"{len(off)} of {len(operations)} operations have none: their verdicts are mostly `unknown`",
            change_setting(program, settings.CAPTURE_CONTENT, "SPAN_ONLY"),
        )


def _check_capture(operations: Sequence[OperationSpan], program: ObservedProgram | None) -> Iterator[Finding]:
    failed = [span for span in operations if Incomplete.GUARD in span.incomplete]
    if failed:
        yield problem(
            "capture",
            f"our own code failed while recording {len(failed)} operations, {_places(failed)}",
            "memtrace-otel version  # report it with the warning `memtrace capture failed in ...` of the program's log",
        )
    cut = [span for span in operations if {Incomplete.BUDGET, Incomplete.DROPPED} & set(span.incomplete)]
    if cut:
        setting = settings.SPAN_PARTS
        yield warning(
            "drops",
            f"{len(cut)} operations had more variables than fit, {_places(cut)}",
            change_setting(program, setting, setting.default * 4),
        )


def _check_losses(spans: Sequence[OperationSpan], program: ObservedProgram | None) -> Iterator[Finding]:
    lost = lost_spans(spans)
    if lost:
        yield warning(
            "losses",
            f"{lost} spans in between have not arrived: lost, or still running",
            "kill <pid>  # SIGTERM: SIGKILL loses the last moment",
        )
    dropped = sum(lost for span in spans if isinstance(lost := span.attributes.get(semconv.LOST), int))
    if dropped:
        setting = settings.SPOOL_BYTES
        yield problem(
            "losses",
            f"{dropped} spans were dropped: queue and spool were full, or the spool could not be written",
            change_setting(program, setting, setting.default * 4),
        )


def _places(spans: Sequence[OperationSpan]) -> str:
    """Where most of the spans come from."""
    places = Counter(
        str(span.attributes.get(semconv.CODE_FUNCTION_NAME) or f"{span.system} {span.name}") for span in spans
    )
    named = ", ".join(place for place, _ in places.most_common(_PLACES))
    return f"in {named}" + (" and elsewhere" if len(places) > _PLACES else "")


def _duration(nanoseconds: int) -> str:
    seconds = max(0, nanoseconds) // 1_000_000_000
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
