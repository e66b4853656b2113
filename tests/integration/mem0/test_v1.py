"""The pipeline of Mem0 1.x: facts, neighbours of each fact, a decision per record."""

from __future__ import annotations

import pytest
from opentelemetry.trace import StatusCode

from memtrace_otel import semconv
from memtrace_otel.model import content_digest
from tests.conftest import Recording
from tests.integration.mem0.conftest import Program, ids, seen, shown, tree
from tests.integration.model_stub import ModelStub

pytestmark = pytest.mark.usefixtures("instrumented")

KNOWN = ("I live in Paris.", "I play chess.", "I like tea.", "My dog is Rex.")


@pytest.mark.usefixtures("content_on")
async def test_a_decision_reads_its_candidates_and_each_write_names_its_decision(
    program: Program, recording: Recording, model: ModelStub
) -> None:
    known: dict[str, str] = {}
    for text in KNOWN:
        known |= ids(await program.call("add", text, user_id="ann"))
    assert tuple(known) == KNOWN
    writers = {span.outputs()[0]["ref"]: span.origin for span in seen(recording, "create_memory")}
    recording.clear()

    def decide(prompt: str) -> object:
        numbers = shown(prompt)
        return {
            "memory": [
                {
                    "id": numbers["I live in Paris."],
                    "text": "Ann lives in Lyon",
                    "event": "UPDATE",
                    "old_memory": "made up",
                },
                {"id": numbers["I play chess."], "text": "I play chess.", "event": "DELETE"},
                {"id": numbers["I like tea."], "text": "I like tea.", "event": "NONE"},
                {"id": "77", "text": "I have a cat.", "event": "ADD"},
                {"id": "99", "text": "never shown", "event": "UPDATE"},
            ]
        }

    model.script += [{"facts": ["I live in Lyon now.", "I have a cat."]}, decide]
    message = "I live in Lyon now, no more chess. I have a cat."
    result = await program.call("add", message, user_id="ann")
    assert [item["event"] for item in result["results"]] == ["UPDATE", "DELETE", "ADD"]
    upsert, extract = seen(recording)[:2]
    (decision,) = seen(recording, "memtrace.decide")
    assert (upsert.name, extract.name, extract.parent) == ("upsert_memory", "memtrace.extract", upsert.origin)
    steps = ["memtrace.extract", "  memtrace.other", "memtrace.other", "memtrace.decide", "  memtrace.other"]
    steps += ["update_memory", "delete_memory", "create_memory"]
    steps += ["memtrace.retrieve"] * 2
    made = [line for line in tree(recording) if "memtrace.index" not in line]
    assert sorted(made) == sorted(["upsert_memory", *(f"  {step}" for step in steps)])
    assert len(seen(recording, "memtrace.index")) >= 3  # facts, then texts of the decision

    # each message -> completion -> facts
    assert [item["ref"] for item in extract.inputs("message")] == [
        f"message:{content_digest(message)}.{upsert.origin[33:]}"
    ]
    facts = extract.outputs()
    (asked,) = [span for span in seen(recording, "memtrace.other") if span.parent == extract.origin]
    (completion,) = asked.outputs()
    assert completion["content"] == '{"facts": ["I live in Lyon now.", "I have a cat."]}'
    assert [fact["content"] for fact in facts] == ["I live in Lyon now.", "I have a cat."]

    # the neighbour search of each fact
    searches = seen(recording, "memtrace.retrieve")
    asked = {search.inputs("query")[0]["ref"]: search for search in searches}
    assert set(asked) == {fact["ref"] for fact in facts}
    assert all(search.inputs("query")[0]["origin"] == extract.origin for search in searches)
    assert all(item["origin"] == writers[item["ref"]] for search in searches for item in search.inputs("hit"))

    # facts, the exact memory versions and the prompt -> completion -> actions
    assert decision.inputs("prompt")[0]["ref"] == "prompt:mem0.update_decision"
    assert [(i["ref"], i["origin"]) for i in decision.inputs("other")][:-1] == [
        (f["ref"], extract.origin) for f in facts
    ]
    assert {i["ref"]: i["origin"] for i in decision.inputs("candidate")} == writers
    assert all(search.inputs("hit")[0]["score"] for search in searches)
    assert not any(span.attributes.get(semconv.INPUTS_SCORES) for span in seen(recording, "memtrace.decide"))
    moved, chess, tea, cat, unknown = decision.outputs()
    assert [item["action"] for item in (moved, chess, tea, cat, unknown)] == [
        "UPDATE",
        "DELETE",
        "NONE",
        "ADD",
        "UPDATE",
    ]
    assert tea["ref"] == f"memory:{known['I like tea.']}"
    left = [span.origin for span in seen(recording) for item in span.outputs() if item["action"] == "NONE"]
    assert left == [decision.origin]
    assert "unknown_record" in decision.attributes[semconv.INCOMPLETE]
    sources = [decision.inputs()[i]["ref"] for i in moved["sources"]]
    assert f"memory:{known['I live in Paris.']}" in sources
    assert f"memory:{known['I play chess.']}" not in sources

    # the decision and the previous version -> the new version or the tombstone
    (update,), (delete,), (create,) = (seen(recording, f"{verb}_memory") for verb in ("update", "delete", "create"))
    for write, fact in ((update, moved), (delete, chess), (create, cat)):
        assert (write.inputs()[0]["ref"], write.inputs()[0]["origin"]) == (fact["ref"], decision.origin)
        assert write.parent == upsert.origin
    for write, text, action in ((update, "I live in Paris.", "UPDATE"), (delete, "I play chess.", "DELETE")):
        ref = f"memory:{known[text]}"
        (previous,) = write.inputs("previous")
        assert (previous["ref"], previous["origin"], previous["digest"]) == (ref, writers[ref], content_digest(text))
        assert [(item["ref"], item["action"]) for item in write.outputs()] == [(ref, action)]
    assert update.outputs()[0]["content"] == "Ann lives in Lyon"
    assert create.outputs()[0]["action"] == "ADD"

    # the hit is the version that the update made
    await program.search("Where does Ann live in Lyon?")
    hits = {item["ref"]: item["origin"] for item in seen(recording, "search_memory")[0].inputs("hit")}
    assert hits[f"memory:{known['I live in Paris.']}"] == update.origin
    assert hits[f"memory:{known['I like tea.']}"] == writers[f"memory:{known['I like tea.']}"]  # NONE wrote nothing


async def test_a_failed_decision_that_mem0_ignores_is_recorded(
    program: Program, recording: Recording, model: ModelStub
) -> None:
    model.script += [{"facts": ["I live in Paris."]}, 400]
    assert (await program.call("add", "I live in Paris.", user_id="ann"))["results"] == []
    (decision,) = seen(recording, "memtrace.decide")
    assert decision.span.status.status_code is StatusCode.ERROR
    assert decision.attributes[semconv.ERROR_TYPE] == "BadRequestError"
    assert seen(recording, "upsert_memory")[0].span.status.status_code is StatusCode.UNSET
