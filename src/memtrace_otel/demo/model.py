"""The scripted model: which reply belongs to a chat request. It depends on the request and the script alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memtrace_otel.demo.embedding import words
from memtrace_otel.demo.script import Script, Turn

Journal = Callable[[Mapping[str, Any]], None]

_EXTRACTION = re.compile(r"^## New Messages\n(?P<messages>.*?)^## Observation Date", re.S | re.M)  # mem0 2.x
_MEMORY = re.compile(r"^\[(?P<id>[^\]]+)\] (?P<text>.+)$", re.M)
_JUDGE = re.compile(r"^Expected answer: (?P<expected>.*)\nGiven answer: (?P<given>.*)$", re.M)


class UnknownRequest(ValueError):
    """The script has no reply for a request."""


class ScriptedModel:
    """Replies to chat requests from a script; `journal` hears of each planted reply about a turn."""

    def __init__(self, script: Script, journal: Journal = lambda entry: None) -> None:
        self._script = script
        self._journal = journal

    def reply(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Return the content of the assistant message that follows `messages`; raises UnknownRequest."""
        system = "\n".join(m["content"] for m in messages if m["role"] == "system")
        prompt = next((m["content"] for m in reversed(messages) if m["role"] == "user"), "")
        if extraction := _EXTRACTION.search(prompt):
            return self._extract(extraction["messages"])
        if '"operations"' in system:
            return self._maintain(prompt)
        if judged := _JUDGE.search(prompt):
            return self._judge(prompt, judged["expected"], judged["given"])
        return self._answer(prompt, system)

    def _extract(self, new_messages: str) -> str:
        """Return the facts of every turn in mem0's new messages, in the format of its additive extraction."""
        facts = list[str]()
        for turn in self._turns(new_messages):
            facts += turn.facts
            if turn.planted:
                self._journal({"turn": turn.id, "operation": "extract"})
        return json.dumps(
            {"memory": [{"id": str(i), "text": text, "attributed_to": "user"} for i, text in enumerate(facts)]}
        )

    def _maintain(self, prompt: str) -> str:
        """Return the edits of the turn in `prompt`, for those memories that it lists."""
        memories = {m["id"]: m["text"] for m in _MEMORY.finditer(prompt)}
        operations = list[dict[str, str]]()
        for turn in self._turns(prompt):
            for edit in turn.maintenance:
                id = next((id for id, text in memories.items() if edit.about in text), None)
                if id is None:
                    continue
                if edit.delete:
                    operations.append({"action": "delete", "id": id})
                else:
                    operations.append({"action": "update", "id": id, "text": edit.applied(memories[id])})
                if edit.planted:
                    self._journal({"turn": turn.id, "operation": operations[-1]["action"], "memory": id})
        return json.dumps({"operations": operations})

    def _judge(self, prompt: str, expected: str, given: str) -> str:
        """Return CORRECT when the given answer holds every word of the expected one."""
        question = next((q for q in self._script.questions if q.question in prompt), None)
        if question and question.judgement:
            return json.dumps(question.judgement)
        if set(words(expected)) <= set(words(given)):
            return json.dumps({"label": "CORRECT", "score": 1.0, "explanation": "The answer gives what was expected."})
        return json.dumps({"label": "WRONG", "score": 0.0, "explanation": f"The answer does not say: {expected}"})

    def _answer(self, prompt: str, context: str) -> str:
        """Return what the context lets the model say to a question, or the reply to a turn."""
        for question in self._script.questions:
            if question.question in prompt:
                return next((say for needed, say in question.answers if needed in context), question.otherwise)
        for turn in self._turns(prompt):
            return turn.reply
        raise UnknownRequest(f"the script has no reply to: {prompt[:200]!r}")

    def _turns(self, text: str) -> list[Turn]:
        return [turn for turn in self._script.turns if turn.say in text]
