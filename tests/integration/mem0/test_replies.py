"""The recorded facts of a reply are the facts that Mem0 parses from the same reply."""

from __future__ import annotations

import ast
import json
import re

import mem0.memory.main as main
import pytest

from tests.conftest import Recording
from tests.integration.mem0.conftest import IS_V1, Program, seen
from tests.integration.model_stub import ModelStub

TEA, CHESS = "User likes tea.", 'User plays "chess" {daily} – gern.'
PLAIN = json.dumps(
    {"facts": [TEA, CHESS]} if IS_V1 else {"memory": [{"id": "0", "text": TEA}, {"id": "1", "text": CHESS}]}
)
REPLIES = {
    "plain": PLAIN,
    "code block": f"```json\n{PLAIN}\n```",
    "block in text": f"Here you are:\n```json\n{PLAIN}\n```\nAnything else?",
    "text around": f"Sure. {PLAIN} Done.",
    "thinking": f"<think>What does {{he}} like?</think>{PLAIN}",
    "control characters": PLAIN.replace("likes tea", "likes\ttea"),
    "empty": "",
    "blank": "  \n",
    "no json": "I would rather not.",
    "cut off": PLAIN[:-9],
    "other key": '{"items": ["User likes tea."]}',
    "not a list": '{"facts": "User likes tea.", "memory": {}}',
    "a list": '["User likes tea."]',
    "null": '{"facts": null, "memory": null}',
    "objects": json.dumps(
        {"facts": [{"fact": TEA}, {"text": CHESS}, {"other": 1}, "", 7]}
        if IS_V1
        else {
            "memory": [
                {"text": TEA},
                {"text": ""},
                {"other": 1},
                {"text": TEA},
                {"text": CHESS, "attributed_to": "user"},
            ]
        }
    ),
}
if IS_V1 and not hasattr(main, "normalize_facts"):  # up to 1.0.6 Mem0 fails on these
    REPLIES = {name: reply for name, reply in REPLIES.items() if name not in ("not a list", "null", "objects")}


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES.keys())
async def test_recorded_facts_are_the_facts_that_mem0_parsed(
    program: Program, instrumented: Recording, model: ModelStub, content_on: None, reply: str
) -> None:
    model.script.append(reply)
    added = await program.call("add", "I like tea and chess.", user_id="ann")
    if IS_V1:  # the facts in the next prompt of Mem0
        asked = model.prompts[1:]
        read = ast.literal_eval(re.findall(r"```\s*(\[.*?\])\s*```", asked[0], re.DOTALL)[-1]) if asked else []
    else:
        read = [item["memory"] for item in added["results"]]
    (extract,) = seen(instrumented, "memtrace.extract")
    assert [fact["content"] for fact in extract.outputs("fact")] == list(dict.fromkeys(read))
    (asking,) = [span for span in seen(instrumented, "memtrace.other") if span.parent == extract.origin]
    (completion,) = asking.outputs("completion")
    assert completion["content"] == (reply or None)
    assert extract.inputs("other")[0]["ref"] == completion["ref"]
