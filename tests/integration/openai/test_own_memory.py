"""A self-written memory, instrumented as the README shows: the verdict on a failed answer follows identity."""

from __future__ import annotations

import openai
import pytest

from memtrace_otel import SqliteStore, attribute, build_graph, feedback, find_failures, operation, scope_id
from memtrace_otel.report.evolution import Stage
from memtrace_otel.report.follow import Follower
from memtrace_otel.report.timeline import lay_out
from memtrace_otel.sources.exporter import MemtraceSpanExporter
from tests.conftest import Recording
from tests.integration.openai.conftest import ModelServer

QUESTION = "Which tea does Ana like?"


@pytest.mark.usefixtures("content_on")
def test_a_retrieved_record_that_the_model_ignored_is_a_response_failure(
    recording: Recording, server: ModelServer, client: openai.OpenAI, tmp_path: object
) -> None:
    notes: list[str] = []
    scope = scope_id("notes", user="ana")

    @operation(
        "create_memory",
        kind="create",
        system="my_memory",
        scope=scope,
        tracer=recording.tracer,
        inputs={"said": "message"},
        output="memory",
        action="ADD",
    )
    def remember(said: str) -> str:
        notes.append(said)
        return said

    @operation(
        "search_memory",
        kind="retrieve",
        system="my_memory",
        scope=scope,
        tracer=recording.tracer,
        inputs={"question": "query"},
        output="memory",
    )
    def search(question: str) -> list[str]:
        return notes

    server.replies = ["I do not know."]
    remember("Ana likes green tea")
    listed = "\n".join(search(QUESTION))
    messages = [{"role": "system", "content": f"Memories:\n{listed}"}, {"role": "user", "content": QUESTION}]
    client.chat.completions.create(model="m1", messages=messages)  # type: ignore[arg-type]
    assert feedback("fail", expected="Green tea", tracer=recording.tracer)

    path = f"{tmp_path}/own.db"
    MemtraceSpanExporter(path=path).export(recording.spans())
    with SqliteStore.open(path) as store:
        graph = build_graph(store.spans())
    [failure] = find_failures(graph)
    verdict = attribute(graph, failure)
    assert verdict.failure_type == "response"
    assert verdict.operation == "chat m1"
    assert verdict.evidence[0].role == "message"
    across = {node.moment.stage: node.box.x for node in lay_out(Follower(graph).follow(verdict)).nodes}
    assert across[Stage.RECORD] < across[Stage.SEARCH] < across[Stage.ANSWER]  # each in a trace of its own


@pytest.mark.usefixtures("content_on")
@pytest.mark.parametrize(
    ("later", "judged"),
    [
        ("Old profile: none\n\nUser: {q}\nAssistant: {a}", "first"),
        ("Write a title for this chat.\nUser: {q}\nAssistant: {a}\nTitle, please:", "first"),
        ("User: {q}\nAssistant: {a}\nUser: And which coffee does Ana like?", "second"),
        ("Question: {q}\nDraft answer: {a}\nImprove the draft.", "second"),
        ("And which coffee does Ana like?", "second"),
    ],
    ids=["profile", "title", "written chat", "draft", "next question"],
)
def test_feedback_is_about_the_reply_to_the_user(
    recording: Recording, server: ModelServer, client: openai.OpenAI, tmp_path: object, later: str, judged: str
) -> None:
    reply = "I am afraid that nobody has told me which tea Ana likes best."
    server.replies = [reply, "Ana drinks tea now and then, and coffee."]
    for text in (QUESTION, later.format(q=QUESTION, a=reply)):
        client.chat.completions.create(model="m1", messages=[{"role": "user", "content": text}])
    assert feedback("fail", tracer=recording.tracer)
    path = f"{tmp_path}/replies.db"
    MemtraceSpanExporter(path=path).export(recording.spans())
    with SqliteStore.open(path) as store:
        [failure] = find_failures(build_graph(store.spans()))
    assert (failure.answer == reply) is (judged == "first")
