"""Failures and reviews as files of other tools: CSV, JSON lines, Label Studio, MemTraceBench, OpenInference."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from memtrace_otel.bench.memtracebench import TYPES, read_truths
from memtrace_otel.model import OperationSpan, Review, StoredVerdict, is_origin, make_origin, read_review
from memtrace_otel.semconv import SMARTCOMMENT_OP_ID, SMARTCOMMENT_QUERY_ID
from memtrace_otel.web.store import PageStore

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_BENCHMARK = {str(kind): name for name, kind in TYPES.items() if name != "JudgeError"}


class ExchangeError(ValueError):
    """A file of reviews that cannot be read. Names the place and the reason."""


# --- failures ----------------------------------------------------------------------------------------------------
def failures_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows of failures as CSV."""
    return _csv(list(rows))


def failures_jsonl(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows of failures as JSON lines."""
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


# --- reviews: export ---------------------------------------------------------------------------------------------
def export_reviews(store: PageStore, form: str) -> str:
    """Return the finished reviews in a form of `review export --format`. Raises SourceError."""
    reviews = store.reviews()
    if form == "csv":
        return _csv([review.json() | {"evidence": " ".join(review.evidence)} for review in reviews])
    if form == "label-studio":
        return json.dumps(list(_tasks(store, reviews)), ensure_ascii=False, indent=1) + "\n"
    if form == "memtracebench":
        return json.dumps(list(_annotations(store, reviews)), ensure_ascii=False, indent=1) + "\n"
    rows = (map(_span_annotation, reviews)) if form == "openinference" else (review.json() for review in reviews)
    return failures_jsonl(rows)


def _csv(rows: list[dict[str, Any]] | list[Mapping[str, Any]]) -> str:
    """Return rows with the names of the first; a cell that a spreadsheet would compute gets a quote in front."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else ["answer"])
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return text.getvalue()


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _tasks(store: PageStore, reviews: list[Review]) -> Iterator[dict[str, Any]]:
    """Yield a Label Studio task per answer of the queue, with the verdict as prediction."""
    by_answer: dict[str, list[Review]] = {}
    for review in reviews:
        by_answer.setdefault(review.answer, []).append(review)
    answers = dict.fromkeys([*(item.answer for item in store.queue()), *by_answer])
    for answer in answers:
        stored = store.machine_verdict(answer)
        document: dict[str, Any] = json.loads(stored.document) if stored else {}
        texts = {name: document.get(name, "") for name in ("question", "answer", "expected", "reason")}
        task: dict[str, Any] = {"data": {"origin": answer, **texts}, "predictions": [], "annotations": []}
        if stored:
            operation = document["operation"]
            origin = make_origin(operation["trace_id"], operation["span_id"]) if operation["span_id"] else ""
            result = _results({"type": document["failure_type"], "operation": origin})
            version = f"memtrace-otel {document['method']}"
            task["predictions"] = [{"model_version": version, "score": document["confidence"], "result": result}]
        task["annotations"] = [
            {
                "completed_by": {"email": review.annotator},
                "lead_time": review.seconds,
                "ground_truth": review.status == "final",
                "result": _results(
                    {
                        "type": review.label,
                        "operation": review.operation,
                        "corrected": review.corrected,
                        "note": review.note,
                    }
                ),
            }
            for review in by_answer.get(answer, ())
        ]
        yield task


def _results(values: Mapping[str, str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name, value in values.items():
        if value:
            kind = "choices" if name == "type" else "textarea"
            said = {"choices" if name == "type" else "text": [value]}
            found.append({"from_name": name, "to_name": "question", "type": kind, "value": said})
    return found


def _annotations(store: PageStore, reviews: Iterable[Review]) -> Iterator[dict[str, Any]]:
    """Yield the reviews as MemTraceBench annotations; answers of other sources are named by origin."""
    for review in reviews:
        if review.label in _BENCHMARK:
            answer, operation = _span(store, review.answer), _span(store, review.operation)
            yield {
                "query_id": (answer.attributes.get(SMARTCOMMENT_QUERY_ID) if answer else None) or review.answer,
                "final_error_type": _BENCHMARK[review.label],
                "final_op_id": (operation.attributes.get(SMARTCOMMENT_OP_ID) if operation else None)
                or review.operation
                or None,
                "annotator": review.annotator,
                "comment": review.note,
            }


def _span(store: PageStore, origin: str) -> OperationSpan | None:
    trace = store.trace(origin[:32]) if is_origin(origin) else []
    return next((span for span in trace if span.origin == origin), None)


def _span_annotation(review: Review) -> dict[str, Any]:
    """Return a review as a span annotation, as Phoenix imports it."""
    return {
        "span_id": review.answer[33:],
        "name": "memtrace.review",
        "annotator_kind": "HUMAN",
        "identifier": review.annotator,
        "result": {"label": review.label, "score": review.confidence / 3, "explanation": review.note},
        "metadata": {"trace_id": review.answer[:32], "operation": review.operation},
    }


# --- reviews: import ---------------------------------------------------------------------------------------------
def import_reviews(store: PageStore, path: Path, annotator: str) -> int:
    """Store the reviews of a file, all or none; return how many. `annotator` names those of a file without names.

    The form is told by the contents: JSON lines, CSV, Label Studio tasks, or a MemTraceBench graph. Raises
    ExchangeError, InputError, OSError.
    """
    found: list[Review] = []
    for place, review in _read(path, annotator):
        try:
            made = review()
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, StopIteration) as error:
            raise ExchangeError(f"{path}, {place}: {error}") from None
        for operation in filter(None, (made.answer, made.operation, made.second_operation, *made.evidence)):
            if not store.has_operation(operation):
                raise ExchangeError(f"{path}, {place}: the database has no operation {operation}")
        found.append(made)
    return store.save_reviews(found)


def _read(path: Path, annotator: str) -> Iterator[tuple[str, Callable[[], Review]]]:
    """Yield (place in the file, function that makes the review)."""
    if path.name.endswith(".gz"):
        yield from _benchmark(path, annotator)
        return
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ExchangeError(f"{path}: {error}") from None
    if text.lstrip().startswith("{"):
        lines = [line for line in text.splitlines() if line.strip()]
        if "label" not in lines[0]:
            yield from _benchmark(path, annotator)
            return
        for number, line in enumerate(lines, 1):
            yield f"line {number}", lambda line=line: read_review(line)
    elif text.lstrip().startswith("["):
        yield from _label_studio(text, annotator)
    else:
        for number, row in enumerate(csv.DictReader(io.StringIO(text)), 2):
            yield f"line {number}", lambda row=row: read_review(_uncelled(row))


def _uncelled(row: Mapping[str, Any]) -> dict[str, Any]:
    cells = {k: v[1:] if v and v.startswith("'") and v[1:].startswith(_FORMULA) else v for k, v in row.items()}
    numbers = {name: int(cells[name]) for name in ("confidence", "created") if cells.get(name)}
    blind, seconds = cells.get("blind") == "True", float(cells.get("seconds") or 0)
    return cells | numbers | {"blind": blind, "seconds": seconds, "evidence": (cells.get("evidence") or "").split()}


def _label_studio(text: str, annotator: str) -> Iterator[tuple[str, Callable[[], Review]]]:
    try:
        tasks = json.loads(text)
    except ValueError as error:
        raise ExchangeError(f"no JSON: {error}") from None
    for number, task in enumerate(tasks, 1):
        try:
            annotations = list(task.get("annotations", ()))
        except (AttributeError, TypeError):
            raise ExchangeError(f"task {number} is no Label Studio task") from None
        for annotation in annotations:
            yield f"task {number}", lambda task=task, annotation=annotation: _of_task(task, annotation, annotator)


def _of_task(task: Mapping[str, Any], annotation: Mapping[str, Any], annotator: str) -> Review:
    said = {one["from_name"]: next(iter(next(iter(one["value"].values())))) for one in annotation["result"]}
    by = annotation.get("completed_by")
    name = by.get("email", "") if isinstance(by, Mapping) else str(by or "")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return read_review(
        {
            "answer": task["data"]["origin"],
            "annotator": name or annotator,
            "label": said["type"],
            "operation": said.get("operation", ""),
            "corrected": said.get("corrected", ""),
            "note": said.get("note", ""),
            "seconds": float(annotation.get("lead_time") or 0),
            "status": "final" if annotation.get("ground_truth") else "done",
        }
    )


def _benchmark(path: Path, annotator: str) -> Iterator[tuple[str, Callable[[], Review]]]:
    for number, truth in enumerate(read_truths(path), 1):
        operation = next(iter(truth["operations"]), "")
        given = {"answer": truth["answer"], "annotator": annotator, "label": truth["failure_type"]}
        yield (
            f"annotation {number}",
            lambda given=given, operation=operation: read_review(given | {"operation": operation}),
        )


def verdict_label(stored: StoredVerdict | None) -> tuple[str, str]:
    """Return (failure type, origin of the operation or '') of a stored verdict; ('', '') without one."""
    document: dict[str, Any] = json.loads(stored.document) if stored else {}
    operation: dict[str, Any] = document.get("operation") or {}
    origin = make_origin(operation["trace_id"], operation["span_id"]) if operation.get("span_id") else ""
    return document.get("failure_type", ""), origin
