"""The chat request of an answer, as far as its span records the request, and the same request with other memories."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from memtrace_otel.attribution.endpoint import Message
from memtrace_otel.attribution.evidence import Evidence
from memtrace_otel.attribution.replay.notebook import Notebook
from memtrace_otel.model import OperationSpan, ref_kind
from memtrace_otel.semconv import GEN_AI_REQUEST_MODEL, RefKind, Role

_BULLET = "- "
_LONGEST_LEAD = 40
"""Characters before a memory in its line that are repeated for another memory: `- `, `3. `, `(12 May) `."""
_NO_PROMPT = "Answer the question from these memories."


@dataclass(frozen=True, slots=True)
class Prompt:
    """A chat request of `model` ('' when the span names none); `shown` are the memories in its messages.

    The last message holds `question`, and may hold memories around the question.
    """

    model: str
    messages: tuple[Message, ...]
    shown: tuple[str, ...]
    question: str = ""

    def with_memories(self, remove: Collection[str], add: Sequence[str]) -> Prompt:
        """Return the request without some memories, with others in the place of the first memory.

        Question and history stay as recorded.
        """
        messages, added = list(self.messages), not add
        for place, message in enumerate(messages):
            parts = self._parts(place)
            for part in (0, 2):
                text = parts[part]
                if anchor := _first(text, [*remove, *self.shown]):
                    lead, start = _line_around(text, text.find(anchor))
                    rest = text[start:]
                    for memory in sorted(remove, key=len, reverse=True):
                        rest = _without(rest, memory)
                    new: Sequence[str] = () if added else add
                    parts[part] = text[:start] + "".join(f"{lead}{memory}\n" for memory in new) + rest
                    added = True
            messages[place] = {**message, "content": "".join(parts)}
        if not added:
            at = next((i for i, message in enumerate(messages) if message["role"] == "system"), None)
            listed = "\n".join(_BULLET + memory for memory in add)
            if at is None:
                messages.insert(0, {"role": "system", "content": f"{_NO_PROMPT}\n{listed}"})
            else:
                messages[at] = {**messages[at], "content": f"{messages[at]['content']}\n{listed}"}
        shown = (*add, *(memory for memory in self.shown if memory not in remove))
        return Prompt(self.model, tuple(messages), shown, self.question)

    def quotes(self, memory: str) -> bool:
        """Return whether a message holds a memory outside of question and history."""
        parts = map(self._parts, range(len(self.messages)))
        return any(memory in before or memory in after for before, _, after in parts)

    def _parts(self, place: int) -> list[str]:
        """Return a message in three parts; the middle one is question or history."""
        content = self.messages[place]["content"]
        if self.messages[place]["role"] == "system":
            return ["", "", content]
        return list(content.rpartition(self.question)) if place == len(self.messages) - 1 else ["", content, ""]


def recorded_prompt(evidence: Evidence, notebook: Notebook | None = None) -> Prompt | None:
    """Return the chat request of the answer, None where contents are missing.

    The memories are the lines of a notebook, else the hits. Those that no recorded message quotes are listed after the
    instructions.
    """
    lineage, answer = evidence.lineage, evidence.answer_span
    reads = [(variable, lineage.content(variable, version)) for variable, version in lineage.reads(answer)]
    question = query_text(evidence, answer) or evidence.failure.question
    if not question or (evidence.results.hits and not any(hit.content for hit in evidence.results.hits)):
        return None
    messages = [{"role": "system", "content": text} for v, text in reads if v.role == Role.PROMPT and text]
    instructions = [message["content"] for message in messages]
    for variable, text in reads:
        if variable.role == Role.HISTORY and text and text not in instructions:
            role = "assistant" if ref_kind(variable.ref) == RefKind.ANSWER else "user"
            messages.append({"role": role, "content": text})
    messages.append({"role": "user", "content": question})
    texts = notebook.pages[-1] if notebook else (hit.content for hit in evidence.results.hits)
    shown = tuple(dict.fromkeys(filter(None, texts)))
    queries = (query_text(evidence, span) for span in evidence.results.searches)
    asked = min((text for text in queries if text and text in question), key=len, default=question)
    prompt = Prompt(str(answer.attributes.get(GEN_AI_REQUEST_MODEL, "")), tuple(messages), shown, asked)
    unquoted = [text for text in shown if not prompt.quotes(text)]
    prompt = replace(prompt, shown=tuple(text for text in shown if text not in unquoted))
    return prompt.with_memories((), unquoted) if unquoted else prompt


def query_text(evidence: Evidence, span: OperationSpan) -> str:
    """Return the recorded query of a search or an answer, '' for none."""
    reads = ((v, evidence.lineage.content(v, version)) for v, version in evidence.lineage.reads(span))
    return next((text for v, text in reads if v.role == Role.QUERY and text), "")


def _first(text: str, memories: Iterable[str]) -> str:
    """Return the memory that comes first in a text, '' for none."""
    places = [(place, memory) for memory in memories if memory and (place := text.find(memory)) >= 0]
    return min(places)[1] if places else ""


def _line_around(text: str, place: int) -> tuple[str, int]:
    """Return how the line of a memory begins, and where the line starts."""
    start = text.rfind("\n", 0, place) + 1
    lead = text[start:place]
    return (lead if len(lead) <= _LONGEST_LEAD else _BULLET), start


def _without(text: str, memory: str) -> str:
    """Return a text without the line of a memory; in the middle of a line, without the memory alone."""
    place = text.find(memory) if memory else -1
    if place < 0:
        return text
    lead, start = _line_around(text, place)
    end = place + len(memory)
    if text[start:place] == lead and text[end : end + 1] in ("", "\n"):
        return text[:start] + text[end + 1 :]
    return text[:place] + text[end:]
