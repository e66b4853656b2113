"""Requests that EverOS answers at once and processes later (1.5)."""

from __future__ import annotations

import pytest

from tests.conftest import Recording
from tests.integration.everos.conftest import recorded
from tests.integration.everos.host import Memory, until

pytestmark = pytest.mark.usefixtures("instrumented")


async def put(ann: Memory, recording: Recording, session: str) -> str:
    """Queue two turns of a session; returns the trace of the request."""
    with recording.tracer.start_as_current_span("turn") as turn:
        messages = [ann.turn("I live in Paris."), ann.turn("TOPIC I like tea.")]
        await ann.everos.post("add", session_id=session, messages=messages, async_mode=True)
    return f"{turn.get_span_context().trace_id:032x}"


async def test_a_queued_request_stays_in_its_trace(ann: Memory, recording: Recording) -> None:
    trace_id = await put(ann, recording, ann.session)
    await until(lambda: recorded(recording).named("upsert_memory"))
    await ann.everos.settled()
    seen = recorded(recording)
    assert {span.trace_id for span in seen.spans} == {trace_id}
    assert {span.kind for span in seen.spans} >= {"ingest", "segment", "create", "extract", "index"}


async def test_queued_requests_stay_separate(ann: Memory, recording: Recording) -> None:
    ann.everos.models.stall.clear()  # the first is not done before the others wait
    traces = [await put(ann, recording, session) for session in ("a", "a", "b")]
    ann.everos.models.stall.set()
    await until(lambda: len(recorded(recording).named("upsert_memory")) == 3)
    await ann.everos.settled()
    added = recorded(recording).all("add")
    assert sorted(span.trace_id for span in added) == sorted(traces)
    for span in added:
        kinds = {step.kind for step in recorded(recording).spans if step.trace_id == span.trace_id}
        assert kinds >= {"segment", "create", "extract"}
