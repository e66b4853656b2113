"""Failures and reviews as files of other tools: CSV, JSON lines, Label Studio, MemTraceBench, annotations of spans."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from memtrace_otel.bench.memtracebench import TYPES, read_truths
from memtrace_otel.model import OperationSpan, Review, Status, StoredVerdict, is_origin, make_origin, read_review
from memtrace_otel.semconv import EVALUATION_EVENT, SMARTCOMMENT_OP_ID, SMARTCOMMENT_QUERY_ID
from memtrace_otel.web.annotations import (
    Given,
    evaluation_events,
    of_span_annotation,
    read_evaluation_events,
    span_annotation,
)
from memtrace_otel.web.store import PageStore

_TASK_TEXTS = (
    *("operation", "second_label", "second_operation", "evidence", "confidence"),
    *("corrected", "note", "verdict", "seen_type", "blind"),
)
"""Members of a review that are text areas of a Label Studio annotation."""
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_LOGS = re.compile(r'\s*\{\s*"resource_?[lL]ogs"')
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
        return _csv([review.json() | {"evidence": _text(review.evidence)} for review in reviews])
    if form == "label-studio":
        return json.dumps(list(_tasks(store, reviews)), ensure_ascii=False, indent=1) + "\n"
    if form == "memtracebench":
        return json.dumps(list(_annotations(store, reviews)), ensure_ascii=False, indent=1) + "\n"
    if form == EVALUATION_EVENT:
        return evaluation_events(reviews, partial(_span, store))
    rows = map(span_annotation, reviews) if form == "openinference" else (review.json() for review in reviews)
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
                "result": _results({"type": review.label} | {name: _text(review.json()[name]) for name in _TASK_TEXTS}),
            }
            for review in by_answer.get(answer, ())
        ]
        yield task


def _text(value: Any) -> str:
    return " ".join(value) if isinstance(value, tuple) else str(value)  # pyright: ignore[reportUnknownArgumentType]


def _results(values: Mapping[str, str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name, value in values.items():
        if value:
            kind = "choices" if name == "type" else "textarea"
            said = {"choices" if name == "type" else "text": [value]}
            found.append({"from_name": name, "to_name": "question", "type": kind, "value": said})
    return found


def _annotations(store: PageStore, reviews: Iterable[Review]) -> Iterator[dict[str, Any]]:
    """Yield the reviews as MemTraceBench annotations; the origins of answer and operation stand beside their ids."""
    for review in reviews:
        if review.label in _BENCHMARK:
            answer, operation = _span(store, review.answer), _span(store, review.operation)
            yield {
                "query_id": (answer.attributes.get(SMARTCOMMENT_QUERY_ID) if answer else None) or review.answer,
                "final_error_type": _BENCHMARK[review.label],
                "final_op_id": (operation.attributes.get(SMARTCOMMENT_OP_ID) if operation else None)
                or review.operation
                or None,
                "answer": review.answer,
                "operation": review.operation,
                "annotator": review.annotator,
                "reason": review.note,
            }


def _span(store: PageStore, origin: str) -> OperationSpan | None:
    trace = store.trace(origin[:32]) if is_origin(origin) else []
    return next((span for span in trace if span.origin == origin), None)


# --- reviews: import ---------------------------------------------------------------------------------------------
def import_reviews(store: PageStore, path: Path, annotator: str) -> int:
    """Store the reviews of a file, all or none; return how many. `annotator` names those of a file without names.

    The form is told by the contents: JSON lines, CSV, span annotations, evaluation events, Label Studio tasks,
    MemTraceBench annotations or a MemTraceBench graph. A review in the place of a stored one keeps the members that the
    file does not hold.
    Raises ExchangeError, also for a file without a review, InputError, OSError.
    """
    found: list[Review] = []
    for place, given in _read(store, path):
        try:
            made = _review(store, given(), annotator)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, StopIteration) as error:
            raise ExchangeError(f"{path}, {place}: {error}") from None
        for operation in filter(None, (made.answer, made.operation, made.second_operation, *made.evidence)):
            if not store.has_operation(operation):
                raise ExchangeError(f"{path}, {place}: the database has no operation {operation}")
        found.append(made)
    if not found:
        raise ExchangeError(f"{path}: no review")
    return store.save_reviews(found)


def _review(store: PageStore, given: dict[str, Any], annotator: str) -> Review:
    members = {"annotator": annotator, "status": Status.DONE} | {name: value for name, value in given.items() if value}
    made = read_review(given | members)
    stored = [one for one in store.reviews(made.answer, made.annotator) if one.status == made.status]
    seen = store.machine_verdict(made.answer)
    kept: dict[str, Any] = stored[0].json() | {"created": 0} if stored else {"seen_type": verdict_label(seen)[0]}
    if seen and not stored:
        kept["verdict"] = seen.attribution_id
    return read_review(kept | given | members)


def _read(store: PageStore, path: Path) -> Iterator[Given]:
    if path.name.endswith(".gz"):
        yield from _benchmark(path)
        return
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ExchangeError(f"{path}: {error}") from None
    if _LOGS.match(text):
        try:
            yield from read_evaluation_events(text, store.responses)
        except ValueError as error:
            raise ExchangeError(f"{path}: {error}") from None
    elif text.lstrip().startswith("{"):
        lines = [line for line in text.split("\n") if line.strip()]  # a text may hold other line separators
        if "label" not in lines[0]:
            yield from _benchmark(path)
            return
        for number, line in enumerate(lines, 1):
            yield f"line {number}", lambda line=line: _of_line(line)
    elif text.lstrip().startswith("["):
        yield from _tasks_read(text)
    else:
        for number, row in enumerate(csv.DictReader(io.StringIO(text, newline="")), 2):
            yield f"line {number}", lambda row=row: _typed(_uncelled(row))


def _of_line(line: str) -> dict[str, Any]:
    members: dict[str, Any] = json.loads(line)
    return of_span_annotation(members) if "span_id" in members else members


def _uncelled(row: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v[1:] if v and v.startswith("'") and v[1:].startswith(_FORMULA) else v for k, v in row.items()}


def _typed(texts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a review whose values are texts; a number or truth value without a text is left out."""
    read: dict[str, Callable[[str], Any]] = {
        **dict.fromkeys(("confidence", "created"), int),
        "seconds": float,
        "blind": _truth,
    }
    found = {name: text or "" for name, text in texts.items() if text or name not in read}
    found |= {name: convert(found[name]) for name, convert in read.items() if name in found}
    return found | ({"evidence": found["evidence"].split()} if "evidence" in found else {})


def _truth(text: str) -> bool:
    if text.lower() not in _TRUTH:
        raise ValueError(f"blind must be true or false: {text[:40]!r}")
    return _TRUTH[text.lower()]


def _tasks_read(text: str) -> Iterator[Given]:
    try:
        tasks = json.loads(text)
    except ValueError as error:
        raise ExchangeError(f"no JSON: {error}") from None
    for number, task in enumerate(tasks, 1):
        try:
            is_error = "final_error_type" in task
            annotations = [] if is_error else list(task.get("annotations", ()))
        except (AttributeError, TypeError):
            raise ExchangeError(f"task {number} is no Label Studio task") from None
        if is_error:
            yield f"annotation {number}", lambda task=task: _of_annotation(task)
        for annotation in annotations:
            yield f"task {number}", lambda task=task, annotation=annotation: _of_task(task, annotation)


def _of_annotation(annotation: Mapping[str, Any]) -> dict[str, Any]:
    if annotation["final_error_type"] not in TYPES:
        raise ValueError(f"final_error_type must be one of {', '.join(TYPES)}")
    return {
        "answer": annotation.get("answer") or annotation["query_id"],
        "annotator": annotation.get("annotator", ""),
        "label": str(TYPES[annotation["final_error_type"]]),
        "operation": annotation.get("operation") or "",
        "note": annotation.get("reason") or "",
    }


def _of_task(task: Mapping[str, Any], annotation: Mapping[str, Any]) -> dict[str, Any]:
    said = {one["from_name"]: next(iter(next(iter(one["value"].values())))) for one in annotation["result"]}
    by = annotation.get("completed_by")
    name = by.get("email", "") if isinstance(by, Mapping) else str(by or "")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    cleared = dict.fromkeys(("operation", "corrected", "note"), "")
    return _typed(cleared | said) | {
        "answer": task["data"]["origin"],
        "annotator": name,
        "label": said["type"],
        "seconds": float(annotation.get("lead_time") or 0),
        "status": Status.FINAL if annotation.get("ground_truth") else Status.DONE,
    }


def _benchmark(path: Path) -> Iterator[Given]:
    for number, truth in enumerate(read_truths(path), 1):
        given = {"answer": truth["answer"], "label": truth["failure_type"]}
        operation = next(iter(truth["operations"]), "")
        yield f"annotation {number}", lambda given=given, operation=operation: given | {"operation": operation}


def verdict_label(stored: StoredVerdict | None) -> tuple[str, str]:
    """Return (failure type, origin of the operation or '') of a stored verdict; ('', '') without one."""
    document: dict[str, Any] = json.loads(stored.document) if stored else {}
    operation: dict[str, Any] = document.get("operation") or {}
    origin = make_origin(operation["trace_id"], operation["span_id"]) if operation.get("span_id") else ""
    return document.get("failure_type", ""), origin
