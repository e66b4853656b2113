"""A real EverOS (the installed release) on scripted models; the spans are decoded from the exported bytes."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Iterator

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from memtrace_otel import semconv
from memtrace_otel.capture import read_config, use_config
from memtrace_otel.graph import EvolutionGraph, build_graph
from memtrace_otel.instrumentation.everos import EverosInstrumentor
from memtrace_otel.model import OperationSpan, Variable
from memtrace_otel.otlp import decode_request
from tests.conftest import Recording
from tests.integration.everos.host import Everos, Memory
from tests.integration.everos.models import EverosModels

HAS_ROUNDS = importlib.util.find_spec("everos.memory.search.llm_multiround") is not None
HAS_QUEUE = importlib.util.find_spec("everos.service.memorize_queue") is not None
collect_ignore = [
    *([] if HAS_ROUNDS else ["test_rounds.py"]),
    *([] if HAS_QUEUE else ["test_queue.py"]),
]


@pytest.fixture(scope="module")
def models() -> Iterator[EverosModels]:
    with EverosModels() as models:
        yield models


@pytest.fixture(scope="module")
def everos(models: EverosModels, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Everos]:
    """One EverOS for the tests of a module; each test has a user of its own."""
    with Everos(tmp_path_factory.mktemp("everos") / "store", models) as everos:
        yield everos


@pytest.fixture
def ann(everos: Everos, models: EverosModels) -> Iterator[Memory]:
    """A new user of EverOS. After the test no work of the user runs."""
    yield everos.memory()
    models.by_kind.clear()
    models.enough = True
    asyncio.run(everos.settled())


@pytest.fixture
def content_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contents are captured, and the long prompts of EverOS stay on one span."""
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
    monkeypatch.setenv("MEMTRACE_SPAN_BYTES", "500000")
    use_config(read_config())


@pytest.fixture
def instrumented(recording: Recording) -> Iterator[Recording]:
    EverosInstrumentor().instrument(tracer_provider=recording.provider, skip_dep_check=True)
    yield recording
    EverosInstrumentor().uninstrument()


@pytest.fixture
def no_token_counts(everos: Everos, monkeypatch: pytest.MonkeyPatch) -> None:
    """EverOS writes them on whatever span is current: with a broken SDK that fails, whoever made the span."""
    for module in [module for name, module in sys.modules.items() if name.startswith("everos.")]:
        if hasattr(module, "set_generation_usage"):
            monkeypatch.setattr(module, "set_generation_usage", lambda **_: None)


class Recorded:
    """The recorded spans, decoded from OTLP."""

    def __init__(self, recording: Recording) -> None:
        spans = decode_request(encode_spans(recording.spans()).SerializeToString())
        self.graph: EvolutionGraph = build_graph(spans)
        self.spans = [span for span in spans if span.kind]
        self.others = [span for span in spans if not span.kind]

    def all(self, purpose: str) -> list[OperationSpan]:
        """The operations of a purpose, in order of start."""
        return [span for span in self.spans if span.attributes.get(semconv.OP_PURPOSE) == purpose]

    def one(self, purpose: str) -> OperationSpan:
        (span,) = self.all(purpose)
        return span

    def named(self, name: str) -> list[OperationSpan]:
        return [span for span in self.spans if span.name == name]

    def by_origin(self, origin: str) -> OperationSpan:
        (span,) = (span for span in self.spans if span.origin == origin)
        return span


def recorded(recording: Recording) -> Recorded:
    return Recorded(recording)


def inputs(span: OperationSpan, role: str = "", kind: str = "") -> list[Variable]:
    return [v for v in span.inputs if role in ("", v.role) and v.ref.startswith(kind)]


def outputs(span: OperationSpan, kind: str = "") -> list[Variable]:
    return [v for v in span.outputs if v.ref.startswith(kind)]


def fed(span: OperationSpan, output: Variable) -> list[Variable]:
    """The inputs that fed an output."""
    place = span.outputs.index(output)
    return [span.inputs[i] for i, o in span.flow if o == place] if span.flow else list(span.inputs)


def tokens(span: OperationSpan) -> tuple[object, object]:
    """The tokens of the prompts and replies of an operation."""
    names = (semconv.GEN_AI_USAGE_INPUT_TOKENS, semconv.GEN_AI_USAGE_OUTPUT_TOKENS)
    return span.attributes.get(names[0]), span.attributes.get(names[1])
