"""Failures that EverOS does not report: unusable replies, retries, abandoned background work."""

from __future__ import annotations

import pytest

from memtrace_otel import semconv
from tests.conftest import Recording
from tests.integration.everos.conftest import outputs, recorded, tokens
from tests.integration.everos.host import Memory
from tests.integration.everos.models import EverosModels

pytestmark = pytest.mark.usefixtures("instrumented")


async def test_an_unusable_boundary_reply_is_asked_for_again(
    ann: Memory, models: EverosModels, recording: Recording
) -> None:
    models.by_kind["boundary"] = ["no JSON at all"]
    await ann.add("I live in Paris.")
    boundary = recorded(recording).one("evermemos.boundary_detection")
    assert len(outputs(boundary, "completion")) == 2
    assert "unparsed" in boundary.incomplete
    assert [(event.name, event.attributes) for event in boundary.events] == [
        (semconv.RETRY_EVENT, {semconv.RETRY_ATTEMPT: 2})
    ]
    assert boundary.status != "error"
    assert tokens(boundary) == (2, 2)  # two calls, each with one token of the prompt and one token of the reply


async def test_a_buffer_without_a_boundary_is_quarantined(
    ann: Memory, models: EverosModels, recording: Recording
) -> None:
    for number in range(3):
        models.by_kind["boundary"] = ["no JSON at all"] * 3
        with pytest.raises(RuntimeError):
            await ann.add(f"Unclear {number}.")
    seen = recorded(recording)
    assert [span.status for span in seen.all("add")] == ["error"] * 3
    assert [span.status for span in seen.all("evermemos.boundary_detection")] == ["error"] * 3
    quarantined = seen.all("quarantine")
    assert [out.ref for span in quarantined for out in span.outputs] == [f"state:buffer-{ann.session}"] * len(
        quarantined
    )


async def test_a_strategy_that_gives_up_is_recorded(ann: Memory, models: EverosModels, recording: Recording) -> None:
    models.by_kind["facts"] = ["no JSON"] * 9
    await ann.tell("I live in Paris.")
    seen = recorded(recording)
    attempts = [span for span in seen.spans if "prompt:everos.atomic_fact_extraction" in str(span.inputs)]
    assert len(attempts) == 3
    assert {span.status for span in attempts} == {"error"}
    failed = [span for span in seen.all("extract_atomic_facts") if span.kind == "other"]
    assert [event.name for span in failed for event in span.events] == [
        semconv.RETRY_EVENT,
        semconv.RETRY_EVENT,
        semconv.DEAD_LETTER_EVENT,
    ]
    assert [event.attributes[semconv.RETRY_ATTEMPT] for span in failed for event in span.events] == [1, 2, 3]
    assert {span.status for span in failed} == {"error"}
    assert {span.attributes[semconv.ERROR_TYPE] for span in failed} == {"ValueError"}
    (flush,) = seen.all("flush")
    assert {span.trace_id for span in failed} == {flush.trace_id}
    runs = await ann.everos.runs("extract_atomic_facts")
    assert "dead_letter" in str(runs[0].status).lower()


async def test_a_retried_strategy_is_recorded(ann: Memory, models: EverosModels, recording: Recording) -> None:
    models.by_kind["facts"] = ["no JSON"]
    await ann.tell("I live in Paris.")
    seen = recorded(recording)
    (failed,) = (span for span in seen.all("extract_atomic_facts") if span.kind == "other")
    assert [event.name for event in failed.events] == [semconv.RETRY_EVENT]
    assert [out.ref.startswith("memory:af_") for span in seen.named("create_memory") for out in span.outputs].count(
        True
    ) == 1
