"""Run a candidate on a case under capture: the answer, whether the answer is right, the verdict, and what it cost."""

from __future__ import annotations

import inspect
import json
import os
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, field
from functools import cache
from hashlib import sha256
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import httpx
import openai
import wrapt
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
_REWRITING = "rewriting"
"""Key of what a call of the rewriting model took, in the file of outcomes."""
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


Prices = Mapping[str, tuple[float, float]]
"""Prices of a million tokens read and written, by the name of the model; '' for every other model."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What runs took: calls of models, their tokens, the price of these tokens, and seconds."""

    calls: int = 0
    tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run. `component` is the text that the verdict blames, '' for none; `feedback` explains a wrong answer."""

    answer: str
    right: bool
    failure_type: str = ""
    component: str = ""
    feedback: Mapping[str, Any] = field(default_factory=dict[str, Any])
    spent: Spent = Spent()

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
    """Runs candidates. Outcomes, and the spending of the rewriting model, are kept in a file: a run goes on there."""

    def __init__(self, subject: Subject, judge: Judge, path: Path, prices: Prices | None = None) -> None:
        self._subject, self._judge, self._path, self._prices = subject, judge, path, prices or {}
        self.spent = self.rewriting = Spent()
        self.told: Callable[[], None] = lambda: None
        """Is called after each run that is not known."""
        self._known: dict[str, Outcome] = {}
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:  # a run that was killed leaves half a line
            path.write_bytes(whole)
        for line in whole.splitlines():
            key, said = json.loads(line)
            self._remember(key, Outcome(**said | {"spent": Spent(**said["spent"])}))

    @property
    def runs(self) -> int:
        """How many runs of the subject there are."""
        return len(self._known)

    def _keep(self, key: str, outcome: Outcome) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([key, asdict(outcome)], ensure_ascii=False) + "\n")
        self._remember(key, outcome)
        self.told()

    def _remember(self, key: str, outcome: Outcome) -> None:
        self.spent += outcome.spent
        if key == _REWRITING:
            self.rewriting += outcome.spent
        else:
            self._known[key] = outcome

    def rewrite(self, reflect: Callable[[str], str], prompt: str) -> str:
        """Return the reply of the rewriting model; its calls are counted with those of the runs."""
        with counted(self._prices) as spent:
            try:
                return reflect(prompt)
            finally:
                self._keep(_REWRITING, Outcome("", False, spent=spent()))

    def known(self, candidate: Texts, cases: Iterable[Case]) -> list[Outcome]:
        """Return the outcomes of a candidate on those of the cases that it has run."""
        return [self._known[key] for case in cases if (key := _key(candidate, case)) in self._known]

    def run(self, candidate: Texts, case: Case) -> Outcome:
        """Return the outcome of a candidate on a case; the subject runs once for both.

        Raises RepairError when an endpoint does not answer; then nothing is remembered.
        """
        key = _key(candidate, case)
        if key not in self._known:
            self._keep(key, self._run(candidate, case))
        return self._known[key]

    def _run(self, candidate: Texts, case: Case) -> Outcome:
        error: Exception | None = None
        answer, right = "", False
        with captured() as (tracer, spans), counted(self._prices) as spent:
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
        cost = spent()
        if error is not None:
            return Outcome("", False, _ERROR, feedback={"error": f"{type(error).__name__}: {error}"[:500]}, spent=cost)
        if right:
            return Outcome(answer, True, spent=cost)
        graph = build_graph(found)
        verdict = next(iter(attribute_trace(graph)), None)
        if verdict is None:
            return Outcome(answer, False, str(FailureType.UNKNOWN), spent=cost)
        component = component_text(component_of(verdict, graph))
        return Outcome(answer, False, str(verdict.failure_type), component, _explained(verdict, graph), cost)


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


def _key(candidate: Texts, case: Case) -> str:
    return sha256(json.dumps([dict(sorted(candidate.items())), case.id, case.question]).encode()).hexdigest()


@contextmanager
def counted(prices: Prices) -> Generator[Callable[[], Spent]]:
    """Yield a function that returns what the calls of OpenAI clients inside took, embeddings included.

    A call that fails and a stream count with no tokens. Capture has the usage of answers alone: the model calls inside
    a memory system are no spans of their own. With prices, a call of a model without a price is not made; this call
    and the function raise RepairError.
    """
    found: list[Spent] = []
    refused: list[RepairError] = []
    started = time.monotonic()

    def request(wrapped: Callable[..., Any], instance: object, args: Any, kwargs: Any) -> Any:
        body: Any = (kwargs.get("options") or args[1]).json_data
        model: str | None = body.get("model") if hasattr(body, "get") else None
        if model is None:  # no call of a model, such as the list of models
            return wrapped(*args, **kwargs)
        price = prices.get(model) or prices.get("")
        if prices and price is None:
            refused.append(RepairError(f"the model {model} has no price in [prices] of the configuration"))
            raise refused[0]
        found.append(Spent(1))

        def told(done: Any) -> Any:
            parse = getattr(done, "parse", None)  # LangChain: a raw response
            usage = getattr(done if parse is None or inspect.iscoroutinefunction(parse) else parse(), "usage", None)
            read = getattr(usage, "prompt_tokens", 0) or getattr(usage, "input_tokens", 0) or 0
            total = getattr(usage, "total_tokens", 0) or 0
            by = price or (0.0, 0.0)
            found.append(Spent(0, total, (read * by[0] + max(0, total - read) * by[1]) / 1e6))
            return done

        async def later(done: Any) -> Any:
            return told(await done)

        done = wrapped(*args, **kwargs)
        return later(done) if inspect.isawaitable(done) else told(done)

    def spent() -> Spent:
        for error in refused:  # perhaps the subject ignored it
            raise error
        return sum(found, Spent(seconds=time.monotonic() - started))

    clients: tuple[Any, ...] = (openai.OpenAI, openai.AsyncOpenAI)  # each resource of a client sends by `request`
    for client in clients:
        client.request = wrapt.FunctionWrapper(client.request, request)
    try:
        yield spent
    finally:
        for client in clients:
            del client.request


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
