"""Runs a system through the reference conversation and reads the graph back from the exported bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from memtrace_otel.capture import read_config, use_config
from memtrace_otel.graph import EvolutionGraph, build_graph
from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import decode_request
from tests.conformance.conversation import MESSAGES, QUESTIONS, Message
from tests.conformance.systems import answering
from tests.conformance.systems.tracing import Variable, root
from tests.conftest import Recording


class System(Protocol):
    """A memory system of the list."""

    def add(self, message: Message) -> None: ...
    def flush(self) -> None: ...
    def search(self, query: Variable) -> list[Variable]: ...


@dataclass(frozen=True)
class Run:
    """The spans and the graph of a whole run, and the origins of the judgements of each question."""

    spans: list[OperationSpan]
    graph: EvolutionGraph
    answers: list[str]
    scores: list[str]


@pytest.fixture
def told(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    """`told(System, messages)` runs construction, search and evaluation with sessions as traces (row C5)."""
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
    use_config(read_config())
    monkeypatch.setattr("memtrace_otel.capture.tracing._default", recording.tracer)

    def run(system: Callable[[], Any], messages: Sequence[Message] = MESSAGES) -> Run:
        tracer, answers, scores = recording.tracer, list[str](), list[str]()
        with tracer.start_as_current_span("setup", attributes={"session.id": "setup"}):
            memory: System = system()
        for session in dict.fromkeys(message.session for message in messages):
            with tracer.start_as_current_span("memory_construction", attributes={"session.id": session}):
                for message in (message for message in messages if message.session == session):
                    memory.add(message)
        with tracer.start_as_current_span("memory_construction", attributes={"session.id": "finalization"}):
            memory.flush()
        with tracer.start_as_current_span("memory_search", attributes={"session.id": "search"}):
            found = {q.id: memory.search(root("query", q.text, q.id)) for q in QUESTIONS}
        with tracer.start_as_current_span("memory_evaluation", attributes={"session.id": "evaluation"}):
            for question in QUESTIONS:
                query = root("query", question.text, question.id)
                prediction = answering.answer(question, query, found[question.id])
                answers.append(prediction.origin)
                scores.append(answering.judge(question, query, prediction).origin)
        spans = decode_request(encode_spans(recording.spans()).SerializeToString())
        return Run(spans, build_graph(spans), answers, scores)

    return run
