"""Verdict logs of sources that are read from a tracing backend: the backend's own spans are the memory.

A backend cannot be asked what was sent to it, but shows the markers of earlier verdicts. `BackendLog` takes what the
backend shows for sent; `MemoryLog` remembers, for one process, what the backend may be slow to show.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from math import inf
from typing import Any

from memtrace_otel import semconv
from memtrace_otel.annotate.identity import root_of
from memtrace_otel.model import OperationSpan, StoredVerdict, VerdictLog
from memtrace_otel.otlp import decode_request, encode_request

_BEHIND_SECONDS = 600.0
"""How long a backend may take to show a span. A span that is not shown by then was lost, and is sent again."""
_FRESH_SECONDS = 2.0
"""How long a trace that was read serves the verdicts that follow."""
_TRACES = 10_000
_IDS = 100_000
"""Most ids that are remembered of each kind; a backend shows older spans by then."""


class MemoryLog:
    """A `VerdictLog` in the memory of one process, bounded."""

    def __init__(self) -> None:
        self._sent: dict[str, OrderedDict[str, float]] = {}
        self._verdicts: OrderedDict[str, None] = OrderedDict()

    def trace(self, trace_id: str) -> list[OperationSpan]:
        """Return nothing: no span is kept."""
        return []

    def add_request(self, body: bytes) -> None:
        """Keep nothing."""

    def turn(self, *, wait: bool = True) -> AbstractContextManager[bool]:
        """Return an empty context: processes elsewhere cannot be kept waiting."""
        return nullcontext(True)

    def verdicts(self, trace_id: str = "") -> list[StoredVerdict]:
        """Return none: no document is kept."""
        return []

    def verdict(self, answer: str) -> StoredVerdict | None:
        """Return none: no document is kept."""
        return None

    def save_verdict(self, answer: str, attribution_id: str, document: str) -> bool:
        """Remember the attribution id; tell whether it is new."""
        is_new = attribution_id not in self._verdicts
        self._verdicts[attribution_id] = None
        _bound(self._verdicts, _IDS)
        return is_new

    def withdraw_verdicts(self, attribution_ids: Iterable[str]) -> None:
        """Do nothing: a span that was sent cannot be changed."""

    def unsent(self, target: str, span_ids: Iterable[str]) -> list[str]:
        """Return the ids that were not sent to `target`; spans that were sent more than ten minutes ago, too."""
        sent: Mapping[str, float] = self._sent.get(target, {})
        since = -inf if target.startswith("logs ") else time.monotonic() - _BEHIND_SECONDS
        return [span_id for span_id in span_ids if not sent.get(span_id, -inf) > since]

    def has_sent(self, target: str) -> bool:
        """Tell whether anything was sent to `target`."""
        return bool(self._sent.get(target))

    def mark_sent(self, target: str, span_ids: Iterable[str]) -> None:
        """Remember that the ids were sent to `target`, and when."""
        sent = self._sent.setdefault(target, OrderedDict())
        sent.update(dict.fromkeys(span_ids, time.monotonic()))
        _bound(sent, _IDS)


class BackendLog:
    """A `VerdictLog` that takes over what a backend shows of verdicts, and does not send that again.

    `log` is the database, or a `MemoryLog`. `read` returns the spans of a trace as the backend has them now; an error
    of `read` goes through. A trace is read at most every two seconds, and anew as soon as another trace shows that
    another process has sent a verdict meanwhile.

    A backend of traces does not show events. Spans go out before the event of their verdict. So the event counts as
    sent when the backend shows the whole verdict and `log` has sent nothing of it; otherwise `log` knows.
    """

    def __init__(self, read: Callable[[str], Iterable[OperationSpan]], log: VerdictLog) -> None:
        self._read, self._log = read, log
        self._read_at: OrderedDict[str, tuple[float, list[OperationSpan]]] = OrderedDict()
        self._shown: OrderedDict[str, None] = OrderedDict()
        """Ids of our spans in the backend."""
        self._roots: OrderedDict[str, str] = OrderedDict()
        """Our spans, each with the root of its attribution."""
        self._own: OrderedDict[str, None] = OrderedDict()
        """Roots of attributions of which this process sends spans, or `log` has sent some."""
        self._verdicts: OrderedDict[str, None] = OrderedDict()

    def trace(self, trace_id: str) -> list[OperationSpan]:
        """Return the spans of a trace that the log or the backend has."""
        known = {span.span_id: span for span in self._log.trace(trace_id)}
        for span in self._shown_in(trace_id):
            known.setdefault(span.span_id, span)
        self._roots.update((span.span_id, root_of(span)) for span in known.values() if _is_ours(span))
        return list(known.values())

    def _shown_in(self, trace_id: str) -> list[OperationSpan]:
        at, spans = self._read_at.get(trace_id, (-inf, []))
        if time.monotonic() - at < _FRESH_SECONDS:
            return spans
        spans = list(self._read(trace_id))
        ours = [span for span in spans if _is_ours(span)]
        ids = {str(span.attributes.get(semconv.ATTRIBUTION_ID, "")) for span in ours}
        if not ids <= self._verdicts.keys() and any(span.name == semconv.ATTRIBUTION_ROOT_SPAN for span in ours):
            self._read_at.clear()
        self._verdicts.update(dict.fromkeys(ids))
        self._shown.update((span.span_id, None) for span in ours)
        stored = {span.span_id for span in self._log.trace(trace_id)}
        if new := [span for span in ours if span.span_id not in stored]:
            self._log.add_request(encode_request(new))
        self._read_at[trace_id] = time.monotonic(), spans
        _bound(self._read_at, _TRACES)
        for ids_of in (self._shown, self._verdicts, self._own, self._roots):
            _bound(ids_of, _IDS)
        return spans

    def add_request(self, body: bytes) -> None:
        """Keep encoded spans of verdicts."""
        for span in decode_request(body):
            self._roots[span.span_id] = root_of(span)
            if span.trace_id in self._read_at:
                self._read_at[span.trace_id][1].append(span)
        self._log.add_request(body)

    def turn(self, *, wait: bool = True) -> AbstractContextManager[bool]:
        """Return the file lock of the log."""
        return self._log.turn(wait=wait)

    def verdicts(self, trace_id: str = "") -> list[StoredVerdict]:
        """Return the verdicts of the log."""
        return self._log.verdicts(trace_id)

    def verdict(self, answer: str) -> StoredVerdict | None:
        """Return the verdict of the log."""
        return self._log.verdict(answer)

    def save_verdict(self, answer: str, attribution_id: str, document: str) -> bool:
        """Keep a verdict; tell whether neither the log nor the backend had it."""
        return self._log.save_verdict(answer, attribution_id, document) and attribution_id not in self._verdicts

    def withdraw_verdicts(self, attribution_ids: Iterable[str]) -> None:
        """Forget verdicts of the log."""
        self._log.withdraw_verdicts(attribution_ids)

    def unsent(self, target: str, span_ids: Iterable[str]) -> list[str]:
        """Return the ids that the log has not sent to `target` and that the backend does not show.

        Ask for the spans first, then for the events, before any of them goes out.
        """
        asked = list(span_ids)
        unsent = self._log.unsent(target, asked)
        shown = self._shown.keys()
        if target.startswith("traces "):
            own = (set(asked) - set(unsent)) | (set(unsent) - shown)
            self._own.update((self._roots.get(span_id, span_id), None) for span_id in own)
        else:
            shown = shown - self._own.keys()
        self._log.mark_sent(target, [span_id for span_id in unsent if span_id in shown])
        return [span_id for span_id in unsent if span_id not in shown]

    def has_sent(self, target: str) -> bool:
        """Tell whether the log has sent anything to `target`."""
        return self._log.has_sent(target)

    def mark_sent(self, target: str, span_ids: Iterable[str]) -> None:
        """Remember that the ids were sent to `target`."""
        self._log.mark_sent(target, span_ids)


def _is_ours(span: OperationSpan) -> bool:
    return span.instrumentation_scope == semconv.ATTRIBUTION_SCOPE


def _bound(kept: OrderedDict[str, Any], most: int) -> None:
    while len(kept) > most:
        kept.popitem(last=False)
