"""Requests that EverOS answers at once and works on later (1.5)."""

from __future__ import annotations

import pytest

from tests.conftest import Recording
from tests.integration.everos.conftest import recorded
from tests.integration.everos.host import Memory, until

pytestmark = pytest.mark.usefixtures("instrumented")


async def test_a_queued_request_stays_in_its_trace(ann: Memory, recording: Recording) -> None:
    with recording.tracer.start_as_current_span("turn") as turn:
        messages = [ann.turn("I live in Paris."), ann.turn("TOPIC I like tea.")]
        await ann.everos.post("add", session_id=ann.session, messages=messages, async_mode=True)
    await until(lambda: recorded(recording).named("upsert_memory"))
    await ann.everos.settled()
    seen = recorded(recording)
    trace_id = f"{turn.get_span_context().trace_id:032x}"
    assert {span.trace_id for span in seen.spans} == {trace_id}
    assert {span.kind for span in seen.spans} >= {"ingest", "segment", "create", "extract", "index"}
