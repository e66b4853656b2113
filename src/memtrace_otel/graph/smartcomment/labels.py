"""The annotations of a MemTraceBench file, for scoring only: no span carries them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from memtrace_otel import semconv
from memtrace_otel.graph.smartcomment.document import listed, required_text
from memtrace_otel.graph.smartcomment.reading import to_spans
from memtrace_otel.model import Verdict
from memtrace_otel.semconv import FailureType

_MEMORY_ERRORS = {
    "ExtractionError": FailureType.EXTRACTION,
    "UpdateError": FailureType.UPDATE,
    "DeletionError": FailureType.DELETION,
    "RetrievalError": FailureType.RETRIEVAL,
    "ResponseError": FailureType.RESPONSE,
}


@dataclass(frozen=True, slots=True)
class Label:
    """The failure of one question: its trace, its type and the origin of the decisive operation ('' when unnamed)."""

    trace_id: str
    failure_type: FailureType
    operation: str


@dataclass(frozen=True, slots=True)
class Score:
    """Shares of `cases` with the right type (ETA) and the right operation (OIA), 0 to 1; 0 of no cases."""

    cases: int
    eta: float
    oia: float


def read_labels(document: Mapping[str, Any]) -> list[Label]:
    """Return the labelled memory failures of a file, as the benchmark counts them: other types are left out.

    Raises ValueError as `to_spans`, and when annotations are no list of objects, or one names a question that the file
    has no answer to.
    """
    spans = to_spans(document)
    origins = {str(span.attributes[semconv.SMARTCOMMENT_OP_ID]): span.origin for span in spans}
    traces = {span.attributes.get(semconv.SMARTCOMMENT_QUERY_ID): span.trace_id for span in spans}
    labels: list[Label] = []
    for place, annotation in listed(document["data"], "annotations", optional=True):
        kind = _MEMORY_ERRORS.get(str(annotation.get("final_error_type")))
        if kind is None:
            continue
        query_id = required_text(annotation, "query_id", place)
        trace_id = traces.get(query_id)
        if trace_id is None:
            raise ValueError(f"{place}.query_id: nothing asked {query_id!r}"[:300])
        labels.append(Label(trace_id, kind, origins.get(str(annotation.get("final_op_id")), "")))
    return labels


def score(labels: Iterable[Label], verdicts: Iterable[Verdict]) -> Score:
    """Compare verdicts with labels by equality, type and operation separately; a missing verdict is wrong."""
    found = {verdict.failure.trace_id: verdict for verdict in verdicts}
    pairs = [(label, found.get(label.trace_id)) for label in labels]
    types = sum(verdict is not None and verdict.failure_type == label.failure_type for label, verdict in pairs)
    operations = sum(
        verdict is not None and f"{verdict.trace_id}-{verdict.span_id}" == label.operation for label, verdict in pairs
    )
    return Score(len(pairs), types / max(1, len(pairs)), operations / max(1, len(pairs)))
