"""How failure types and steps are called in front of people."""

from __future__ import annotations

from memtrace_otel.semconv import FailureType

ORDER = tuple(str(kind) for kind in FailureType)
"""Failure types in causal order, as tiles and bars show them."""

MEANING: dict[str, str] = {
    FailureType.EXTRACTION: "said, but never taken into memory",
    FailureType.UPDATE: "a later write damaged or missed it",
    FailureType.DELETION: "the record was deleted",
    FailureType.RETRIEVAL: "in memory, but not found",
    FailureType.RESPONSE: "in the context, but ignored",
    FailureType.JUDGE: "the answer was right after all",
    FailureType.ANNOTATION: "the expected answer is wrong",
    FailureType.UNKNOWN: "the trace does not tell",
}

_FLAGS = {
    FailureType.EXTRACTION: "Lost here: not extracted",
    FailureType.UPDATE: "Lost here: overwritten",
    FailureType.DELETION: "Lost here: deleted",
    FailureType.RETRIEVAL: "Lost here: not retrieved",
    FailureType.RESPONSE: "Went wrong here: ignored",
    FailureType.JUDGE: "Went wrong here: misjudged",
    FailureType.ANNOTATION: "Expected answer is wrong",
}

_STEPS = {
    "message": "Said",
    "fact": "Extracted",
    "record": "Stored",
    "hit": "Retrieved",
    "lost": "Not extracted",
    "overwritten": "Overwritten",
    "not_written": "Not written",
    "not_renewed": "Not renewed",
    "deleted": "Deleted",
    "not_retrieved": "Not retrieved",
    "answered": "Answered",
    "judged": "Judged",
}

LOSSES = frozenset(
    {"lost", "overwritten", "not_written", "not_renewed", "deleted", "not_retrieved", "answered", "judged"}
)
"""Roles of the last step, where the fact went missing."""


def failure_class(failure_type: str) -> str:
    """Return the failure type when it is one of the contract, else `unknown`; safe as a class name."""
    return failure_type if failure_type in ORDER else FailureType.UNKNOWN


def flag(failure_type: str, role: str = "") -> str:
    """Return the label of the decisive operation; the role of the losing step says more than the type of an update."""
    if failure_type == FailureType.UPDATE and role in ("not_written", "not_renewed"):
        return f"Lost here: {_STEPS[role].lower()}"
    return _FLAGS.get(FailureType(failure_class(failure_type)), "Decisive operation")


def step_name(role: str) -> str:
    """Return the name of an evidence step; roles we do not know are shown as they are."""
    return _STEPS.get(role, role.replace("_", " ").capitalize() or "Step")
