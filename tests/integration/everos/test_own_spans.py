"""EverOS' own spans in the pipeline of the application; EverOS' own export is unchanged."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from memtrace_otel.instrumentation.everos import EverosInstrumentor
from tests.conftest import Recording
from tests.integration.everos.conftest import Recorded, outputs, recorded, tokens
from tests.integration.everos.host import Everos
from tests.integration.everos.models import EverosModels

ON = "EVEROS_OBSERVABILITY__ENABLED"
EXPORTER = "EVEROS_OBSERVABILITY__EXPORTER"


async def run(folder: Path, models: EverosModels, **settings: str) -> None:
    with Everos(folder / "store", models, **settings) as everos:
        ann = everos.memory()
        await ann.tell("I live in Paris.")
        await ann.search("Where does Ann live?")


def names_above(seen: Recorded, purpose: str) -> list[str]:
    """The names of the spans around the operation, nearest first."""
    spans = {span.span_id: span for span in (*seen.spans, *seen.others)}
    span = next(span for span in seen.spans if span.attributes.get("memtrace.op.purpose") == purpose)
    names = []
    while span.parent_id in spans:
        span = spans[span.parent_id]
        names.append(span.name)
    return names


@pytest.mark.usefixtures("instrumented")
async def test_spans_of_everos_and_ours_are_one_tree(
    tmp_path: Path, models: EverosModels, recording: Recording
) -> None:
    await run(tmp_path, models, **{ON: "true", EXPORTER: "none"})
    seen = recorded(recording)
    assert names_above(seen, "evermemos.boundary_detection")[:3] == [
        "everos.memcell.boundary",
        "everos.memory.flush",
        "upsert_memory",
    ] or names_above(seen, "evermemos.boundary_detection")[:3] == [
        "everos.memcell.boundary",
        "everos.memory.add",
        "upsert_memory",
    ]
    assert "everos.ome.extract_atomic_facts" in {span.name for span in seen.others}
    assert names_above(seen, "memory_system.bm25_retrieval")[:3] == [
        "everos.search.recall",
        "everos.memory.search",
        "search_memory",
    ]
    assert {span.name for span in seen.others}.isdisjoint(span.name for span in seen.spans)
    asking = [(span, len(outputs(span, "completion"))) for span in seen.spans if outputs(span, "completion")]
    assert asking
    assert all(
        tokens(span) == (replies, replies) for span, replies in asking
    )  # counted once, though EverOS adds its own


@pytest.mark.usefixtures("instrumented")
async def test_without_tracing_of_everos_there_are_only_our_spans(
    tmp_path: Path, models: EverosModels, recording: Recording
) -> None:
    await run(tmp_path, models)
    seen = recorded(recording)
    assert seen.spans
    assert [span.name for span in seen.others if span.name.startswith("everos.")] == []


@pytest.mark.usefixtures("instrumented")
async def test_the_export_of_everos_continues(
    tmp_path: Path, models: EverosModels, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    import everos.core.observability.tracing.provider as provider

    exporter = InMemorySpanExporter()
    monkeypatch.setattr(provider, "BatchSpanProcessor", lambda _: SimpleSpanProcessor(exporter))
    await run(tmp_path, models, **{ON: "true", EXPORTER: "otlp_http", "EVEROS_OBSERVABILITY__SERVICE_NAME": "memory"})
    exported: Any = exporter.get_finished_spans()
    theirs = {span.context.span_id for span in exported}
    assert {span.name.split(".")[0] for span in exported} == {"everos"}
    assert {span.resource.attributes["service.name"] for span in exported} == {"memory"}
    joined = {span.context.span_id for span in recording.spans() if span.name.startswith("everos.")}
    assert joined == theirs
    assert names_above(recorded(recording), "memory_system.bm25_retrieval")[0] == "everos.search.recall"


async def test_uninstrument_restores_the_tracing_of_everos(
    tmp_path: Path, models: EverosModels, recording: Recording
) -> None:
    attributes = sys.modules["everos.core.observability.tracing.attributes"]
    before = attributes.get_tracer
    EverosInstrumentor().instrument(tracer_provider=recording.provider, skip_dep_check=True)
    assert attributes.get_tracer is not before
    EverosInstrumentor().uninstrument()
    assert attributes.get_tracer is before
    await run(tmp_path, models, **{ON: "true", EXPORTER: "none"})
    assert recording.spans() == []
