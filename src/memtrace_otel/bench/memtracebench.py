"""MemTraceBench files as cases: the annotated failures of a smartcomment graph are the truth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from memtrace_otel.graph.smartcomment import to_spans
from memtrace_otel.otlp.files import GraphDocument, InputError, read_file
from memtrace_otel.semconv import SMARTCOMMENT_OP_ID, SMARTCOMMENT_QUERY_ID, FailureType, OpKind

TYPES = {
    "ExtractionError": FailureType.EXTRACTION,
    "UpdateError": FailureType.UPDATE,
    "DeletionError": FailureType.DELETION,
    "RetrievalError": FailureType.RETRIEVAL,
    "ResponseError": FailureType.RESPONSE,
    "AnnotationError": FailureType.ANNOTATION,
    "LLMAsAJudgeError": FailureType.JUDGE,
    "JudgeError": FailureType.JUDGE,
}


def graph_files(directory: Path) -> list[Path]:
    """Return the files of a directory that may hold graphs."""
    return sorted(path for path in directory.iterdir() if path.name.endswith((".json", ".json.gz")))


def read_annotations(directory: Path) -> list[dict[str, Any]]:
    """Return one truth per annotated failure, in the form of a generated case. Raises InputError.

    The spans never carry an annotation. An annotation of another type than the seven published ones is left out.
    """
    truths = [truth for path in graph_files(directory) for truth in read_truths(path)]
    return [truth | {"number": number} for number, truth in enumerate(truths)]


def read_truths(path: Path) -> Iterator[dict[str, Any]]:
    """Yield one truth per annotated failure of a file. Raises InputError."""
    for item in read_file(path):
        if isinstance(item, GraphDocument):
            try:
                yield from _of_graph(path, item.graph)
            except (ValueError, KeyError, AttributeError) as error:
                raise InputError(path, item.line, f"annotations: {error}") from None


def _of_graph(path: Path, graph: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    spans = to_spans(graph)
    origins = {str(span.attributes[SMARTCOMMENT_OP_ID]): span.origin for span in spans}
    asked = {span.attributes.get(SMARTCOMMENT_QUERY_ID): span.trace_id for span in spans}
    answers = {span.trace_id: span.origin for span in spans if span.kind == OpKind.RESPOND}
    messages = sum(span.kind == OpKind.INGEST for span in spans)
    annotations = cast("list[Mapping[str, Any]]", graph["data"].get("annotations") or [])
    for place, annotation in enumerate(annotations):
        label = str(annotation.get("final_error_type"))
        if label not in TYPES:
            continue
        trace = asked.get(annotation["query_id"])
        if trace is None:
            raise ValueError(f"nothing asked {annotation['query_id']!r}"[:300])
        operation = origins.get(str(annotation.get("final_op_id")))
        yield {
            "case": f"{path.name.partition('.')[0]}-{place}",
            "file": path.name.partition(".")[0],
            "system": path.parent.name,
            "fault": label,
            "failure_type": str(TYPES[label]),
            "operations": [operation] if operation else [],
            "answer": answers.get(trace, trace),
            "answer_is_right": TYPES[label] in (FailureType.ANNOTATION, FailureType.JUDGE),
            "judged_right": False,
            "wording": "recorded",
            "language": "recorded",
            "messages": messages,
        }
