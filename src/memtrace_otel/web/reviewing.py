"""Reviews: which answer comes next, what a form says, progress, differences, and verdicts that people agree on."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from memtrace_otel.annotate import Delivery, RejectedError, SendError, deliver
from memtrace_otel.attribution.audit import Doubt
from memtrace_otel.model import Alternative, Review, Status, Verdict, is_origin, ref_kind
from memtrace_otel.model.printable import one_line
from memtrace_otel.pipeline.diagnose import Diagnosis, diagnose, record
from memtrace_otel.semconv import FailureType, RefKind
from memtrace_otel.version import __version__
from memtrace_otel.web.agreement import Agreement, agreement
from memtrace_otel.web.case import Case, PathStep, load_case
from memtrace_otel.web.exchange import verdict_label
from memtrace_otel.web.store import PageStore, QueueItem

_SURE = {1: 0.5, 2: 0.75, 3: 0.95}
"""Confidence of a verdict by the confidence of the person."""
AUDITOR = "memtrace-otel audit"
_LIKELY, _CERTAIN = 0.5, 0.8
_NOTED = 1000
_LISTED = 100
"""Differing answers that a page lists."""
_TEXT = 16_384
_MOST_SECONDS = 24 * 3600.0


class ReviewError(ValueError):
    """A review that cannot be stored, with the reason."""


@dataclass(frozen=True, slots=True)
class Item:
    """One answer to review. `own` is the annotator's choice so far. `proposal` is the verdict's type and operation,
    ('', '') while the verdict is hidden. `others` are the differing reviews, for an adjudication only."""

    case: Case
    path: tuple[PathStep, ...]
    own: Review | None
    shown: bool
    proposal: tuple[str, str]
    final: bool
    others: tuple[Review, ...]
    doubt: Review | None
    """What an audit says against the expected answer."""


@dataclass(frozen=True, slots=True)
class Board:
    """The state of all reviews: size of the queue, (annotator, finished) pairs, answers on which annotators differ
    with the number of labels and operations that they gave. `undo`: the annotator has a review to take back."""

    queue: int
    doubted: int
    types: Mapping[str, int]
    own: int
    undo: bool
    progress: tuple[tuple[str, int], ...]
    agreement: Agreement
    differing: tuple[tuple[str, int], ...]
    questions: Mapping[str, str]
    """The questions of the differing answers that a page lists, by answer."""
    publishable: int


@dataclass(frozen=True, slots=True)
class Published:
    """New verdicts of people, how many were `withdrawn`, what was sent, and why something was not."""

    verdicts: int
    withdrawn: int
    delivery: Delivery
    problem: str = ""


def propose(doubts: Iterable[Doubt]) -> Iterator[Review]:
    """Yield a proposed review per doubt: label `annotation`. Lines of the note: the doubt, the question, the expected
    answer, the sentences."""
    for one in doubts:
        texts = (one.failure.question, one.failure.expected, *(quote.text for quote in one.quotes))
        lines = (f"{one.kind}: {', '.join(one.pieces)}", *texts)
        yield Review(
            answer=one.failure.answer_span.origin,
            annotator=AUDITOR,
            label=FailureType.ANNOTATION,
            evidence=tuple(quote.origin for quote in one.quotes),
            confidence=1 + (one.sure >= _LIKELY) + (one.sure >= _CERTAIN),
            note="\n".join(one_line(line, _NOTED) for line in lines),
            status=Status.PROPOSED,
        )


def _sort_of(item: QueueItem) -> str:
    if item.failure_type:
        return "abstained" if item.failure_type == FailureType.UNKNOWN else "failing"
    return "doubted expected answer" if item.doubted else "healthy sample"


class Reviewing:
    """Reviews in a database."""

    def __init__(self, store: PageStore) -> None:
        self._store = store
        self._served: set[tuple[str, str]] = set()  # (annotator, answer) whose verdict a page showed

    def next_item(self, annotator: str, after: str = "", *, doubted: bool = False) -> str:
        """Return the next answer that the annotator has not reviewed, behind `after` in the queue; '' at the end.

        With `doubted`, only answers whose expected answer an audit doubts.
        """
        done = {review.answer for review in self._store.reviews(annotator=annotator) if review.status == Status.DONE}
        left = [item.answer for item in self._store.queue() if item.answer not in done and item.doubted >= doubted]
        return next((answer for answer in left if answer[33:] > after[33:]), left[0] if left else "")

    def item(self, annotator: str, answer: str, *, assisted: bool, final: bool) -> Item | None:
        """Return an item; None when the answer is not in the file. Reviews of others are only in an adjudication."""
        own = self._own(annotator, answer, final)
        stored = self._store.machine_verdict(answer)
        case = load_case(self._store, answer, stored, related=True)
        if case is None:
            return None
        shown = assisted or final or own is not None
        if shown and own is None:
            self._served.add((annotator, answer))
        others = [one for one in self._store.reviews(answer) if one.status == Status.DONE] if final else []
        path = tuple(case.path())
        doubt = next(iter(self._store.proposals(answer)), None)
        return Item(case, path, own, shown, verdict_label(stored) if shown else ("", ""), final, tuple(others), doubt)

    def take(self, annotator: str, answer: str, pairs: Sequence[tuple[str, str]], *, final: bool) -> bool:
        """Store what a form says; return whether the review is finished. Raises ReviewError."""
        given = {name: value.strip() for name, value in pairs}
        own = self._own(annotator, answer, final)
        seen_type, _ = verdict_label(seen := self._store.machine_verdict(answer))
        started = int(given["started"]) if given.get("started", "").isdecimal() else time.time()
        seconds = (own.seconds if own and own.status == Status.DRAFT else 0.0) + max(0.0, time.time() - started)
        is_choice = given.get("action") == "choose" and not final
        was_hidden = given.get("shown") != "yes" and (annotator, answer) not in self._served
        review = Review(
            answer=answer,
            annotator=annotator,
            label=given.get("label", ""),
            operation=given.get("operation", ""),
            second_label=given.get("second_label", ""),
            second_operation=given.get("second_operation", "") if given.get("second_label") else "",
            evidence=tuple(value for name, value in pairs if name == "evidence"),
            confidence=int(given.get("confidence", "2") or 2),
            corrected=given.get("corrected", "")[:_TEXT],
            note=given.get("note", "")[:_TEXT],
            verdict=seen.attribution_id if seen else "",
            seen_type=seen_type,
            blind=(own.blind and own.label == given.get("label")) if own else was_hidden,
            seconds=round(min(seconds, _MOST_SECONDS), 1),
            status=Status.FINAL if final else Status.DRAFT if is_choice else Status.DONE,
        )
        if problem := review.problem():
            raise ReviewError(problem)
        for operation in (answer, review.operation, review.second_operation, *review.evidence):
            if operation and not self._store.has_operation(operation):
                raise ReviewError("the database has no such operation")
        if is_choice and own is not None:
            return False  # the first choice stays
        self._store.save_reviews([review])
        return not is_choice

    def board(self, annotator: str) -> Board:
        """Return the state of all reviews."""
        reviews, queue = self._store.reviews(), self._store.queue()
        done = [review for review in reviews if review.status == Status.DONE]
        counts: defaultdict[str, int] = defaultdict(int)
        said: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        types: defaultdict[str, int] = defaultdict(int)
        for review in done:
            counts[review.annotator] += 1
            said[review.answer].add((review.label, review.operation))
        for item in queue:
            types[_sort_of(item)] += 1
        settled = agreed(reviews)
        differing = sorted((answer, len(given)) for answer, given in said.items() if answer not in settled)
        seen = [stored for answer, _ in differing[:_LISTED] if (stored := self._store.machine_verdict(answer))]
        return Board(
            queue=len(queue),
            doubted=sum(item.doubted for item in queue),
            types=dict(types),
            own=counts.get(annotator, 0),
            undo=any(review.annotator == annotator for review in reviews),
            progress=tuple(sorted(counts.items())),
            agreement=agreement(reviews),
            differing=tuple(differing),
            questions={stored.answer: json.loads(stored.document).get("question", "") for stored in seen},
            publishable=len(self._publishable()) + len(self._withdrawn()),
        )

    def publish(self, most: int = 50) -> Published:
        """Make agreed reviews verdicts of method `human`, at most `most`, and send them as `attribute` does.

        A verdict of a person takes precedence over every other on the answer (wire.md, section 7). A published verdict
        that reviews support no more is withdrawn: the verdict of the machine is published as the newest.
        """
        wanted = dict(list(self._publishable().items())[:most])
        made: list[Any] = []
        with self._store.turn():
            withdrawn = self._withdrawn()[: most - len(wanted)]
            self._store.withdraw_published(withdrawn)
            traces = dict.fromkeys(answer[:32] for answer in (*wanted, *withdrawn))
            for diagnosis in diagnose(self._store, self._store, traces, known=True) if traces else ():
                chosen: list[tuple[Verdict, float]] = []
                for verdict, seconds in zip(diagnosis.verdicts, diagnosis.seconds, strict=True):
                    answer = verdict.failure.answer_span.origin
                    if review := wanted.get(answer):
                        chosen.append((_of_person(verdict, review, diagnosis), seconds))
                    elif answer in withdrawn:
                        chosen.append((verdict, seconds))
                if chosen:
                    verdicts, times = zip(*chosen, strict=True)
                    some = replace(diagnosis, verdicts=verdicts, seconds=times, outdated=())
                    made += record(self._store, some, withdrawn=withdrawn)
            new = sum(annotation.is_new and annotation.verdict.method == "human" for annotation in made)
            try:
                return Published(new, len(withdrawn), deliver(made, self._store))
            except RejectedError as error:
                return Published(new, len(withdrawn), error.delivery, one_line(str(error), 300))
            except SendError as error:
                return Published(new, len(withdrawn), Delivery(), one_line(str(error), 300))

    def _publishable(self) -> dict[str, Review]:
        found: dict[str, Review] = {}
        for answer, review in agreed(self._store.reviews()).items():
            stored = self._store.verdict(answer)
            if stored is None or review.label not in list(FailureType):
                continue
            machine_type, machine_operation = verdict_label(self._store.machine_verdict(answer))
            operation = review.operation or (machine_operation if review.label == machine_type else "")
            is_human = json.loads(stored.document)["method"] == "human"
            if not is_human or verdict_label(stored) != (review.label, operation):
                found[answer] = review
        return found

    def _withdrawn(self) -> list[str]:
        """Return the answers with a published verdict that no agreed review or adjudication supports any more."""
        labels = {answer: review.label for answer, review in agreed(self._store.reviews()).items()}
        return [answer for answer in self._store.published() if labels.get(answer) not in list(FailureType)]

    def _own(self, annotator: str, answer: str, final: bool) -> Review | None:
        """Return the annotator's own review: the finished one, else the first choice."""
        mine = self._store.reviews(answer, annotator, drafts=True)
        order = (Status.FINAL,) if final else (Status.DONE, Status.DRAFT)
        return next((review for status in order for review in mine if review.status == status), None)


def agreed(reviews: Iterable[Review]) -> dict[str, Review]:
    """Return the review that holds for each answer: the adjudication, else a review that all annotators agree on.

    They agree when they name the same label, and the same operation where they name one.
    """
    by_answer: defaultdict[str, list[Review]] = defaultdict(list)
    for review in reviews:
        by_answer[review.answer].append(review)
    found: dict[str, Review] = {}
    for answer, several in by_answer.items():
        final = [review for review in several if review.status == Status.FINAL]
        operations = {review.operation for review in several if review.operation}
        if final:
            found[answer] = final[-1]
        elif len({review.label for review in several}) == 1 and len(operations) < 2:
            found[answer] = max(several, key=lambda review: bool(review.operation))
    return found


def _of_person(verdict: Verdict, review: Review, diagnosis: Diagnosis) -> Verdict:
    """Return the verdict that a review gives, with the evidence of the rules where both name the same cause."""
    operation = review.operation
    own = f"{verdict.trace_id}-{verdict.span_id}" if verdict.span_id else ""
    same = review.label == verdict.failure_type and operation in ("", own)
    span = diagnosis.operation(operation) if is_origin(operation) and not same else None
    common = {
        "failure_type": FailureType(review.label),
        "confidence": _SURE[review.confidence],
        "reason": one_line(review.note) or "A person named this cause.",
        "method": "human",
        "version": __version__,
        "attribution_id": "",
        "model": "",
        "tokens": 0,
        "model_problem": "",
        "replay": None,
    }
    if same:
        return replace(verdict, **common)
    records = [v.ref for v in span.outputs if ref_kind(v.ref) == RefKind.MEMORY] if span else []
    other = Alternative(verdict.failure_type, verdict.trace_id, verdict.span_id, verdict.confidence)
    return replace(
        verdict,
        **common,
        trace_id=span.trace_id if span else "",
        span_id=span.span_id if span else "",
        operation=span.name if span else "",
        operation_kind=span.kind if span else "",
        when=span.start if span else 0,
        variable=next(iter(records), ""),
        evidence=(),
        alternatives=(other,) if verdict.span_id else (),
        advice="",
    )
