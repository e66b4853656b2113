"""The scripted model server for EverOS: replies by kind of prompt, embeddings and a cross-encoder."""

from __future__ import annotations

import json
import re
import threading
from itertools import pairwise
from typing import Any

from tests.integration.model_stub import ModelStub, _Handler, embedding

DIMENSIONS = 1024  # the only size of everos below 1.3

_TURN = re.compile(r"^\[(\d+)\] \[([^\]]+)\] (.+)$", re.MULTILINE)
_SAID = re.compile(r'"speaker": (.+?),\s*"content": (.+?)\s*\}', re.DOTALL)


class EverosModels(ModelStub):
    """The models of EverOS: replies by the kind of prompt. `script` maps a kind to the next replies.

    An episode ends where a message begins with "TOPIC" or another day begins. An episode says what was said, its facts
    are its sentences, and a search has found enough when `enough` is set.
    """

    def __init__(self) -> None:
        super().__init__()
        self.RequestHandlerClass = _EverosHandler
        self.by_kind: dict[str, list[Any]] = {}
        self.asked: list[str] = []
        self.enough = True
        self.stall = threading.Event()
        self.stall.set()

    def reply(self, prompt: str) -> str | int:
        self.stall.wait(10)
        kind = next((kind for kind, markers, _ in KINDS if all(marker in prompt for marker in markers)), "")
        self.prompts.append(prompt)
        self.asked.append(kind)
        waiting = self.by_kind.get(kind)
        if waiting:
            reply = waiting.pop(0)
        else:
            reply = next((answer(self, prompt) for known, _, answer in KINDS if known == kind), "I do not know.")
        return reply if isinstance(reply, str | int) else json.dumps(reply)


def boundary(_: EverosModels, prompt: str) -> Any:
    turns = _TURN.findall(prompt.split("### Output Format")[0].split("**Example")[0])
    turns = [turn for place, turn in enumerate(turns) if int(turn[0]) == place + 1]  # examples come after
    pairs = pairwise(turns)
    cuts = [int(new[0]) - 1 for old, new in pairs if ": TOPIC" in new[2] or old[1][:10] != new[1][:10]]
    return {"reasoning": "another topic", "boundaries": cuts, "should_wait": False}


def episode(_: EverosModels, prompt: str) -> Any:
    said = _SAID.findall(prompt.split("Conversation content:")[-1])
    text = " ".join(f"{who.strip()} said: {what.strip()}" for who, what in said)
    return {"title": text[:40], "content": text, "summary": text[:60]}


def facts(_: EverosModels, prompt: str) -> Any:
    text, time = re.findall(r'EPISODE_TEXT: "(.*?)"\n- TIME: "(.*?)"', prompt, re.DOTALL)[-1]
    said = [part.strip() for part in re.split(r"\w+ said:|(?<=[.!?])\s", text) if part.strip()]
    return {"atomic_facts": {"time": time, "atomic_fact": said}}


def profile(_: EverosModels, prompt: str) -> Any:
    said = re.findall(r"\(user_id:[^)]*\): (.+)", prompt)
    return {
        "explicit_info": [{"category": "said", "description": text, "evidence": text} for text in said[:3]],
        "implicit_traits": [],
    }


def profile_update(_: EverosModels, prompt: str) -> Any:
    said = re.findall(r"\(user_id:[^)]*\): (.+)", prompt)[-1]
    data = {"category": "said", "description": said, "evidence": said}
    return {"operations": [{"action": "add", "type": "explicit_info", "data": data}], "update_note": ""}


def foresight(_: EverosModels, prompt: str) -> Any:
    item = {"content": "Ann may travel soon", "evidence": "said so", "start_time": "2026-01-01", "duration_days": 7}
    return {"foresights": [item]}


def sufficiency(models: EverosModels, _: str) -> Any:
    missing = [] if models.enough else ["where exactly"]
    return {
        "is_sufficient": models.enough,
        "reasoning": "as scripted",
        "key_information_found": [],
        "missing_information": missing,
    }


def queries(_: EverosModels, prompt: str) -> Any:
    return {"queries": ["Which city does Ann live in?", "What did Ann say about moving?"], "reasoning": "two sides"}


def round_decision(models: EverosModels, prompt: str) -> Any:
    first = "CORE SO FAR:\n(none)\n\nCANDIDATES THIS ROUND:\n[block: original question]" in prompt
    return {"core": [0], "next_queries": ["What about the garden?"] if first else []}


def case_filter(_: EverosModels, prompt: str) -> Any:
    return {"has_exploration": True, "has_user_correction": False, "reason": "as scripted"}


def case_compress(_: EverosModels, prompt: str) -> Any:
    return {
        "task_intent": "Repair the failing build",
        "approach": "1. Read the log\n2. Pin the dependency",
        "key_insight": "The newest release broke it",
        "quality_score": 0.9,
    }


def skill(_: EverosModels, prompt: str) -> Any:
    steps = "\n".join(f"{number}. {step}" for number, step in enumerate(SKILL_STEPS, 1))
    data = {
        "name": "repair builds",
        "description": "Find out why a build broke and repair it",
        "content": f"## Steps\n{steps}",
        "confidence": 0.5,
    }
    return {"operations": [{"action": "add", "data": data}], "update_note": ""}


SKILL_STEPS = (
    "Read the log of the failing build from its end and note the first error, not the last one.",
    "Compare the versions of all dependencies with those of the last green build.",
    "Pin the one that changed and build again.",
    "Write down why it was pinned, and what has to happen for the pin to go.",
)

KINDS: list[tuple[str, tuple[str, ...], Any]] = [
    ("boundary", ('"boundaries"', '"should_wait"'), boundary),
    ("round", ("CANDIDATES THIS ROUND", "next_queries"), round_decision),
    ("sufficiency", ('"is_sufficient"',), sufficiency),
    ("queries", ('"queries"', "Missing"), queries),
    ("profile update", ("user profile updater",), profile_update),
    ("profile", ("User Profile Analyst",), profile),
    ("skill", ('"operations"', '"update_note"', "skill"), skill),
    ("case filter", ('"has_exploration"',), case_filter),
    ("case", ('"task_intent"', '"approach"', '"quality_score"'), case_compress),
    ("cluster", ('"idx"', "[New Task Intent]"), lambda *_: {"idx": -1, "reason": "as scripted"}),
    ("facts", ('"atomic_fact"', "EPISODE_TEXT"), facts),
    ("foresight", ('"foresights"',), foresight),
    ("episode", ('"title"', '"content"'), episode),
]
"""Kinds of prompts by a part of their text, the most specific part first."""


class _EverosHandler(_Handler):
    server: EverosModels

    def do_POST(self) -> None:
        if not (self.path.endswith("/embeddings") or "rerank" in self.path):
            super().do_POST()
            return
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path.endswith("/embeddings"):
            texts = [asked["input"]] if isinstance(asked["input"], str) else asked["input"]
            data = [
                {"object": "embedding", "index": number, "embedding": embedding(text, DIMENSIONS)}
                for number, text in enumerate(texts)
            ]
            usage = {"prompt_tokens": 1, "total_tokens": 1}
            self._send({"object": "list", "model": asked["model"], "data": data, "usage": usage})
            return
        query = embedding(asked["query"])
        scores = [sum(a * b for a, b in zip(query, embedding(text), strict=True)) for text in asked["documents"]]
        results = [{"index": number, "relevance_score": score} for number, score in enumerate(scores)]
        self._send({"id": "stub", "results": sorted(results, key=lambda found: -found["relevance_score"])})
