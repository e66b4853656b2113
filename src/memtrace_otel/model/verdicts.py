"""`Verdict`: the result of attribution for one failing answer: one verdict per failing answer."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

from memtrace_otel.model.spans import OperationSpan


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed answer: the answering span and what judged it. Texts are '' when not captured or not given."""

    answer_span: OperationSpan
    judge_span: OperationSpan | None = None
    evaluation: str = ""
    label: str = ""
    score: float | None = None
    explanation: str = ""
    question: str = ""
    answer: str = ""
    expected: str = ""
    evidence: tuple[str, ...] = ()
    lacks_answer: bool = False
    """The answering span is not there: it comes later, or to another store, or was lost. `answer_span` has its ids."""

    @property
    def trace_id(self) -> str:
        """Trace of the failing answer."""
        return self.answer_span.trace_id

    @property
    def time_order(self) -> tuple[int, str]:
        """Sorts failures by when the answer was given, one for one."""
        return self.answer_span.start, self.answer_span.origin


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the evidence, from source message to loss: what part, which variable, which span."""

    role: str
    ref: str
    origin: str
    note: str = ""

    def __str__(self) -> str:
        """Wire form `role|ref|trace-span`."""
        return f"{self.role}|{self.ref}|{self.origin}"


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another explanation, less likely than the verdict."""

    failure_type: str
    trace_id: str
    span_id: str
    confidence: float


@dataclass(frozen=True, slots=True)
class Replay:
    """What running again without the blamed fault showed. `answer` is the new answer, '' without one.

    `outcome` is a value of `memtrace.failure.replay`. `calls` of a chat model were made, `tokens` were spent.
    """

    outcome: str
    reason: str
    answer: str = ""
    calls: int = 0
    tokens: int = 0
    removed: tuple[str, ...] = ()
    """Memories that the new request lacks."""
    added: tuple[str, ...] = ()
    """Memories that only the new request has."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call of the agent's model: the `tool` that the reply names ('' without a usable reply), a short form of its
    arguments and of what it showed; `tokens` were spent; times in ns since the epoch."""

    tool: str
    arguments: str
    result: str
    tokens: int
    started: int
    ended: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The attribution of one failure. `trace_id`/`span_id` of the decisive operation are '' when there is none.

    `advice` is one next step for a person. `earlier_types` are the failure types that the verdicts on the same answer
    before this one name. `model` was asked and `tokens` were spent; `model_problem` says why answers are missing.
    """

    failure: Failure
    failure_type: str
    trace_id: str
    span_id: str
    operation: str
    operation_kind: str
    variable: str
    confidence: float
    reason: str
    evidence: tuple[Step, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    complete: bool = True
    when: int = 0
    attribution_id: str = ""
    method: str = "rules"
    version: str = ""
    replaces: str = field(default="")
    advice: str = ""
    model: str = ""
    tokens: int = 0
    model_problem: str = ""
    replay: Replay | None = None
    calls: tuple[ModelCall, ...] = ()
    """The steps of the agent."""
    earlier_types: frozenset[str] = frozenset()

    @property
    def claim(self) -> str:
        """The identity of what is said: equal verdicts have equal claims."""
        operation = f"{self.trace_id}-{self.span_id}" if self.span_id else ""
        method = f"{self.method}+{self.replay.outcome}" if self.replay else self.method
        return attribution_id(self.failure.answer_span.origin, self.failure_type, operation, self.variable, method)

    def blaming(self, operation: OperationSpan | None, failure_type: str, variable: str) -> Verdict:
        """Return the verdict with another decisive operation, None for no operation."""
        return replace(
            self,
            failure_type=failure_type,
            trace_id=operation.trace_id if operation else "",
            span_id=operation.span_id if operation else "",
            operation=operation.name if operation else "",
            operation_kind=operation.kind if operation else "",
            variable=variable,
            when=operation.start if operation else 0,
        )


def attribution_id(answer: str, failure_type: str, operation: str, variable: str, method: str) -> str:
    """Return the identity of a verdict, 32 hex digits: equal verdicts have equal ids in every version of the program.

    `answer` and `operation` are origins `<trace>-<span>`, `operation` is '' where no operation is blamed.
    """
    parts = "\0".join((answer, failure_type, operation, variable, method))
    digest = hashlib.sha256(parts.encode("utf-8", "replace")).hexdigest()[:32]
    return digest if digest.strip("0") else "1" * 32
