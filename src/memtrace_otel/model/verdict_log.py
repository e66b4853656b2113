"""`VerdictLog`: what was concluded about answers, and which spans of verdicts were sent where."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from memtrace_otel.model.spans import OperationSpan


@dataclass(frozen=True, slots=True)
class StoredVerdict:
    """One verdict as stored: `document` is its JSON text, `created` ns since the epoch."""

    answer: str
    attribution_id: str
    document: str
    created: int


class VerdictLog(Protocol):
    """Remembers verdicts and which of their spans were sent where. `SqliteStore` is one; see also `annotate.backend`.

    A target is named with its signal first, for example `traces http://localhost:4317`.
    """

    def trace(self, trace_id: str) -> list[OperationSpan]:
        """Return the spans of a trace, with the spans of verdicts that the log knows."""
        ...

    def add_request(self, body: bytes) -> None:
        """Keep spans of verdicts, an encoded OTLP trace request."""
        ...

    def turn(self, *, wait: bool = True) -> AbstractContextManager[bool]:
        """Return the file lock of the log as a context: one process and thread holds it at a time; it is reentrant.

        Without `wait`, the context gives False when another process holds the lock.
        """
        ...

    def verdicts(self, trace_id: str = "") -> list[StoredVerdict]:
        """Return the newest verdict on every answer (of a trace), oldest first."""
        ...

    def verdict(self, answer: str) -> StoredVerdict | None:
        """Return the newest verdict on an answer (the origin of its span)."""
        ...

    def save_verdict(self, answer: str, attribution_id: str, document: str) -> bool:
        """Store a verdict on an answer; return whether this attribution id is new."""
        ...

    def withdraw_verdicts(self, attribution_ids: Iterable[str]) -> None:
        """Remove verdicts on answers that no longer fail, and the verdicts that these replaced."""
        ...

    def unsent(self, target: str, span_ids: Iterable[str]) -> list[str]:
        """Return the ids that were never marked as sent to `target`, in their order."""
        ...

    def has_sent(self, target: str) -> bool:
        """Return whether anything was ever marked as sent to `target`."""
        ...

    def mark_sent(self, target: str, span_ids: Iterable[str]) -> None:
        """Remember that the spans were sent to `target`."""
        ...
