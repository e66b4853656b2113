"""The two protocols of sources: `TraceSource` reads spans, `VerdictLog` (in `model`) remembers verdicts and sending.

Every source (a SQLite file, Jaeger, Tempo) is a `TraceSource`; code above never asks which one. The SQLite store is
also a `VerdictLog`. `memtrace_otel.testing.SourceContract` checks the promises.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from memtrace_otel.model import OperationSpan, VerdictLog

__all__ = ["TraceSource", "VerdictLog"]


class TraceSource(Protocol):
    """Reads spans.

    - A read returns every span that was acknowledged before the call. Lists and iterators are in order of start time.
    - A span (trace id and span id) is returned once, however often it was delivered.
    - Continuation spans (`part` > 0) are returned as they are.
    - A method raises SourceError only when the source cannot answer at all.
    - A read past a bound of the session, or of a trace that cannot be read whole, returns what it has and adds one
      sentence to `incomplete`.
    """

    incomplete: list[str]
    """What this session could not read: sentences for people. Empty: everything was read."""

    def session(self, *, cases: int = 1) -> AbstractContextManager[TraceSource]:
        """Return a context that gives a reader for about `cases` failing traces, with its own cache and bounds.

        The reader sees traces as they are when it reads them first. Its `incomplete` starts empty.
        """
        ...

    def prefetch(self, trace_ids: Collection[str]) -> None:
        """Read together what the graphs of these traces will need. A hint: nothing depends on it."""
        ...

    def trace(self, trace_id: str) -> list[OperationSpan]:
        """Return the spans of a trace, [] when the trace is unknown."""
        ...

    def spans(
        self,
        *,
        scope: str | None = None,
        kinds: Collection[str] = (),
        since: int | None = None,
        until: int | None = None,
    ) -> Iterator[OperationSpan]:
        """Yield the spans of a memory scope, of any of `kinds`, started at `since` or later and before `until` (ns).

        A parameter that is not given does not restrict. Memory does not grow with the number of spans.
        """
        ...

    def readers(self, origin: str, *, kinds: Collection[str] = ()) -> list[OperationSpan]:
        """Return the spans (of any of `kinds`) that have an input version with this origin."""
        ...

    def writers(self, ref: str) -> list[str]:
        """Return the ids of the traces that list a variable among their outputs. A few more may be among them."""
        ...

    def changed_elsewhere(self, spans: Collection[OperationSpan]) -> set[str]:
        """Return the ids of the traces in which other memories changed a record that these spans wrote.

        A change counts when a span of another scope, or of none, names the record by its origin or by a unique id.
        Readers of spans near a failed write count too. `spans` are whole traces. A few more ids may be among them.
        """
        ...

    def trace_ids(self, *, scope: str | None = None) -> list[str]:
        """Return the ids of the traces (with a span of the scope), by the start of the first (such) span."""
        ...

    def failing(self, since: int, known: dict[str, None] | None = None) -> list[str]:
        """Return the ids of the traces with a failing evaluation that started at `since` (ns) or later, by its start.

        Evaluations in `known` (origins) are not returned again; the evaluations that were read are added to it.
        """
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...
