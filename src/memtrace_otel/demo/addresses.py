"""Web addresses of the demo's traces in the backend."""

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
    """Return (what, URL): the traces of `examples`, and all failures of the same type. [] when nothing failed."""
    written = [annotation for annotation in annotations if annotation.spans]
    if not written:
        return []
    verdict = _shown(written).verdict
    type = verdict.failure_type
    found = [(what, page.trace(trace_id, mark)) for what, trace_id, mark in examples(written)]
    alike = [one.verdict.failure.answer_span for one in written if one.verdict.failure_type == type]
    since = min(answer.start for answer in alike) - _MARGIN
    service = verdict.failure.answer_span.service
    found.append((f"all failures of type {type}", failures(page, service, type, since, time.time_ns() + _MARGIN)))
    return found


def examples(annotations: Sequence[Annotation]) -> list[tuple[str, str, str]]:
    """Return (what, trace id, id of its marker or ''): one failing trace, the trace that caused it, its attribution.

    Of the failures one is chosen whose cause is in another trace. There has to be one with spans.
    """
    shown = _shown(annotations)
    verdict, own = shown.verdict, shown.root.trace_id
    marks = {span.trace_id: span.span_id for span in shown.spans if span.trace_id != own}
    failing = verdict.failure.trace_id
    found = [(f"failing trace ({verdict.failure_type})", failing, marks[failing])]
    if _is_elsewhere(verdict) and verdict.trace_id in marks:
        found.append(("trace that caused it", verdict.trace_id, marks[verdict.trace_id]))
    return [*found, ("its attribution", own, "")]


def _shown(annotations: Sequence[Annotation]) -> Annotation:
    written = [annotation for annotation in annotations if annotation.spans]
    return max(written, key=lambda one: (_is_elsewhere(one.verdict), one.verdict.failure_type == FailureType.UPDATE))


def _is_elsewhere(verdict: Verdict) -> bool:
    return verdict.trace_id not in ("", verdict.failure.trace_id)
