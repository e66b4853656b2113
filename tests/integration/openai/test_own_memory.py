"""A self-written memory, instrumented as the README shows: the verdict on a failed answer follows identity."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import openai
import pytest

from memtrace_otel import SqliteStore, attribute, build_graph, feedback, find_failures, operation, scope_id
from memtrace_otel.otlp.feedback import encode_feedback
from memtrace_otel.pipeline.answers import recorded_answers
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


SAID = "I am afraid that nobody has told me which tea Ana likes best."
CHAT = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": SAID}]
LATER: dict[str, tuple[str, bool]] = {
    "profile": (f"Old profile: none\n\nUser: {QUESTION}\nAssistant: {SAID}", True),
    "title": (f"Write a title for this chat.\nUser: {QUESTION}\nAssistant: {SAID}\nTitle, please:", True),
    "next questions": (f"Question: {QUESTION}\nAnswer: {SAID}\nSuggest three follow-up questions.", True),
    "written chat": (f"User: {QUESTION}\nAssistant: {SAID}\nUser: And which coffee does Ana like?", False),
    "draft": (f"Question: {QUESTION}\nDraft answer: {SAID}\nImprove the draft.", False),
    "plan": (f"Question: {QUESTION}\nPlan: {SAID}\nAnswer the question.", False),
    "next question": ("And which coffee does Ana like?", False),
}


@pytest.mark.usefixtures("content_on")
@pytest.mark.parametrize("traced", [True, False], ids=["span", "no span"])
@pytest.mark.parametrize(
    ("later", "is_upkeep"),
    [
        *(pytest.param([{"role": "user", "content": text}], upkeep, id=id) for id, (text, upkeep) in LATER.items()),
        pytest.param([*CHAT, {"role": "user", "content": "Summarize the conversation above."}], True, id="summary"),
        pytest.param([*CHAT, {"role": "user", "content": "And which coffee does Ana like?"}], False, id="second turn"),
    ],
)
def test_feedback_is_about_the_reply_to_the_user(
    recording: Recording,
    server: ModelServer,
    client: openai.OpenAI,
    tmp_path: Path,
    later: list[dict[str, str]],
    is_upkeep: bool,
    traced: bool,
) -> None:
    second = "Ana drinks tea now and then, and coffee."
    server.replies = [SAID, second]
    with recording.tracer.start_as_current_span("turn") if traced else nullcontext():
        for messages in (CHAT[:1], later):
            client.chat.completions.create(model="m1", messages=messages)  # type: ignore[arg-type]
        assert feedback("fail", tracer=recording.tracer)
    reply, told = (SAID, [SAID]) if is_upkeep else (second, [SAID, second])
    judges = recording.named("memtrace.judge")
    exporter = MemtraceSpanExporter(path=tmp_path / "replies.db")
    exporter.export([span for span in recording.spans() if span not in judges])
    with SqliteStore.open(tmp_path / "replies.db") as store:
        assert [answer.answer for answer in recorded_answers(store)] == told
        if traced:
            [trace_id] = {span.trace_id for span in store.spans()}
            store.add_request(encode_feedback(trace_id, label="fail"))
            assert [failure.answer for failure in find_failures(build_graph(store.spans()))] == [reply]
    exporter.export(judges)
    with SqliteStore.open(tmp_path / "replies.db") as store:
        assert [failure.answer for failure in find_failures(build_graph(store.spans()))] == [reply]


@pytest.mark.usefixtures("content_on")
def test_a_prompt_with_other_notes_than_the_search_found_shows_no_hit(
    recording: Recording, server: ModelServer, client: openai.OpenAI, tmp_path: object
) -> None:
    scope = scope_id("notes", user="ana")

    @operation("create_memory", kind="create", system="my_memory", scope=scope, tracer=recording.tracer,
               inputs={"said": "message"}, output="memory", action="ADD")  # fmt: skip
    def remember(said: str) -> str:
        return said

    @operation("search_memory", kind="retrieve", system="my_memory", scope=scope, tracer=recording.tracer,
               inputs={"question": "query"}, output="memory")  # fmt: skip
    def search(question: str) -> list[str]:
        return ["Ana likes green tea"]

    remember("Ana likes green tea")
    with recording.tracer.start_as_current_span("turn"):
        search(QUESTION)
        server.replies = ["Black tea."]
        prompt = f"Notes:\n- Ana likes black tea\n\nQuestion: {QUESTION}"
        client.chat.completions.create(model="m1", messages=[{"role": "user", "content": prompt}])
        assert feedback("fail", expected="Green tea", tracer=recording.tracer)
    path = f"{tmp_path}/notes.db"
    MemtraceSpanExporter(path=path).export(recording.spans())
    with SqliteStore.open(path) as store:
        graph = build_graph(store.spans())
    [failure] = find_failures(graph)
    verdict = attribute(graph, failure)
    assert (verdict.failure_type, verdict.operation) == ("retrieval", "chat m1")
    assert "the prompt does not hold the record" in verdict.reason
