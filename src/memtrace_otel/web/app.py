"""The pages as a Starlette application: one method per page, forms for every change, no state but the database."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from memtrace_otel.capture.feedback import feedback_redaction
from memtrace_otel.health import read_thresholds
from memtrace_otel.model import Status, is_origin
from memtrace_otel.model.printable import one_line, printable
from memtrace_otel.otlp.feedback import FeedbackError, encode_feedback
from memtrace_otel.pages import Page
from memtrace_otel.report import page_templates
from memtrace_otel.report.times import day_and_clock
from memtrace_otel.report.wording import MEANING, ORDER
from memtrace_otel.sources import SourceError
from memtrace_otel.web.case import load_case
from memtrace_otel.web.chart import chart
from memtrace_otel.web.exchange import failures_csv, failures_jsonl
from memtrace_otel.web.health import HealthBoard
from memtrace_otel.web.memory import Memories
from memtrace_otel.web.reviewing import ReviewError, Reviewing
from memtrace_otel.web.security import BODY_BYTES, COOKIE, Guard, annotator_of, cookie_value
from memtrace_otel.web.store import PAGE_ROWS, Filter, PageStore

_EXPORTED = 100_000
_STATIC = {
    "style.css": ("text/css", "memtrace_otel.report", "templates/style.css"),
    "web.css": ("text/css", "memtrace_otel.web", "static/web.css"),
    "web.js": ("text/javascript", "memtrace_otel.web", "static/web.js"),
}
_YEAR = 365 * 24 * 3600


class NotThereError(LookupError):
    """The database holds no such answer, memory or record."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: names in the path, query and form together, and the annotator ('' when unknown)."""

    path: Mapping[str, str]
    pairs: list[tuple[str, str]]
    annotator: str
    method: str
    cookies: Mapping[str, str] = field(default_factory=dict[str, str])
    address: str = ""

    def get(self, name: str, default: str = "") -> str:
        """Return the last value of a name."""
        return next((value for key, value in reversed(self.pairs) if key == name), default)

    def all(self, name: str) -> list[str]:
        """Return every value of a name."""
        return [value for key, value in self.pairs if key == name]

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """Return a number within bounds; raises ValueError for text that is none."""
        given = self.get(name) or str(default)
        if not given.isdecimal():
            raise ValueError(f"{name} must be a whole number")
        return min(most, max(least, int(given)))


class Pages:
    """The pages on one database. `annotators` (token -> name) may be empty on loopback, where a name is enough."""

    def __init__(self, store: PageStore, annotators: Mapping[str, str], backend: Page | None = None) -> None:
        self._store = store
        self._annotators = annotators
        self._memories = Memories(store)
        self._reviewing = Reviewing(store)
        self._health = HealthBoard(store)
        self._templates = page_templates("memtrace_otel.web")
        self._templates.filters.update(when=day_and_clock, line=one_line, query=urlencode)
        self._shared: dict[str, Any] = {"types": ORDER, "meaning": MEANING, "backend": backend}

    def app(self) -> Starlette:
        """Return the application."""
        pages: dict[str, Callable[[Ask], Response]] = {
            "/": lambda ask: _to("/failures"),
            "/failures": self.failures,
            "/failures/export": self.export,
            "/failure/{answer}": self.failure,
            "/failure/{answer}/feedback": self.feedback,
            "/memories": self.memories,
            "/health": self.memories_health,
            "/memory/{scope}": self.memory,
            "/memory/{scope}/record": self.record,
            "/memory/{scope}/health": self.health,
            "/review": self.review,
            "/review/next": self.next_review,
            "/audit": self.audit,
            "/review/undo": self.undo,
            "/review/publish": self.publish,
            "/review/mode": self.mode,
            "/review/{answer}": self.review_item,
            "/login": self.login,
            "/static/{name}": self.static,
        }
        routes = [Route(path, self._endpoint(page), methods=["GET", "POST"]) for path, page in pages.items()]
        return Starlette(routes=routes, middleware=[Middleware(Guard, annotators=self._annotators)])

    def _endpoint(self, page: Callable[[Ask], Response]) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            pairs = list(request.query_params.multi_items())
            if request.method == "POST":
                body = b""
                async for part in request.stream():
                    body += part[: BODY_BYTES - len(body)]
                pairs += parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
            annotator = annotator_of(request, self._annotators)
            ask = Ask(request.path_params, pairs, annotator, request.method, request.cookies, request.url.path)
            return await run_in_threadpool(self._answer, page, ask)

        return handle

    def _answer(self, page: Callable[[Ask], Response], ask: Ask) -> Response:
        try:
            return page(ask)
        except NotThereError as error:
            return self._page("problem.html.j2", ask, 404, problem=str(error))
        except (ReviewError, FeedbackError, ValueError) as error:
            return self._page("problem.html.j2", ask, 400, problem=one_line(str(error), 300))
        except SourceError as error:
            return self._page("problem.html.j2", ask, 503, problem=one_line(str(error), 300))

    def _page(self, template: str, ask: Ask, status: int = 200, **values: Any) -> HTMLResponse:
        known = self._shared | {"annotator": ask.annotator, "address": ask.address}
        shown = self._templates.get_template(template).render(known | values)
        return HTMLResponse(shown, status)

    # --- failures ------------------------------------------------------------------------------------------------
    def failures(self, ask: Ask) -> Response:
        """The list of failures, filtered, or the decisive operations with how many failures each made."""
        chosen = Filter.read(ask.pairs)
        page, view = ask.number("page", 1, 1, 1_000_000), ask.get("view")
        found = self._store.found(chosen)
        total = len(found.rows)
        return self._page(
            "failures.html.j2",
            ask,
            chosen=chosen,
            choices=self._store.choices(),
            counts=found.counts,
            total=total,
            page=page,
            last=max(1, -(-total // PAGE_ROWS)),
            view=view,
            chart=chart(*found.over_time()),
            rows=[] if view == "cause" else self._store.shown(found, page),
            causes=self._store.causes(chosen) if view == "cause" else [],
        )

    def export(self, ask: Ask) -> Response:
        """The filtered failures as CSV or JSON lines."""
        rows = self._store.failures(Filter.read(ask.pairs), most=_EXPORTED)
        as_csv = ask.get("form") == "csv"
        text, kind = (failures_csv(rows), "text/csv") if as_csv else (failures_jsonl(rows), "application/jsonl")
        name = f"failures.{'csv' if as_csv else 'jsonl'}"
        return Response(text, media_type=kind, headers={"content-disposition": f'attachment; filename="{name}"'})

    def failure(self, ask: Ask) -> Response:
        """One answer: the card, alternatives, prompt, candidates, feedback."""
        answer = _answer_named(ask)
        case = load_case(self._store, answer, self._store.verdict(answer))
        if case is None:
            raise NotThereError("The database holds no such answer.")
        reviews = [
            one for one in self._store.reviews(answer) if one.annotator == ask.annotator or one.status == "final"
        ]
        return self._page("failure.html.j2", ask, case=case, reviews=reviews, said=ask.get("said"))

    def feedback(self, ask: Ask) -> Response:
        """Judge the answer: the form of a failure's page."""
        answer = _answer_named(ask, post=True)
        if not self._store.has_operation(answer):
            raise NotThereError("The database holds no such answer.")
        request = encode_feedback(
            answer[:32],
            label=ask.get("label"),
            expected=ask.get("expected"),
            explanation=ask.get("explanation"),
            described=feedback_redaction(),
        )
        self._store.add_request(request)
        return _to(f"/failure/{answer}?said=yes")

    # --- memories ------------------------------------------------------------------------------------------------
    def memories(self, ask: Ask) -> Response:
        """The memory scopes of the database."""
        newest_first = sorted(self._store.memories(), key=lambda one: one["last"], reverse=True)
        return self._page("memories.html.j2", ask, scopes=newest_first, failing=self._store.failing_scopes())

    def memory(self, ask: Ask) -> Response:
        """A memory at a moment, and what changed since an earlier one."""
        memory = self._memories.get(ask.path["scope"])
        last = len(memory.moments) - 1
        if not last:
            raise NotThereError("The database holds no record of such a memory.")
        until = ask.number("until", last, 0, last)
        since = ask.number("since", max(0, until - 1), 0, until)
        records, changes = memory.records(until), memory.changes(since, until)
        page = ask.number("page", 1, 1, max(1, -(-len(records) // PAGE_ROWS)))
        return self._page(
            "memory.html.j2",
            ask,
            scope=ask.path["scope"],
            memory=memory,
            last=last,
            since=since,
            until=until,
            held=len(records),
            records=records[(page - 1) * PAGE_ROWS : page * PAGE_ROWS],
            changed=len(changes),
            changes=changes[:PAGE_ROWS],
            page=page,
            pages=max(1, -(-len(records) // PAGE_ROWS)),
        )

    def record(self, ask: Ask) -> Response:
        """The life of one record."""
        scope, ref = ask.path["scope"], ask.get("ref")
        versions = self._memories.around(scope, ref).life(ref)
        if not versions:
            raise NotThereError("The memory holds no such record.")
        return self._page("record.html.j2", ask, scope=scope, ref=printable(ref), versions=versions)

    def memories_health(self, ask: Ask) -> Response:
        """Every memory with its measures, the worst first."""
        found, total = self._health.memories(read_thresholds())
        page = ask.number("page", 1, 1, max(1, -(-len(found) // PAGE_ROWS)))
        return self._page(
            "memories_health.html.j2",
            ask,
            memories=found[(page - 1) * PAGE_ROWS : page * PAGE_ROWS],
            measured=len(found),
            ill=sum(bool(one.raised) for one in found),
            total=total,
            page=page,
            pages=max(1, -(-len(found) // PAGE_ROWS)),
        )

    def health(self, ask: Ask) -> Response:
        """The measures of `memtrace-otel health` for one memory, those above their thresholds first."""
        scope = ask.path["scope"]
        own = self._health.memory(scope, read_thresholds())
        if own is not None and own.problem:
            return self._page("problem.html.j2", ask, 503, problem=own.problem)
        return self._page("health.html.j2", ask, scope=scope, own=own)

    # --- review --------------------------------------------------------------------------------------------------
    def review(self, ask: Ask) -> Response:
        """The queue, progress by person, agreement, differences to adjudicate."""
        return self._page("review.html.j2", ask, board=self._reviewing.board(ask.annotator), mode=_mode(ask))

    def next_review(self, ask: Ask) -> Response:
        """The next item that the annotator has not reviewed."""
        self._named(ask)
        queue = ask.get("queue")
        found = self._reviewing.next_item(ask.annotator, after=ask.get("after"), doubted=queue == "audit")
        end = "/audit" if queue == "audit" else "/review"
        return _to(f"/review/{found}{_of_queue(queue)}" if found else end)

    def audit(self, ask: Ask) -> Response:
        """The expected answers that the last `memtrace-otel audit --queue` doubts, the surest first."""
        doubts = self._store.proposals()
        page = ask.number("page", 1, 1, max(1, -(-len(doubts) // PAGE_ROWS)))
        shown = doubts[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
        reviews = self._store.reviews(annotator=ask.annotator) if ask.annotator else []
        done = {review.answer for review in reviews}
        return self._page(
            "audit.html.j2",
            ask,
            doubts=[(one, one.note.splitlines(), one.answer in done) for one in shown],
            total=len(doubts),
            page=page,
            pages=max(1, -(-len(doubts) // PAGE_ROWS)),
        )

    def review_item(self, ask: Ask) -> Response:
        """One answer to review: its path, the form, and the verdict once a choice was made."""
        self._named(ask)
        answer = _answer_named(ask)
        final = ask.get("status") == "final"
        queue = _of_queue(ask.get("queue"))
        if ask.method == "POST":
            done = self._reviewing.take(ask.annotator, answer, ask.pairs, final=final)
            following = f"/review/next?after={answer}{queue.replace('?', '&')}"
            return _to("/review" if final else following if done else f"/review/{answer}{queue}")
        shown = self._reviewing.item(ask.annotator, answer, assisted=_mode(ask) == "assisted", final=final)
        if shown is None:
            raise NotThereError("The database holds no such answer.")
        started = time.time_ns() // 10**9
        return self._page("item.html.j2", ask, item=shown, case=shown.case, queue=queue, started=started)

    def undo(self, ask: Ask) -> Response:
        """Take back the newest review of the annotator."""
        self._named(ask, post=True)
        undone = self._store.undo_review(ask.annotator)
        final = "?status=final" if undone and undone.status == Status.FINAL else ""
        return _to(f"/review/{undone.answer}{final}" if undone else "/review")

    def publish(self, ask: Ask) -> Response:
        """Make agreed reviews verdicts of method `human`."""
        self._named(ask, post=True)
        return self._page("published.html.j2", ask, published=self._reviewing.publish())

    def mode(self, ask: Ask) -> Response:
        """Switch between blind and assisted."""
        self._named(ask, post=True)
        reply = _to("/review")
        reply.set_cookie("memtrace_mode", "assisted" if ask.get("mode") == "assisted" else "blind", samesite="strict")
        return reply

    def login(self, ask: Ask) -> Response:
        """Take a name, or a token where tokens are needed."""
        given = ask.get("given").strip()
        if ask.method == "GET" or not given:
            return self._page("login.html.j2", ask, needs_token=bool(self._annotators), wrong=False)
        if self._annotators and given not in self._annotators:
            return self._page("login.html.j2", ask, 403, needs_token=True, wrong=True)
        if len(given) > 80 or not given.isprintable():
            raise ReviewError("a name of at most 80 characters is needed")
        reply = _to("/review")
        reply.set_cookie(COOKIE, cookie_value(given), max_age=_YEAR, httponly=True, samesite="strict")
        return reply

    def static(self, ask: Ask) -> Response:
        """A style sheet or the script."""
        if ask.path["name"] not in _STATIC:
            raise NotThereError("no such file")
        kind, package, path = _STATIC[ask.path["name"]]
        return Response(files(package).joinpath(path).read_bytes(), media_type=kind)

    def _named(self, ask: Ask, *, post: bool = False) -> None:
        if not ask.annotator:
            raise ReviewError("Give your name first (Review, then Name).")
        if post and ask.method != "POST":
            raise ReviewError("this address takes forms only")


def _of_queue(name: str) -> str:
    return "?queue=audit" if name == "audit" else ""


def _answer_named(ask: Ask, *, post: bool = False) -> str:
    answer = ask.path["answer"]
    if not is_origin(answer) or (post and ask.method != "POST"):
        raise NotThereError("An answer is named by <trace id>-<span id>.")
    return answer


def _mode(ask: Ask) -> str:
    return "assisted" if ask.cookies.get("memtrace_mode") == "assisted" else "blind"


def _to(path: str) -> RedirectResponse:
    return RedirectResponse(path, 303)
