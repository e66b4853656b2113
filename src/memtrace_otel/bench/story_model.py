"""The scripted model of the real systems: replies to the prompts of each system as the story says."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from memtrace_otel.bench.simulated import Answering
from memtrace_otel.bench.stories import Item, Story
from memtrace_otel.semconv import Action

_SHOWN = re.compile(r"^\[(?P<id>[^\]]+)\] (?P<text>.+)$", re.M)
"""A memory in the prompt of the assistant of the demo."""
_RECORDS = re.compile(r"```\s*(?P<records>\[\{.*?\}\])\s*```", re.S)
"""The memories in the prompt of a decision of Mem0 1.x."""
_GIVEN = re.compile(r"^Given answer: (?P<given>.*)$", re.M)


class StoryModel:
    """The scripted model of one story. The model counts turns, and knows the texts of the records by their keys."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.turn = 0
        self.texts: dict[str, str] = {}
        self.replies = {" ".join(turn.messages): turn.reply for turn in story.turns}

    def reply(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Return the reply to a chat request."""
        system = "\n".join(m["content"] for m in messages if m["role"] == "system")
        *earlier, prompt = [m["content"] for m in messages if m["role"] == "user"]
        if "## New Messages" in prompt:  # Mem0 2.x
            return self._extract()
        if prompt.startswith("Input:\n"):  # Mem0 1.x
            return json.dumps({"facts": list(dict.fromkeys(item.fact for item in self._items()))})
        if "smart memory manager" in prompt:
            return self._decide(prompt)
        if prompt.startswith("Profile:\n"):
            return self._rewrite(prompt.partition("\n\nNew messages:\n")[0])
        if '"operations"' in system:
            return self._maintain({m["text"]: m["id"] for m in _SHOWN.finditer(prompt)})
        if given := _GIVEN.search(prompt):
            right = self.story.judges(given["given"])
            return json.dumps({"label": "CORRECT" if right else "WRONG", "score": float(right), "explanation": ""})
        if prompt == self.story.asking.question:
            return Answering(self.story, [*_listed(system), *reversed(earlier)]).answer()
        return self.replies.get(prompt.partition("] ")[2], "")

    def _items(self) -> tuple[Item, ...]:
        """Return what the next turn tells."""
        self.turn += 1
        return self.story.turns[self.turn - 1].items

    def _extract(self) -> str:
        """Return the facts of the next turn. Updates and deletions are wishes of the application."""
        facts = list[str]()
        for item in self._items():
            if item.action in (Action.ADD, Action.NONE):
                facts.append(item.fact)
                self.texts.setdefault(item.key, item.fact)
        return json.dumps(
            {"memory": [{"id": str(i), "text": text, "attributed_to": "user"} for i, text in enumerate(facts)]}
        )

    def _changes(self, items: Collection[Item], shown: Collection[str]) -> Iterator[tuple[Action, str, str]]:
        """Yield action, old and new text for each item. Of a record that is not shown nothing can be changed."""
        for item in items:
            old = self.texts.get(item.key, "")
            if old in shown and item.action == Action.UPDATE:
                self.texts[item.key] = self.story.rewritten(old, item.text or item.fact)
                yield Action.UPDATE, old, self.texts[item.key]
            elif old in shown and item.action == Action.DELETE:
                yield Action.DELETE, self.texts.pop(item.key), ""
            elif item.action != Action.DELETE and not (old and item.action == Action.NONE):
                self.texts.setdefault(item.key, item.fact)
                yield Action.ADD, "", item.fact

    def _maintain(self, shown: Mapping[str, str]) -> str:
        """Return the updates and deletions of the last turn: the assistant of the demo on Mem0 2.x."""
        items = [i for i in self.story.turns[self.turn - 1].items if i.action in (Action.UPDATE, Action.DELETE)]
        operations = [
            {"action": action.lower(), "id": shown[old], "text": new}
            for action, old, new in self._changes(items, shown)
            if old
        ]
        return json.dumps({"operations": operations})

    def _decide(self, prompt: str) -> str:
        """Return the decisions of Mem0 1.x about the facts of the last turn."""
        listed = _RECORDS.findall(prompt)
        records: dict[str, str] = {r["text"]: r["id"] for r in ast.literal_eval(listed[-1])} if listed else {}
        decisions = [
            {"id": records.get(old, str(len(records))), "text": new or old, "event": action, "old_memory": old}
            for action, old, new in self._changes(self.story.turns[self.turn - 1].items, records)
        ]
        return json.dumps({"memory": decisions})

    def _rewrite(self, profile: str) -> str:
        """Return the profile with the facts of the next turn."""
        lines = _listed(profile)
        for action, old, new in self._changes(self._items(), lines):
            if action == Action.ADD:
                lines.append(new)
            elif action == Action.UPDATE:
                lines[lines.index(old)] = new
            else:
                lines.remove(old)
        return "\n".join(f"- {line}" for line in lines)


def _listed(text: str) -> list[str]:
    return [line.removeprefix("- ") for line in text.splitlines() if line.startswith("- ")]
