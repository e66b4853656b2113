"""`Review`: what a person says of one answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

from memtrace_otel.model.refs import is_origin
from memtrace_otel.semconv import FailureType


class Label(StrEnum):
    """Labels of a review beside the failure types."""

    HEALTHY = "healthy"
    NOT_MEMORY = "not_memory"
    CANNOT_TELL = "cannot_tell"


LABELS = (*map(str, FailureType), *map(str, Label))


class Status(StrEnum):
    """`DRAFT`: the first choice, made before the verdict was shown. `DONE`: one annotator's review. `FINAL`: the
    adjudication of differing reviews. `PROPOSED`: an audit doubts the expected answer, for people to review."""

    DRAFT = "draft"
    DONE = "done"
    FINAL = "final"
    PROPOSED = "proposed"


@dataclass(frozen=True, slots=True)
class Review:
    """The review of one answer (origin of its span) by one annotator.

    `label` is one of `LABELS`, `operation` the origin of the operation to blame or ''. `second_*` is a second cause.
    `evidence` are origins. `confidence` is 1 (guess), 2 (likely) or 3 (sure). `verdict` is the attribution id of the
    verdict that was compared, `seen_type` its failure type; `blind`: the label was chosen before the verdict was
    shown. `seconds` is the time that the annotator took, `created` ns since the epoch.
    """

    answer: str
    annotator: str
    label: str
    operation: str = ""
    second_label: str = ""
    second_operation: str = ""
    evidence: tuple[str, ...] = ()
    confidence: int = 2
    corrected: str = ""
    note: str = ""
    verdict: str = ""
    seen_type: str = ""
    blind: bool = True
    seconds: float = 0.0
    status: str = Status.DONE
    created: int = 0

    def problem(self) -> str:
        """Return why the review cannot be stored, '' when nothing is wrong. Whether operations exist is not checked."""
        if not is_origin(self.answer):
            return "the answer must be `<trace id>-<span id>`"
        if not self.annotator.strip() or len(self.annotator) > 80 or not self.annotator.isprintable():
            return "the annotator must have a name of at most 80 characters"
        if self.label not in LABELS or self.second_label not in ("", *LABELS):
            return f"the label must be one of {', '.join(LABELS)}"
        if any(origin and not is_origin(origin) for origin in (self.operation, self.second_operation, *self.evidence)):
            return "an operation must be `<trace id>-<span id>`"
        if self.confidence not in (1, 2, 3):
            return "the confidence must be 1, 2 or 3"
        return "" if self.status in list(Status) else f"the status must be one of {', '.join(Status)}"

    def json(self) -> dict[str, Any]:
        """Return the review as a JSON object, a key per field."""
        return asdict(self)


_NAMES = frozenset(field.name for field in fields(Review))


def read_review(given: Mapping[str, Any] | str) -> Review:
    """Return the review of a JSON object; unknown keys are ignored. Raises ValueError with the reason."""
    try:
        members = dict(json.loads(given) if isinstance(given, str) else given)
        known = {name: value for name, value in members.items() if name in _NAMES}
        known["evidence"] = tuple(map(str, known.get("evidence") or ()))
        review = Review(**known)
        problem = review.problem()
    except (TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"no review: {error}") from None
    if problem:
        raise ValueError(problem)
    return review
