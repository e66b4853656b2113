"""Run a candidate on a case under capture: the answer, whether the answer is right, the verdict, and what it cost."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from hashlib import sha256
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import httpx
import openai
import wrapt
from openai.resources.chat.completions import Completions
from opentelemetry import trace
from opentelemetry.instrumentation.dependencies import (
    get_dependency_conflicts,  # pyright: ignore[reportUnknownVariableType]
)
from opentelemetry.instrumentation.instrumentor import (
    BaseInstrumentor,  # pyright: ignore[reportMissingTypeStubs]
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from memtrace_otel import settings
from memtrace_otel.attribution import attribute_trace
from memtrace_otel.attribution.expectation import AnswerForm, answered, expectation, same_answer
from memtrace_otel.attribution.text import Lexicon
from memtrace_otel.capture import origins, recall, use_config
from memtrace_otel.capture.feedback import feedback
from memtrace_otel.graph import EvolutionGraph, build_graph
from memtrace_otel.model import OperationSpan, Verdict, make_origin
from memtrace_otel.model.printable import one_line
from memtrace_otel.otlp import decode_request
from memtrace_otel.otlp.sdk import encode_sdk_spans
from memtrace_otel.repair.components import component_of
from memtrace_otel.repair.subjects import Case, RepairError, Subject, Texts, component_text
from memtrace_otel.semconv import FailureType

Judge = Callable[[str, str, str], bool]
"""Says whether an answer is right: question, expected answer, given answer."""
_ERROR = "error"
"""Type of an outcome without an answer: the candidate broke the subject."""
_OUTAGES = (
    ConnectionError,
    TimeoutError,
    httpx.TransportError,
    openai.APIConnectionError,
    openai.AuthenticationError,
    openai.InternalServerError,
    openai.RateLimitError,
)
"""Errors of an endpoint: these say nothing of a candidate."""
_PROGRESS: Mapping[str, float] = {
    FailureType.UPDATE: 0.1,
    FailureType.DELETION: 0.1,
    FailureType.RETRIEVAL: 0.2,
    FailureType.RESPONSE: 0.3,
}
_TEXTS, _CHARACTERS = 12, 500
"""Inputs and outputs of the decisive operation that are shown to the reflecting model, and characters of each."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run. `component` is the text that the verdict blames, '' for none; `feedback` explains a wrong answer."""

    answer: str
    right: bool
    failure_type: str = ""
    component: str = ""
    feedback: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tokens: int = 0
    calls: int = 0
    seconds: float = 0.0

    @property
    def progress(self) -> float:
        """1 for a right answer; below, how far the fact came before the decisive operation lost the fact.

        A repair of the first of two faults on one path shows here, and not yet in the answers.
        """
        return 1.0 if self.right else _PROGRESS.get(self.failure_type, 0.0)


def is_right(question: str, expected: str, given: str) -> bool:
    """Return whether an answer holds every piece of the expected answer, by the comparison of the rules."""
    wish = expectation(question, expected)
    if same_answer(given, wish) or wish.form is AnswerForm.ABSTAIN:
        return same_answer(given, wish)
    lexicon = Lexicon([given, expected])
    return bool(wish.needs) and all(answered(given, need, wish.form, lexicon) for need in wish.needs)


class Runner:
    """Runs candidates. Outcomes are remembered in a file, so that a run which was stopped goes on where it was."""

    def __init__(self, subject: Subject, judge: Judge, path: Path) -> None:
        self._subject, self._judge, self._path = subject, judge, path
        self.spent = Outcome("", False)
        self.runs = 0
        self._known: dict[str, Outcome] = {}
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:  # a run that was killed leaves half a line
            path.write_bytes(whole)
        for line in whole.splitlines():
            key, outcome = json.loads(line)
            self._remember(key, Outcome(**outcome))

    def _remember(self, key: str, outcome: Outcome) -> None:
        self._known[key] = outcome
        self.runs += 1
        spent = self.spent
        self.spent = Outcome(
            "", False, tokens=spent.tokens + outcome.tokens, calls=spent.calls + outcome.calls,
            seconds=spent.seconds + outcome.seconds,
        )  # fmt: skip

    def run(self, candidate: Texts, case: Case) -> Outcome:
        """Return the outcome of a candidate on a case; the subject runs once for both.

        Raises RepairError when an endpoint does not answer; then nothing is remembered.
        """
        key = sha256(json.dumps([dict(sorted(candidate.items())), case.id, case.question]).encode()).hexdigest()
        if key not in self._known:
            outcome = self._run(candidate, case)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([key, asdict(outcome)], ensure_ascii=False) + "\n")
            self._remember(key, outcome)
        return self._known[key]

    def _run(self, candidate: Texts, case: Case) -> Outcome:
        started = time.monotonic()
        error: Exception | None = None
        answer, right = "", False
        with captured() as (tracer, spans), counted() as usage:
            try:
                with tracer.start_as_current_span("memtrace.repair"):
                    answer = self._subject.run(candidate, case)
                    right = self._judge(case.question, case.expected, answer)
                    feedback("pass" if right else "fail", expected=case.expected, tracer=tracer)
            except _OUTAGES as outage:
                raise RepairError(f"an endpoint does not answer: {type(outage).__name__}: {outage}"[:500]) from outage
            except Exception as broken:  # a candidate that breaks the subject is a wrong answer, and no end of the run
                error = broken
            found = spans()
        costs: dict[str, Any] = {
            "tokens": sum(usage),
            "calls": len(usage),
            "seconds": round(time.monotonic() - started, 3),
        }
        if error is not None:
            return Outcome("", False, _ERROR, feedback={"error": f"{type(error).__name__}: {error}"[:500]}, **costs)
        if right:
            return Outcome(answer, True, **costs)
        graph = build_graph(found)
        verdict = next(iter(attribute_trace(graph)), None)
        if verdict is None:
            return Outcome(answer, False, str(FailureType.UNKNOWN), **costs)
        component = component_text(component_of(verdict, graph))
        return Outcome(answer, False, str(verdict.failure_type), component, _explained(verdict, graph), **costs)


def _explained(verdict: Verdict, graph: EvolutionGraph) -> dict[str, Any]:
    """Return what a verdict says to a model that is to change a prompt: nothing but the texts of this run."""
    operation = graph.operation(make_origin(verdict.trace_id, verdict.span_id)) if verdict.span_id else None
    read = [graph.content(one.version) for one in graph.inputs(operation.origin)] if operation else []
    written = [graph.content(version) for version in graph.outputs(operation.origin)] if operation else []
    return {
        "verdict": f"{verdict.failure_type} (confidence {verdict.confidence:.2f})",
        "reason": verdict.reason,
        "next step": verdict.advice,
        "path": [f"{step.role}: {step.note}" for step in verdict.evidence if step.note],
        "input": [one_line(text, _CHARACTERS) for text in read if text][:_TEXTS],
        "output": [one_line(text, _CHARACTERS) for text in written if text][:_TEXTS],
    }


@contextmanager
def counted() -> Generator[list[int]]:
    """Yield a list that gets the tokens of each chat completion inside; a stream counts with no tokens.

    Capture has the usage of answers alone: the model calls inside a memory system are no spans of their own.
    """
    found: list[int] = []

    def create(wrapped: Callable[..., Any], instance: object, args: Any, kwargs: Any) -> Any:
        done = wrapped(*args, **kwargs)
        found.append(getattr(getattr(done, "usage", None), "total_tokens", 0))
        return done

    original = Completions.create
    setattr(Completions, "create", wrapt.FunctionWrapper(original, create))  # noqa: B010
    try:
        yield found
    finally:
        Completions.create = original


@contextmanager
def captured() -> Generator[tuple[trace.Tracer, Callable[[], list[OperationSpan]]]]:
    """Capture with contents what the program does inside, apart from what went before; yield a tracer and a function
    that returns the spans so far. Instrumentors are loaded anew: none remembers an earlier conversation."""
    provider, exporter = _recording()
    exporter.clear()
    before = os.environ.get(settings.CAPTURE_CONTENT.env)
    os.environ[settings.CAPTURE_CONTENT.env] = "SPAN_ONLY"
    use_config(None)
    origins().forget()
    recall.forget()
    loaded = _instrumentors()
    try:
        for instrumentor in loaded:
            if instrumentor.is_instrumented_by_opentelemetry:
                instrumentor.uninstrument()
            instrumentor.instrument(tracer_provider=provider)
        yield (
            provider.get_tracer("memtrace_otel.repair"),
            lambda: list(decode_request(encode_sdk_spans(exporter.get_finished_spans()))),
        )
    finally:
        for instrumentor in loaded:
            if instrumentor.is_instrumented_by_opentelemetry:
                instrumentor.uninstrument()
        if before is None:
            del os.environ[settings.CAPTURE_CONTENT.env]
        else:
            os.environ[settings.CAPTURE_CONTENT.env] = before
        use_config(None)


@cache
def _instrumentors() -> list[BaseInstrumentor]:
    """Return our instrumentors of the systems that are installed."""
    points = entry_points(group="opentelemetry_instrumentor")
    every: list[BaseInstrumentor] = [point.load()() for point in points if point.name.startswith("memtrace_")]
    return [one for one in every if get_dependency_conflicts(one.instrumentation_dependencies()) is None]


@cache
def _recording() -> tuple[TracerProvider, InMemorySpanExporter]:
    """Return the provider of the program with an exporter of ours; without one, ours becomes that of the program."""
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter
