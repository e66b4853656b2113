"""Verdicts with no store of ours: what the tracing backend holds is what is known, our spans there are the memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from math import inf

from memtrace_otel import semconv
from memtrace_otel.annotate.identity import root_of
from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import decode_request

Sent = dict[str, dict[str, float]]
"""The ids that a process has sent, by receiver, and when (s, monotonic)."""
_BEHIND_SECONDS = 600.0
"""How long a backend may take to show what was sent. One that was killed before it had written that never does."""
_INCOMPLETE = "verdicts"
"""Among the receivers of `sent`: the roots of verdicts of which this process has found a span missing."""


class BackendAnnotations:
    """An `AnnotationStore` over a backend that is only read. For verdicts sent at once: each trace is read once, and
    anew where an attribution trace, of one verdict alone, tells that another process has sent that one since.

    `read` returns the spans of a trace as the backend has them now. `sent` are the ids that this process has sent: a
    backend may take a moment to show them. Spans that it does not show after ten minutes are sent again.

    A backend of traces does not show events. Spans go first: while one of a verdict is missing, its event was not sent,
    and it goes out with them, in a later try of this process when the receiver of logs is down. A verdict that is there
    as a whole, found by a process that has sent nothing of it, counts as sent with its event. Another process cannot
    know, and runs that come by the hour would repeat each event every time; so one is lost when the process ends
    between the spans and the event.
    """

    def __init__(self, read: Callable[[str], list[OperationSpan]], sent: Sent | None = None) -> None:
        self._read = read
        self._sent: Sent = {} if sent is None else sent
        self._traces: dict[str, list[OperationSpan]] = {}
        self._there: set[str] = set()
        self._verdicts: set[str] = set()

    def trace(self, trace_id: str) -> list[OperationSpan]:
        """Return the spans of a trace and those of ours that will be sent to it."""
        if trace_id not in self._traces:
            spans = self._traces[trace_id] = list(self._read(trace_id))
            ours = [span for span in spans if span.instrumentation_scope == semconv.ATTRIBUTION_SCOPE]
            self._there.update(span.span_id for span in ours)
            told = {str(span.attributes.get(semconv.ATTRIBUTION_ID, "")) for span in ours}
            if not told <= self._verdicts and any(span.name == semconv.ATTRIBUTION_ROOT_SPAN for span in ours):
                self._traces = {trace_id: spans}
            self._verdicts |= told
        return self._traces[trace_id]

    def has_span(self, trace_id: str, span_id: str) -> bool:
        """Tell nothing: who reads the backend reads all that others have read."""
        return True

    def add_request(self, body: bytes) -> None:
        """Take spans that are about to be sent; only the backend keeps them."""
        for span in decode_request(body):
            self.trace(span.trace_id).append(span)
            self.mark_sent(_INCOMPLETE, (root_of(span),))

    def unsent(self, target: str, span_ids: Iterable[str]) -> list[str]:
        """Return those ids that the backend does not show and that were not sent to `target`, spans: not lately."""
        sent, there, since = self._sent.get(target, {}), self._there, time.monotonic() - _BEHIND_SECONDS
        if target.startswith("logs "):
            there, since = there - self._sent.get(_INCOMPLETE, {}).keys(), -inf
        return [span_id for span_id in span_ids if span_id not in there and not sent.get(span_id, -inf) > since]

    def mark_sent(self, target: str, span_ids: Iterable[str]) -> None:
        """Remember that the ids were sent to `target`."""
        self._sent.setdefault(target, {}).update(dict.fromkeys(span_ids, time.monotonic()))

    def turn(self) -> AbstractContextManager[object]:
        """Return an empty context: other machines cannot be kept waiting, which is why ids are looked for first."""
        return nullcontext()

    def save_verdict(self, answer: str, attribution_id: str, document: str) -> bool:
        """Tell whether the backend showed no span of this verdict."""
        return attribution_id not in self._verdicts

    def withdraw_verdicts(self, attribution_ids: Iterable[str]) -> None:
        """Do nothing: a sent span cannot be changed."""
