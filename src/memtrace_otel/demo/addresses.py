"""Where the demo's traces are to be seen in the backend that got them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from memtrace_otel.annotate import Annotation
from memtrace_otel.model import Verdict
from memtrace_otel.pages import Page, failures
from memtrace_otel.semconv import FailureType

_MARGIN = 60_000_000_000
"""Nanoseconds around the time searched: the clocks of this machine and of the backend are two."""


def addresses(annotations: Sequence[Annotation], page: Page) -> list[tuple[str, str]]:
    """Return (what, URL): one failing trace, the trace that caused it, its attribution, all failures of its type.

    Of the failures one is chosen whose cause is in another trace. [] when nothing failed.
    """
    written = [annotation for annotation in annotations if annotation.spans]
    if not written:
        return []
    shown = max(written, key=lambda one: (_is_elsewhere(one.verdict), one.verdict.failure_type == FailureType.UPDATE))
    verdict, type = shown.verdict, shown.verdict.failure_type
    marks = {span.trace_id: span.span_id for span in shown.spans if span.trace_id != shown.root.trace_id}
    failing = verdict.failure.trace_id
    found = [(f"failing trace ({type})", page.trace(failing, marks[failing]))]
    if _is_elsewhere(verdict) and verdict.trace_id in marks:
        found.append(("trace that caused it", page.trace(verdict.trace_id, marks[verdict.trace_id])))
    found.append(("its attribution", page.trace(shown.root.trace_id)))
    alike = [one.verdict.failure.answer_span for one in written if one.verdict.failure_type == type]
    since = min(answer.start for answer in alike) - _MARGIN
    service = verdict.failure.answer_span.service
    found.append((f"all failures of type {type}", failures(page, service, type, since, time.time_ns() + _MARGIN)))
    return found


def _is_elsewhere(verdict: Verdict) -> bool:
    return verdict.trace_id not in ("", verdict.failure.trace_id)
