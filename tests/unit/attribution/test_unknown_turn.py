"""The verdict on an answer that nothing joins to its search, or to its conversation, says so."""

from __future__ import annotations

from contextvars import Context

import pytest

from memtrace_otel import feedback, operation
from memtrace_otel.attribution import attribute_trace
from memtrace_otel.attribution.lineage import lineage_of
from memtrace_otel.graph import build_graph
from memtrace_otel.model import Verdict
from memtrace_otel.otlp import decode_request
from memtrace_otel.otlp.sdk import encode_sdk_spans
from memtrace_otel.semconv import Incomplete
from tests.conftest import Recording

QUESTION, TOLD = "Where does Ana live?", "Ana lives in Lisbon"


def verdict(recording: Recording, *, searched: bool) -> Verdict:
    tracer = recording.tracer
    with operation("create_memory", kind="create", system="notes", scope="s", tracer=tracer) as create:
        create.read("message:1", role="message", content=TOLD)
        create.wrote("memory:1", action="ADD", content=TOLD)

    def search() -> None:
        with operation("search_memory", kind="retrieve", system="notes", scope="s", tracer=tracer) as found:
            found.read("query:1", role="query", content=QUESTION)
            found.read("memory:1", role="hit", content=TOLD)

    def answer() -> None:
        with operation("chat", kind="respond", system="model", tracer=tracer) as chat:
            chat.read("query:1", role="query", content=QUESTION)
            chat.wrote("answer:1", role="answer", content="I do not know.")
        assert feedback("fail", expected="Lisbon", answer=chat.origin, tracer=tracer)

    if searched:
        Context().run(search)
    Context().run(answer)
    [found] = attribute_trace(build_graph(decode_request(encode_sdk_spans(recording.spans()))))
    return found


def test_a_search_in_another_context_makes_the_verdict_incomplete(recording: Recording, content_on: None) -> None:
    found = verdict(recording, searched=True)
    assert "no span around the turn joins this answer" in found.reason
    assert not found.complete


def test_an_answer_without_a_search_is_a_retrieval_failure(recording: Recording, content_on: None) -> None:
    assert "no span around the turn" not in verdict(recording, searched=False).reason


@pytest.mark.parametrize("certain", [True, False])
def test_an_answer_in_one_of_several_equal_conversations_has_a_gap(
    recording: Recording, content_on: None, certain: bool
) -> None:
    with operation("chat", kind="respond", system="model", tracer=recording.tracer) as chat:
        chat.read("query:1", role="query", content=QUESTION)
        if not certain:
            chat.mark(Incomplete.UNKNOWN_ORIGIN)  # as the OpenAI instrumentor does
        chat.wrote("answer:1", role="answer", content="I do not know.")
    [answer] = (graph := build_graph(decode_request(encode_sdk_spans(recording.spans())))).operations()
    assert lineage_of(graph).gaps(answer) == (set() if certain else {Incomplete.UNKNOWN_ORIGIN})
