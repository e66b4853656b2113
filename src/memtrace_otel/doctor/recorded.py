"""Check of the last recorded run: recorded systems, lost context, missing contents, cut contents and lost spans."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from memtrace_otel import semconv, settings
from memtrace_otel.doctor.finding import Finding, ok, problem, warning
from memtrace_otel.graph.build import lost_spans, suppressed_calls
from memtrace_otel.model import OperationSpan
from memtrace_otel.semconv import Incomplete, OpKind
from memtrace_otel.sources import SqliteStore

_WINDOW = 3600 * 1_000_000_000
_MAX_SPANS = 20_000
_AHEAD = 60 * 1_000_000_000
_OF_A_TURN = frozenset({OpKind.RETRIEVE, OpKind.RERANK, OpKind.ASSEMBLE, OpKind.RESPOND, OpKind.JUDGE})
"""Kinds of operations that belong to a turn together with others."""
_LARGE_SHARE = 0.2
_SHOWN_PLACES = 3
_SECONDS = 1_000_000_000


def check_recorded(database: Path, rerun: str) -> Iterator[Finding]:
    """Check the last hour in the database (at most 20,000 spans). `rerun` is the command that records the program.

    Raises SourceError when the database cannot be read.
    """
    if not database.is_file():
        yield warning("recorded", "nothing: the database does not exist", rerun)
        return
    with SqliteStore.open(database, create=False) as store:
        last = store.stats().last
        spans = list(islice(store.spans(since=last - _WINDOW), _MAX_SPANS))
    operations = [span for span in spans if span.kind and not span.part]
    if not operations:
        yield from _check_unused(spans)
        yield from _check_suppressed(spans)
        found = f"{len(spans)} spans, but no memory operation" if spans else "the database is empty"
        causes = "the program used no supported memory system, or a kill or os._exit lost the spans"
        yield warning("recorded", f"{found}; {causes}", rerun)
        return
    yield _check_age(operations)
    yield from _check_unused(spans)
    yield from _check_suppressed(spans)
    for check in (_check_answers, _check_parents, _check_turns, _check_origins, _check_contents, _check_capture):
        yield from check(operations)
    yield from _check_losses(spans)


def _check_age(operations: Sequence[OperationSpan]) -> Finding:
    systems = Counter(span.system for span in operations)
    last = max(operations, key=lambda span: span.start)
    ahead = last.start - time.time_ns()
    if ahead > _AHEAD:
        found = (
            f"the last operation starts {_duration(ahead)} from now: the clock of {last.service or 'its process'} is "
            "ahead, so a later write may seem to come before an answer"
        )
        return problem("clock", found, "timedatectl set-ntp true")
    counts = ", ".join(f"{count} of {system or 'no system'}" for system, count in systems.most_common())
    return ok("recorded", f"{counts}; the last operation, {last.name}, {_duration(-ahead)} ago")


def _check_unused(spans: Sequence[OperationSpan]) -> Iterator[Finding]:
    """Warn about a system that the program imported, but of which no call was recorded, when no answer was."""
    if any(span.kind == OpKind.RESPOND for span in spans):
        return
    unused = sorted({span.system for span in spans if span.name == semconv.UNUSED_SPAN})
    if unused:
        found = f"the program imported {', '.join(unused)}, but no call was recorded, and no answer"
        remedy = "memtrace_otel.operation('chat', kind='respond')  # around a call that is not recorded by itself"
        yield warning("unused", found, remedy)


def _check_suppressed(spans: Sequence[OperationSpan]) -> Iterator[Finding]:
    """Warn about calls that were not recorded, because the program suppressed instrumentation."""
    if suppressed := suppressed_calls(spans):
        remedy = "with suppress_instrumentation(): ...  # take the calls out; Logfire: suppress_other_instrumentation"
        yield warning("suppressed", f"not recorded, because instrumentation was suppressed: {suppressed}", remedy)


def _check_answers(operations: Sequence[OperationSpan]) -> Iterator[Finding]:
    """Warn when memory was used, but no answer and no model call was recorded."""
    kinds = {span.kind for span in operations}
    if OpKind.RETRIEVE in kinds and OpKind.RESPOND not in kinds:
        found = "memory was searched, but no answer was recorded: a failed answer cannot be attributed"
        yield warning("answers", found, "memtrace_otel.operation('chat', kind='respond')  # around the answering call")


def _check_parents(operations: Sequence[OperationSpan]) -> Iterator[Finding]:
    """Warn about operations of a turn that are alone in their trace."""
    sizes = Counter(span.trace_id for span in operations)
    of_turns = [span for span in operations if span.kind in _OF_A_TURN]
    alone = [span for span in of_turns if not span.parent_id and sizes[span.trace_id] == 1]
    only_answers = all(span.kind == OpKind.RESPOND for span in of_turns)  # each answer is a whole turn
    if len(alone) > _LARGE_SHARE * len(of_turns) and not only_answers:
        found = f"{len(alone)} operations of a turn are alone in their trace, {_places(alone)}"
        yield warning("parent", f"{found}: a search and its answer may not be joined", _TURN_SPAN)


_TURN_SPAN = 'with tracer.start_as_current_span("turn"): ...  # around each turn; in own threads: copy_context().run'


def _check_turns(operations: Sequence[OperationSpan]) -> Iterator[Finding]:
    """Warn about answers whose turn capture could not tell."""
    unknown = [span for span in operations if Incomplete.UNKNOWN_TURN in span.incomplete]
    if unknown:
        found = f"{len(unknown)} answers belong to no known turn, {_places(unknown)}"
        yield warning("turn", f"{found}: the search before the answer is not joined to the answer", _TURN_SPAN)


def _check_origins(operations: Sequence[OperationSpan]) -> Iterator[Finding]:
    unknown = [span for span in operations if Incomplete.UNKNOWN_ORIGIN in span.incomplete]
    if len(unknown) > _LARGE_SHARE * len(operations):
        found = f"{len(unknown)} of {len(operations)} operations read records of an unknown writer, {_places(unknown)}"
        remedy = "memtrace-otel run -- ...  # record the programs that write the memory into the same --db"
        yield warning("origin", f"{found}: the last write in the database counts as the writer", remedy)


def _check_contents(operations: Sequence[OperationSpan]) -> Iterator[Finding]:
    off = [span for span in operations if Incomplete.CONTENT_OFF in span.incomplete]
    if off:
        found = f"{len(off)} of {len(operations)} operations have no contents: most verdicts will be `unknown`"
        yield warning("recorded contents", found, f"export {settings.CAPTURE_CONTENT.env}=SPAN_ONLY")
    cut = [span for span in operations if Incomplete.TRUNCATED in span.incomplete]
    if cut:
        found = f"{len(cut)} of {len(operations)} operations have contents that were cut, {_places(cut)}"
        setting = settings.PREVIEW_BYTES
        yield warning("recorded contents", found, f"export {setting.env}={setting.default * 4}")
    redacted = [span for span in operations if any(r.startswith(f"{Incomplete.REDACTED}") for r in span.incomplete)]
    if redacted:
        found = f"{len(redacted)} of {len(operations)} operations have redacted contents, {_places(redacted)}"
        yield ok("recorded contents", f"{found}: a verdict that rests on such a content is not complete")


def _check_capture(operations: Sequence[OperationSpan]) -> Iterator[Finding]:
    failed = [span for span in operations if Incomplete.GUARD in span.incomplete]
    if failed:
        found = f"memtrace-otel itself failed while recording {len(failed)} operations, {_places(failed)}"
        remedy = "memtrace-otel version  # report the version and the log line `memtrace capture failed in ...`"
        yield problem("capture", found, remedy)
    over = [span for span in operations if {Incomplete.BUDGET, Incomplete.DROPPED} & set(span.incomplete)]
    if over:
        setting = settings.SPAN_PARTS
        found = f"{len(over)} operations had more variables than a span takes, {_places(over)}"
        yield warning("drops", found, f"export {setting.env}={setting.default * 4}")


def _check_losses(spans: Sequence[OperationSpan]) -> Iterator[Finding]:
    if lost := lost_spans(spans):
        remedy = "kill <pid>  # SIGTERM: SIGKILL loses the last moment"
        yield warning("losses", f"{lost} spans have not arrived: lost, or their operations still run", remedy)
    told = [span.attributes.get(semconv.LOST) for span in spans if span.name != semconv.SUPPRESSED_SPAN]
    dropped = sum(lost for lost in told if isinstance(lost, int))
    if dropped:
        setting = settings.SPOOL_BYTES
        found = f"{dropped} spans were dropped: queue and spool were full, or the spool could not be written"
        yield problem("losses", found, f"export {setting.env}={setting.default * 4}")


def _places(spans: Sequence[OperationSpan]) -> str:
    """Return the functions that most of the spans come from."""
    places = Counter(
        str(span.attributes.get(semconv.CODE_FUNCTION_NAME) or f"{span.system} {span.name}") for span in spans
    )
    named = ", ".join(place for place, _ in places.most_common(_SHOWN_PLACES))
    return f"in {named}" + (" and elsewhere" if len(places) > _SHOWN_PLACES else "")


def _duration(nanoseconds: int) -> str:
    seconds = max(0, nanoseconds) // _SECONDS
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
