"""The scripted model, asked by the real OpenAI client over loopback."""

import base64
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from memtrace_otel.demo.embedding import embed
from memtrace_otel.demo.model import ScriptedModel
from memtrace_otel.demo.model_server import serving
from memtrace_otel.demo.script import load_faults, load_script


class Model:
    def __init__(self, client: openai.OpenAI, journal: list[Any]) -> None:
        self.client, self.journal = client, journal

    def __call__(self, prompt: str, system: str = "") -> str:
        messages: Any = [{"role": "system", "content": system}, {"role": "user", "content": prompt}]
        return self.client.chat.completions.create(model="m", messages=messages).choices[0].message.content or ""


@pytest.fixture(params=["faultless", "faulty"])
def model(request: pytest.FixtureRequest) -> Iterator[Model]:
    journal: list[Any] = []
    script = load_script(load_faults() if request.param == "faulty" else ())
    with serving(ScriptedModel(script, journal.append)) as server:
        yield Model(openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=0), journal)


faultless = pytest.mark.parametrize("model", ["faultless"], indirect=True)
faulty = pytest.mark.parametrize("model", ["faulty"], indirect=True)

ALLERGY = (
    "Friends are coming to dinner on Sunday, I am making a mushroom risotto. "
    "And please remember that I am allergic to cashews."
)
WHEELBARROW = "I gave away the old wheelbarrow from the allotment shed. You can forget about mending it."
EDITOR = 'Reply in JSON: {"operations": []}'


def extraction(said: str) -> str:
    return (
        f"## Existing Memories\n[]\n\n## New Messages\nuser: [Friday 6 March 2026] {said}\nassistant: Noted.\n\n"
        "## Observation Date\n2026-03-06\n\n# Output:"
    )


@pytest.mark.parametrize("format", ["float", "base64"])
@faultless
def test_embeddings_in_both_encodings(model: Model, format: Any) -> None:
    reply = model.client.embeddings.create(
        model="m", input=["the ferry", "a pier"], dimensions=64, encoding_format=format
    )
    for text, item in zip(["the ferry", "a pier"], reply.data, strict=True):
        vector: Any = item.embedding
        if format == "base64":
            vector = struct.unpack("<64f", base64.b64decode(vector))
        assert vector == pytest.approx(embed(text, 64))


@faultless
def test_extraction_gives_every_fact_of_the_turn(model: Model) -> None:
    memory = json.loads(model(extraction(ALLERGY)))["memory"]
    assert [(fact["id"], fact["attributed_to"]) for fact in memory] == [("0", "user"), ("1", "user")]
    assert memory[1]["text"] == "Mira is allergic to cashews."
    assert model.journal == []


@faulty
def test_a_planted_extraction_is_given_and_journalled(model: Model) -> None:
    memory = json.loads(model(extraction(ALLERGY)))["memory"]
    assert [fact["text"] for fact in memory] == ["Mira makes a mushroom risotto for friends on Sunday 8 March."]
    assert model.journal == [{"turn": "3.2", "operation": "extract"}]


def maintenance(said: str, **memories: str) -> str:
    listed = "\n".join(f"[{id}] {text}" for id, text in memories.items())
    return f"Memories:\n{listed}\n\nLatest turn:\nUser: [Monday] {said}\nAssistant: Done."


@faultless
def test_edits_name_the_memories_listed_in_the_prompt(model: Model) -> None:
    prompt = maintenance(WHEELBARROW, a="The spare key lies under the pot.", b="Jonas wants to mend the wheelbarrow.")
    assert json.loads(model(prompt, EDITOR)) == {"operations": [{"action": "delete", "id": "b"}]}
    assert json.loads(model(maintenance(WHEELBARROW, a="Jonas likes rye."), EDITOR)) == {"operations": []}


@faulty
def test_a_planted_deletion_is_journalled_with_its_record(model: Model) -> None:
    prompt = maintenance(WHEELBARROW, a="The spare key lies under the pot.", b="Jonas wants to mend the wheelbarrow.")
    assert [o["id"] for o in json.loads(model(prompt, EDITOR))["operations"]] == ["b", "a"]
    assert model.journal == [{"turn": "6.2", "operation": "delete", "memory": "a"}]


@faultless
def test_answers_come_from_the_context_alone(model: Model) -> None:
    question = "Which nuts am I allergic to?"
    assert model(question, "- Mira is allergic to cashews.") == "You are allergic to cashews."
    assert model(question, "- Mira likes risotto.") == "I have no note about a nut allergy."


@faultless
def test_the_judge_compares_expected_and_given(model: Model) -> None:
    prompt = "Question: Which pier?\nExpected answer: Pier 4\nGiven answer: It leaves from {}."
    assert json.loads(model(prompt.format("pier 4")))["label"] == "CORRECT"
    assert json.loads(model(prompt.format("pier 7")))["label"] == "WRONG"


def test_the_same_request_gets_the_same_reply(model: Model) -> None:
    messages: Any = [{"role": "user", "content": extraction(ALLERGY)}]
    first, second = (model.client.chat.completions.create(model="m", messages=messages) for _ in range(2))
    assert first == second


@faultless
def test_an_unknown_request_is_refused_with_a_reason(model: Model) -> None:
    with pytest.raises(openai.BadRequestError, match="the script has no reply to: 'What is the weather"):
        model("What is the weather like?")
    with pytest.raises(openai.NotFoundError, match="no such path: /v1/moderations"):
        model.client.moderations.create(input="x")


def test_the_server_ends_with_its_standard_input(tmp_path) -> None:
    command = [sys.executable, "-m", "memtrace_otel.demo.model_server", "--journal", str(tmp_path / "journal")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ) as server:
        assert server.stdin
        assert server.stdout
        client = openai.OpenAI(base_url=server.stdout.readline().strip(), api_key="none")
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": extraction(ALLERGY)}])
        server.stdin.close()
        assert server.wait(timeout=10) == 0
    entry = json.loads((tmp_path / "journal").read_text())
    assert (entry["turn"], entry["operation"]) == ("3.2", "extract")
    assert entry["time"] > 0
