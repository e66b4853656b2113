"""Reviews as annotations of the answering span: OpenInference span annotations, and OpenTelemetry evaluation events.

An event is a log record `gen_ai.evaluation.result` in the context of the answer, in OTLP/JSON. The convention has no
place for most members of a review; these are attributes `memtrace.review.*`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from memtrace_otel import semconv
from memtrace_otel.annotate.evaluation import evaluation_logs
from memtrace_otel.model import AttributeValue, Event, OperationSpan, Review
from memtrace_otel.otlp.json import Json, json_to_logs, logs_to_json
from memtrace_otel.otlp.values import attributes, decode_pairs

MEMBERS = (
    *("operation", "second_label", "second_operation", "evidence", "corrected"),
    *("verdict", "seen_type", "blind", "seconds", "status"),
)
"""Members of a review that an annotation of a span has no field for."""
_SUREST = 3
_SAID = (semconv.EVALUATION_LABEL, semconv.EVALUATION_SCORE, semconv.EVALUATION_EXPLANATION)
Given = tuple[str, Callable[[], dict[str, Any]]]
"""The place in a file, and a function that makes the members of a review."""


# --- OpenInference -----------------------------------------------------------------------------------------------
def span_annotation(review: Review) -> dict[str, Any]:
    """Return a review as a span annotation, as Phoenix imports it."""
    return {
        "span_id": review.answer[33:],
        "name": semconv.REVIEW_EVALUATION,
        "annotator_kind": "HUMAN",
        "identifier": review.annotator,
        "result": {"label": review.label, "score": review.confidence / _SUREST, "explanation": review.note},
        "metadata": {"trace_id": review.answer[:32]} | {name: review.json()[name] for name in MEMBERS},
    }


def of_span_annotation(annotation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of the review that a span annotation holds."""
    said, more = annotation["result"], dict(annotation.get("metadata") or {})
    origin = {"answer": f"{more['trace_id']}-{annotation['span_id']}", "annotator": annotation.get("identifier", "")}
    return more | origin | _said(said["label"], said.get("score"), said.get("explanation"))


def _said(label: Any, score: Any, explanation: Any) -> dict[str, Any]:
    sure = {} if score is None else {"confidence": min(_SUREST, max(1, round(score * _SUREST)))}
    return {"label": label, "note": explanation or ""} | sure


# --- OpenTelemetry -----------------------------------------------------------------------------------------------
def evaluation_events(reviews: Iterable[Review], answer_of: Callable[[str], OperationSpan | None]) -> str:
    """Return reviews as one logs request in OTLP/JSON. `answer_of` returns the span of an origin."""
    request = ExportLogsServiceRequest()
    for review in reviews:
        answer = answer_of(review.answer)
        said = review_attributes(review)
        if answer and (response := answer.attributes.get(semconv.GEN_AI_RESPONSE_ID)):
            said[semconv.GEN_AI_RESPONSE_ID] = response
        event = Event(semconv.EVALUATION_EVENT, review.created, said)
        request.resource_logs.append(evaluation_logs(review.answer, answer.resource if answer else {}, event))
    return json.dumps(logs_to_json(request), ensure_ascii=False) + "\n"


def review_attributes(review: Review) -> dict[str, AttributeValue]:
    """Return the attributes of the event."""
    members = review.json()
    found: dict[str, AttributeValue] = {
        semconv.EVALUATION_NAME: semconv.REVIEW_EVALUATION,
        semconv.EVALUATION_LABEL: review.label,
        semconv.EVALUATION_SCORE: review.confidence / _SUREST,
    }
    if review.note:
        found[semconv.EVALUATION_EXPLANATION] = review.note
    return found | {f"{semconv.REVIEW_EVALUATION}.{name}": members[name] for name in ("annotator", *MEMBERS)}


def read_evaluation_events(text: str, responses: Callable[[], Mapping[str, str]]) -> Iterator[Given]:
    """Yield each log record of a text with logs requests in OTLP/JSON, in any layout of lines. Raises ValueError.

    `responses` returns the origin of the answer of each response id: a record outside a trace names its answer so.
    """
    decoder, number = json.JSONDecoder(), 0
    end = len(text) - len(text.lstrip())
    while end < len(text):
        document, end = decoder.raw_decode(text, end)
        end += len(text[end:]) - len(text[end:].lstrip())
        if not isinstance(document, dict):
            raise ValueError(f"a JSON {type(document).__name__} in the place of a logs request")
        request = ExportLogsServiceRequest.FromString(json_to_logs(cast("Json", document)))
        for record in (
            one for group in request.resource_logs for scope in group.scope_logs for one in scope.log_records
        ):
            number += 1
            yield f"record {number}", lambda record=record: _of_record(record, responses)


def _of_record(record: LogRecord, responses: Callable[[], Mapping[str, str]]) -> dict[str, Any]:
    told = attributes(decode_pairs(record.attributes))
    if semconv.EVALUATION_EVENT not in (record.event_name, told.get(semconv.EVENT_NAME)):
        raise ValueError(f"no event {semconv.EVALUATION_EVENT}")
    response = str(told.get(semconv.GEN_AI_RESPONSE_ID, ""))
    answer = f"{record.trace_id.hex()}-{record.span_id.hex()}" if record.span_id else responses().get(response)
    if answer is None:
        raise ValueError(f"no trace context, and no answer with the response id {response[:80]!r}")
    names = {f"{semconv.REVIEW_EVALUATION}.{name}": name for name in ("annotator", *MEMBERS)}
    given = {names[key]: value for key, value in told.items() if key in names}
    label, score, explanation = (told.get(name) for name in _SAID)
    return given | {"answer": answer, "created": record.time_unix_nano} | _said(label, score, explanation)
