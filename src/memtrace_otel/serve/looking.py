"""Verdicts of one attribution: kept in the database, and sent unless a backend that is looked into shows them."""

from __future__ import annotations

from collections.abc import Sequence

from memtrace_otel.annotate import Annotation, AnnotationStore, Delivery, LookingAnnotations, deliver
from memtrace_otel.model import OperationSpan
from memtrace_otel.pipeline.diagnose import Diagnosis, record
from memtrace_otel.sources import RemoteSource, SqliteStore, StoreError


class LookError(Exception):
    """The backend does not say what it shows, so nothing is sent."""


class Verdicts:
    """Without a `backend`, what the database remembers to have sent is all that is known."""

    def __init__(self, store: SqliteStore, backend: RemoteSource | None) -> None:
        self._store = store
        self._backend = backend
        self._kept: AnnotationStore = LookingAnnotations(store, self._read) if backend else store
        self._hidden: LookError | None = None

    def record(self, diagnosis: Diagnosis, started: int) -> list[Annotation]:
        """Keep the verdicts, also while the backend is silent; `started` as for `diagnosis.record`."""
        if self._backend:
            self._backend.api.allow(len(diagnosis.verdicts))
        try:
            return record(self._kept, diagnosis, started=started)
        except LookError as error:
            self._hidden = error
            return record(_Unwritten(self._store), diagnosis, started=started)

    def deliver(self, annotations: Sequence[Annotation]) -> Delivery:
        """Send what was recorded. Raises LookError where the backend was silent, SendError and TargetError."""
        if self._hidden:
            raise self._hidden
        return deliver(annotations, self._kept)

    def _read(self, trace_id: str) -> list[OperationSpan]:
        assert self._backend
        try:
            return self._backend.whole(trace_id)
        except StoreError as error:  # one of the database is another matter
            raise LookError(f"verdicts are not sent: {error}") from None


class _Unwritten(LookingAnnotations):
    """Keeps verdicts, not their spans: which verdict they replace, and with that their ids, only the backend tells."""

    def __init__(self, store: AnnotationStore) -> None:
        super().__init__(store, lambda trace_id: ())

    def add_request(self, body: bytes) -> None:
        """Do nothing."""
