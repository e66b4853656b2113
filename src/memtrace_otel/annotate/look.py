"""Verdicts of a database that does not know what was sent: the backend is looked at first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

from memtrace_otel import semconv
from memtrace_otel.annotate.identity import root_of
from memtrace_otel.annotate.publish import AnnotationStore
from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import decode_request, encode_request


class LookingAnnotations:
    """An `AnnotationStore` that takes over what a backend shows of verdicts, and does not send that again.

    Another machine may have sent them from the same spans, or a run that was killed before it could remember. `read`
    returns the spans of a trace as the backend has them now; what it raises goes through. For verdicts sent at once:
    each trace is read once.

    A backend of traces does not show events, which go after the spans: that of a verdict counts as sent when the
    backend shows all of the verdict and nothing of it was sent from this database. What was sent from here, or is sent
    now, has its event sent unless the database remembers that, too. `unsent` is asked once of the spans, then of the
    events, before any of them goes out: afterwards what was shown is no longer told from what was sent from here.
    """

    def __init__(self, store: AnnotationStore, read: Callable[[str], Iterable[OperationSpan]]) -> None:
        self._store, self._read = store, read
        self._new: dict[str, list[OperationSpan]] = {}  # to the store, by trace that was read
        self._there: set[str] = set()
        self._roots: dict[str, str] = {}
        self._own: set[str] = set()  # roots of verdicts that are sent from here

    def trace(self, trace_id: str) -> list[OperationSpan]:
        """Return the spans of a trace, the verdicts that the backend shows in it included."""
        known = self._store.trace(trace_id)
        ids = {span.span_id for span in known}
        if trace_id not in self._new:
            shown = [span for span in self._read(trace_id) if span.instrumentation_scope == semconv.ATTRIBUTION_SCOPE]
            self._there.update(span.span_id for span in shown)
            self._new[trace_id] = new = [span for span in shown if span.span_id not in ids]
            if new:
                self._store.add_request(encode_request(new))
        spans = [*known, *(span for span in self._new[trace_id] if span.span_id not in ids)]  # it may decode later
        ours = [span for span in spans if span.instrumentation_scope == semconv.ATTRIBUTION_SCOPE]
        self._roots.update((span.span_id, root_of(span)) for span in ours)
        return spans

    def unsent(self, target: str, span_ids: Iterable[str]) -> list[str]:
        """Return those ids that were never marked as sent to `target` and that the backend does not show."""
        asked = list(span_ids)
        unsent = self._store.unsent(target, asked)
        there = self._there - self._own if target.startswith("logs ") else self._there
        if target.startswith("traces "):
            ours = (set(asked) - set(unsent)) | (set(unsent) - there)
            self._own.update(self._roots.get(span_id, span_id) for span_id in ours)
        self._store.mark_sent(target, [span_id for span_id in unsent if span_id in there])
        return [span_id for span_id in unsent if span_id not in there]

    def has_span(self, trace_id: str, span_id: str) -> bool:
        """Tell whether a span is in the database."""
        return self._store.has_span(trace_id, span_id)

    def add_request(self, body: bytes) -> None:
        """Keep an OTLP trace request durably."""
        self._roots.update((span.span_id, root_of(span)) for span in decode_request(body))
        self._store.add_request(body)

    def mark_sent(self, target: str, span_ids: Iterable[str]) -> None:
        """Remember that the ids were sent to `target`."""
        self._store.mark_sent(target, span_ids)

    def turn(self) -> AbstractContextManager[object]:
        """Return the turn of the database: who uses another one is seen by what it has sent."""
        return self._store.turn()

    def save_verdict(self, answer: str, attribution_id: str, document: str) -> bool:
        """Keep a verdict on an answer; tell whether it was not there."""
        return self._store.save_verdict(answer, attribution_id, document)

    def withdraw_verdicts(self, attribution_ids: Iterable[str]) -> None:
        """Forget verdicts on answers that fail no longer."""
        self._store.withdraw_verdicts(attribution_ids)
