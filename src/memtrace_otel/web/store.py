"""The database as pages use it: lists of failures and the queue of reviews, by SQL; what people said of answers."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from functools import wraps
from pathlib import Path
from sqlite3 import Connection, Row
from typing import Any, Concatenate, ParamSpec, TypeVar

from memtrace_otel.model import OperationSpan, Review, Status, StoredVerdict, is_origin, parse_time, read_review
from memtrace_otel.semconv import GEN_AI_RESPONSE_ID, WRITING_ACTIONS, OpKind
from memtrace_otel.sources import SqliteStore
from memtrace_otel.sources.database import pragma, transaction
from memtrace_otel.sources.schema import OUTPUT

PAGE_ROWS = 50
BARS = 48
"""Bars of the chart of counts over time."""
_MOST_CAUSES = 100
_P = ParamSpec("_P")
_R = TypeVar("_R")
_KEPT = 32
"""Results of queries that are kept at once."""
_HEALTHY_SHARE = 4
"""The queue has one healthy answer for so many answers with a verdict."""
_LEAST_HEALTHY = 5
_DATE = len("2026-01-31")
_DAY = 24 * 3600 * 10**9
_NEWEST = "v.rowid = (SELECT max(rowid) FROM verdict AS w WHERE w.answer = v.answer)"
_TEXTS = "coalesce(json_extract(v.document, '$.{}'), '')"
_SEARCHED = " || ' ' || ".join(_TEXTS.format(name) for name in ("question", "answer", "expected", "reason"))
_REVIEWS = f"FROM review AS r WHERE r.answer = v.answer AND r.status IN ('{Status.DONE}', '{Status.FINAL}')"
_SHOWN = f"""
SELECT v.answer, v.failure_type, v.confidence, v.answered, v.system, v.service, v.scope, v.operation, v.method,
    {_TEXTS.format("question")} AS question, {_TEXTS.format("reason")} AS reason,
    {_TEXTS.format("operation.name")} AS name, {_TEXTS.format("operation.trace_id")} AS operation_trace,
    (SELECT count(*) {_REVIEWS}) AS reviews
FROM verdict AS v
"""


def _time(text: str) -> int:
    try:
        return parse_time(text)
    except ValueError:
        raise ValueError("a time must be a date (2026-01-31) or an RFC 3339 time") from None


@dataclass(frozen=True, slots=True)
class Filter:
    """Which failures a page shows; '' restricts nothing. Times are ns since the epoch, `sure` is the least confidence
    in percent, `cause` the span id of the decisive operation, `reviewed` is `yes` or `no`, `text` is searched for."""

    type: str = ""
    system: str = ""
    service: str = ""
    scope: str = ""
    since: str = ""
    until: str = ""
    sure: str = ""
    reviewed: str = ""
    cause: str = ""
    text: str = ""

    @classmethod
    def read(cls, given: Iterable[tuple[str, str]]) -> Filter:
        """Return the filter of a query or a form; unknown names are ignored."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: value.strip()[:200] for name, value in given if name in names})

    def given(self, **changed: str) -> dict[str, str]:
        """Return the members that restrict, some of them changed; never the searched text, which is content."""
        both = {field.name: getattr(self, field.name) for field in fields(self)} | changed
        return {name: value for name, value in both.items() if value and name != "text"}

    def where(self) -> tuple[str, list[Any]]:
        """Return the condition in SQL and its values. Raises ValueError for a time or a number that is none."""
        named = {"failure_type": self.type, "system": self.system, "service": self.service, "scope": self.scope}
        found: list[tuple[str, Any]] = [
            (f"v.{name} = ?", value) for name, value in (named | {"operation": self.cause}).items() if value
        ]
        if self.since:
            found.append(("v.answered >= ?", _time(self.since)))
        if self.until:  # a date without a time is the whole day
            found.append(("v.answered < ?", _time(self.until) + (_DAY if len(self.until) <= _DATE else 0)))
        if self.sure:
            if not self.sure.isdecimal():
                raise ValueError("the least confidence must be a whole number of percent")
            found.append(("v.confidence >= ?", int(self.sure) / 100))
        conditions = [_NEWEST, *(condition for condition, _ in found)]
        values: list[Any] = [value for _, value in found]
        if self.reviewed:
            exists = f"EXISTS (SELECT 1 {_REVIEWS})"
            conditions.append(exists if self.reviewed == "yes" else f"NOT {exists}")
        if self.text:
            conditions.append(f"instr(lower({_SEARCHED}), lower(?))")
            values.append(self.text)
        return " AND ".join(conditions), values


@dataclass(frozen=True, slots=True)
class Found:
    """The failures that a filter leaves: counts by type, whatever type is chosen, and rows (row, type, answered in ns)
    of the chosen type, the newest first."""

    counts: Counter[str]
    rows: list[dict[str, Any]]

    def over_time(self) -> tuple[int, int, list[dict[str, Any]]]:
        """Return the start (ns), the length of a bar (ns), and rows (bar, name, count) of the failures by type."""
        first, last = (self.rows[-1]["answered"], self.rows[0]["answered"]) if self.rows else (0, 0)
        length = max(1, -(-(last - first + 1) // BARS))
        bars = Counter(((row["answered"] - first) // length, row["type"]) for row in self.rows)
        return first, length, [{"bar": bar, "name": name, "count": count} for (bar, name), count in bars.items()]


@dataclass(frozen=True, slots=True)
class QueueItem:
    """An answer to review; `failure_type` is '' for an answer without a verdict, `doubted` when an audit doubts its
    expected answer."""

    answer: str
    failure_type: str
    doubted: bool = False


def _kept(query: Callable[Concatenate[PageStore, _P], _R]) -> Callable[Concatenate[PageStore, _P], _R]:
    """Keep the results of a query of whole tables until the file changes. Callers leave a result as it is."""

    @wraps(query)
    def read(store: PageStore, *given: _P.args, **named: _P.kwargs) -> _R:
        return store.kept((query.__name__, *given, *named.items()), lambda: query(store, *given, **named))

    return read


class PageStore(SqliteStore):
    """A database file with the queries of the pages."""

    def __init__(self, connection: Connection, path: Path) -> None:
        super().__init__(connection, path)
        self._results: dict[tuple[Any, ...], Any] = {}
        self._state = (0, 0)

    # --- failures ------------------------------------------------------------------------------------------------
    def failures(self, chosen: Filter, most: int = -1) -> list[dict[str, Any]]:
        """Return the failures, the newest answer first."""
        where, values = chosen.where()
        return self._rows(f"{_SHOWN} WHERE {where} ORDER BY v.answered DESC, v.answer LIMIT ?", (*values, most))

    @_kept
    def causes(self, chosen: Filter) -> list[dict[str, Any]]:
        """Return the decisive operations with the number of answers that they made fail, most first."""
        where, values = chosen.where()
        query = f"""
            SELECT v.operation, v.failure_type, {_TEXTS.format("operation.name")} AS name, count, last,
                {_TEXTS.format("reason")} AS reason
            FROM verdict AS v JOIN (SELECT v.rowid AS newest, count(*) AS count, max(v.answered) AS last
                FROM verdict AS v WHERE {where} AND v.operation <> ''
                GROUP BY v.operation, v.failure_type ORDER BY count DESC, last DESC LIMIT {_MOST_CAUSES})
            ON v.rowid = newest ORDER BY count DESC, last DESC"""
        return self._rows(query, values)

    @_kept
    def found(self, chosen: Filter) -> Found:
        """Return the failures that the filter leaves, whatever their type: a page reads every document once."""
        where, values = replace(chosen, type="").where()
        query = f"""SELECT v.rowid AS row, v.failure_type AS type, coalesce(v.answered, 0) AS answered
            FROM verdict AS v WHERE {where} ORDER BY v.answered DESC, v.answer"""
        rows = self._rows(query, values)
        return Found(
            Counter(row["type"] for row in rows), [r for r in rows if r["type"] == chosen.type or not chosen.type]
        )

    def shown(self, found: Found, page: int, rows: int = PAGE_ROWS) -> list[dict[str, Any]]:
        """Return what one page of the failures shows, the newest answer first."""
        some = [row["row"] for row in found.rows[(page - 1) * rows : page * rows]]
        where = f"v.rowid IN ({', '.join('?' * len(some))})"
        return self._rows(f"{_SHOWN} WHERE {where} ORDER BY v.answered DESC, v.answer", some)

    @_kept
    def choices(self) -> dict[str, list[str]]:
        """Return the values of system, service and scope that verdicts have."""
        query = "SELECT DISTINCT {0} AS name FROM verdict WHERE {0} <> '' ORDER BY 1 LIMIT 500"
        names = ("system", "service", "scope")
        return {name: [row["name"] for row in self._rows(query.format(name), ())] for name in names}

    def has_operation(self, origin: str) -> bool:
        """Tell whether the file has the span of an origin."""
        query = "SELECT 1 AS found FROM span WHERE trace = ? AND span = ?"
        return is_origin(origin) and bool(self._rows(query, (bytes.fromhex(origin[:32]), bytes.fromhex(origin[33:]))))

    def machine_verdict(self, answer: str) -> StoredVerdict | None:
        """Return the newest verdict on an answer that no person gave."""
        query = """SELECT answer, attribution_id, document, created FROM verdict
            WHERE answer = ? AND method IS NOT 'human' ORDER BY rowid DESC LIMIT 1"""
        return next((StoredVerdict(**row) for row in self._rows(query, (answer,))), None)

    @_kept
    def responses(self) -> dict[str, str]:
        """Return the origin of the answer of each `gen_ai.response.id`."""
        answers = ((span.attributes.get(GEN_AI_RESPONSE_ID), span) for span in self.spans(kinds=[OpKind.RESPOND]))
        return {str(id): span.origin for id, span in answers if id}

    @_kept
    def memories(self) -> list[dict[str, Any]]:
        """Return scope, number of spans, first and last start (ns) of every memory scope: all in one index."""
        query = """SELECT scope, count(*) AS spans, min(start) AS first, max(start) AS last
            FROM span WHERE scope <> '' GROUP BY scope ORDER BY scope"""
        return self._rows(query, ())

    @_kept
    def failing_scopes(self) -> dict[str, int]:
        """Return the number of failing answers of each memory scope that has any."""
        query = f"SELECT scope, count(*) AS count FROM verdict AS v WHERE {_NEWEST} GROUP BY scope"
        return {row["scope"]: row["count"] for row in self._rows(query, ())}

    def newest_spans(self, scope: str, kinds: Sequence[str], until: int, most: int) -> list[OperationSpan]:
        """Return the newest spans of a memory scope that are of these kinds and started before `until` (ns)."""
        places = ", ".join("?" * len(kinds))
        clause = f"WHERE scope = ? AND start < ? AND kind IN ({places}) ORDER BY start DESC LIMIT ?"
        return self._select(clause, (scope, until, *map(str, kinds), most))

    def writes(self, scope: str) -> list[OperationSpan]:
        """Return the spans of a memory scope that wrote a record, by start time."""
        actions = ", ".join(f"'{action}'" for action in sorted(WRITING_ACTIONS))
        wrote = (
            f"SELECT 1 FROM variable WHERE variable.span = span.id AND direction = {OUTPUT} AND action IN ({actions})"
        )
        return self._select(f"WHERE scope = ? AND EXISTS ({wrote}) ORDER BY start, id", (scope,))

    def has_more_spans(self, scope: str, count: int) -> bool:
        """Tell whether a memory scope has more than `count` spans."""
        return bool(self._rows("SELECT 1 FROM span WHERE scope = ? LIMIT 1 OFFSET ?", (scope, count)))

    def spans_stored(self) -> int:
        """Return the row of the newest span: another number means new spans."""
        return self._rows("SELECT coalesce(max(id), 0) AS id FROM span", ())[0]["id"]

    @_kept
    def published(self) -> list[str]:
        """Return the answers whose newest verdict a person gave."""
        query = f"SELECT v.answer FROM verdict AS v WHERE method = 'human' AND {_NEWEST}"
        return [row["answer"] for row in self._rows(query, ())]

    def withdraw_published(self, answers: Iterable[str]) -> None:
        """Delete the verdicts of people on these answers; the verdicts of the machine are the newest again."""
        with self._locked() as connection, transaction(connection):
            query = "DELETE FROM verdict WHERE answer = ? AND method = 'human'"
            connection.executemany(query, [(answer,) for answer in answers])

    # --- reviews -------------------------------------------------------------------------------------------------
    @_kept
    def queue(self) -> list[QueueItem]:
        """Return the answers to review: those with a verdict or a doubted expected answer, and a sample of the others.

        All are in the order of their span ids: random, the same for every annotator, and silent about the verdict.
        """
        judged = f"SELECT v.answer, coalesce(v.failure_type, '') AS failure_type FROM verdict AS v WHERE {_NEWEST}"
        found = [QueueItem(**row) for row in self._rows(judged, ())]
        healthy = max(_LEAST_HEALTHY, len(found) // _HEALTHY_SHARE)
        sample = f"""SELECT answer, '' AS failure_type FROM
            (SELECT lower(hex(trace) || '-' || hex(span)) AS answer, span FROM span
                WHERE kind = '{OpKind.RESPOND}' AND part = 0)
            WHERE answer NOT IN (SELECT answer FROM verdict) ORDER BY span LIMIT ?"""
        found += [QueueItem(**row) for row in self._rows(sample, (healthy,))]
        doubted = dict.fromkeys((review.answer for review in self.proposals()), "")
        known = doubted | {item.answer: item.failure_type for item in found}
        items = [QueueItem(answer, kind, answer in doubted) for answer, kind in known.items()]
        return sorted(items, key=lambda item: item.answer[33:])

    def reviews(self, answer: str = "", annotator: str = "", *, drafts: bool = False) -> list[Review]:
        """Return the reviews (of an answer, by an annotator), oldest first; with `drafts` also the unfinished ones."""
        return self._reviews((Status.DONE, Status.FINAL, Status.DRAFT)[: 2 + drafts], answer, annotator)

    def proposals(self, answer: str = "") -> list[Review]:
        """Return what the last audit proposed (on an answer), the surest first."""
        return self._reviews((Status.PROPOSED,), answer)

    def replace_proposals(self, reviews: Iterable[Review]) -> None:
        """Store what an audit proposes, in the place of the proposals of the audit before."""
        with self._locked() as connection, transaction(connection):
            connection.execute("DELETE FROM review WHERE status = ?", (Status.PROPOSED,))
            self._save(connection, reviews)

    def save_reviews(self, reviews: Iterable[Review]) -> int:
        """Store reviews, each in the place of the same annotator's review of the answer; return how many."""
        with self._locked() as connection, transaction(connection):
            return self._save(connection, reviews)

    @staticmethod
    def _save(connection: Connection, reviews: Iterable[Review]) -> int:
        now = time.time_ns()
        rows = [replace(review, created=review.created or now) for review in reviews]
        connection.executemany(
            "INSERT OR REPLACE INTO review (answer, annotator, status, document, created) VALUES (?, ?, ?, ?, ?)",
            [(r.answer, r.annotator, r.status, json.dumps(r.json(), ensure_ascii=False), r.created) for r in rows],
        )
        return len(rows)

    def draft_of(self, answer: str, annotator: str) -> Review | None:
        """Return the first choice of an annotator, made before the verdict was shown; None before a choice."""
        found = self.reviews(answer, annotator, drafts=True)
        return next((review for review in found if review.status == Status.DRAFT), None)

    def undo_review(self, annotator: str) -> Review | None:
        """Take back the newest review of an annotator and return it; None without one.

        A review becomes unfinished and keeps its members. An adjudication is deleted.
        """
        finished = self.reviews(annotator=annotator)
        if not finished:
            return None
        newest = finished[-1]
        with self._locked() as connection, transaction(connection):
            values = (newest.answer, annotator, newest.status)
            connection.execute("DELETE FROM review WHERE (answer, annotator, status) = (?, ?, ?)", values)
            if newest.status == Status.DONE:
                self._save(connection, [replace(newest, status=Status.DRAFT)])
        return newest

    def _reviews(self, states: Sequence[str], answer: str = "", annotator: str = "") -> list[Review]:
        given = {"answer": answer, "annotator": annotator}
        conditions = [f"status IN ({', '.join(repr(str(status)) for status in states)})"]
        conditions += [f"{name} = :{name}" for name, value in given.items() if value]
        query = f"SELECT document FROM review WHERE {' AND '.join(conditions)} ORDER BY created, rowid"
        return [read_review(row["document"]) for row in self._rows(query, given)]

    # --- inside --------------------------------------------------------------------------------------------------
    def kept(self, key: tuple[Any, ...], query: Callable[[], _R]) -> _R:
        """Return the result of a query, the kept one while neither this connection nor another changes the file."""
        with self._decoded() as connection:
            state = (pragma(connection, "data_version"), connection.total_changes)
            if state != self._state or len(self._results) >= _KEPT:
                self._state, self._results = state, {}
            if key not in self._results:
                self._results[key] = query()
            return self._results[key]

    def _rows(self, query: str, values: Sequence[Any] | Mapping[str, Any]) -> list[dict[str, Any]]:
        with self._decoded() as connection, closing(connection.cursor()) as cursor:
            cursor.row_factory = Row
            return [dict(row) for row in cursor.execute(query, values)]


class LivePageStore(PageStore):
    """A database that a server fills: the decoding process of the server decodes the inbox."""

    def decode(self) -> int:
        """Leave the inbox as it is."""
        return 0
