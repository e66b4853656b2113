"""What a span of another scope, or of none, did to a record is to blame as if its owner had done it."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtrace_otel import feedback, operation
from memtrace_otel.attribution import attribute_trace
from memtrace_otel.graph import load_graph
from memtrace_otel.otlp.sdk import encode_sdk_spans
from memtrace_otel.semconv import FailureType
from memtrace_otel.store import SqliteStore
from tests.conftest import Recording

QUESTION, TOLD = "Where does Ana live?", "Ana lives in Lisbon"
UNIQUE = "memory:0a0b0c0d-0000-4000-8000-000000000001"


@pytest.mark.parametrize("who", ["ana", "janitor", ""])
@pytest.mark.parametrize("ref", ["memory:1", UNIQUE])
def test_a_record_that_anybody_deleted_was_deleted(
    recording: Recording, content_on: None, tmp_path: Path, ref: str, who: str
) -> None:
    tracer = recording.tracer
    with operation("create_memory", kind="create", system="notes", scope="ana", tracer=tracer) as create:
        create.read("message:1", role="message", content=TOLD)
        create.wrote(ref, action="ADD", content=TOLD)
    with operation("delete_memory", kind="delete", system="notes", scope=who, tracer=tracer) as delete:
        if ref != UNIQUE:
            delete.read(ref, role="previous", origin=create.origin)
        delete.wrote(ref, action="DELETE")
    with operation("chat", kind="respond", system="model", scope="ana", tracer=tracer) as chat:
        chat.read("query:1", role="query", content=QUESTION)
        with operation("search_memory", kind="retrieve", system="notes", scope="ana", tracer=tracer) as found:
            found.read("query:1", role="query", content=QUESTION)
        chat.wrote("answer:1", role="answer", content="I do not know.")
    assert feedback("fail", expected="Lisbon", answer=chat.origin, tracer=tracer)
    with SqliteStore.open(tmp_path / "a.db") as store:
        store.add_request(encode_sdk_spans(recording.spans()))
        [verdict] = attribute_trace(load_graph(store, chat.origin[:32]), chat.origin[:32])
    assert (verdict.failure_type, f"{verdict.trace_id}-{verdict.span_id}") == (FailureType.DELETION, delete.origin)
