"""Upkeep: model calls behind a reply to the user that make a title, a summary, follow-up questions, notes or a query.

The prompt of such a call repeats the reply or its question. The words of the prompt decide, and so does a chat written
as text: a prompt that ends with the reply asks for no other reply.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from memtrace_otel.capture import recall
from memtrace_otel.instrumentation.chat_history.alignment import REPEATED_BY_CHANCE
from memtrace_otel.instrumentation.chat_history.messages import INSTRUCTIONS, Message
from memtrace_otel.instrumentation.chat_history.quoted_answers import QUESTION_END, last_line

_CHAT = r"(?:conversations?|chats?|dialog(?:ue)?s?|discussion|exchange|transcript|thread)"
_TALK = rf"(?:{_CHAT}|messages|above|so far)"
_TOLD = r"(?:gespräch|unterhaltung|chat|verlauf|konversation|conversa)"
_NAMED = r"(?:titel|titre|t[íi]tul|titolo|r[ée]sum)"
_MAKE = "(?:write|create|generate|give|make|suggest|propose|produce|provide|come up with|think of|choose|find|extract)"
_KEEP = "(?:write|extract|update|maintain|keep|rewrite|revise|merge)"
_READ = "(?:classify|categori[sz]e|label|analy[sz]e|reflect on|extract|identify|detect|decide|what (?:is|was))"
_SENTENCE = r"[^.?!\n]{0,80}?\b"
_OBJECT = r"(?:(?!\b(?:from|using|with|by|on)\b)[^.?!\n]){0,80}?\b"
"""The words between a verb and its object."""
_THIS = rf"(?!\s+(?:of|for|about|on)\s+(?:my|our|your|an?|the)\s+(?!{_TALK}))"
"""No other object than the conversation follows: "a title for the book" is a reply to the user."""
_TASK = re.compile(
    rf"\b(?:(?:summari[sz]e|recap|condense|distill?|compress)\b{_OBJECT}{_TALK}\b|name th(?:e|is) {_TALK}\b"
    rf"|{_MAKE}\b{_OBJECT}(?:(?:summary|topics?)\b{_SENTENCE}{_TALK}|{_TALK}\b{_SENTENCE}(?:summary|topics?))\b"
    rf"|{_MAKE}\b{_OBJECT}(?:titles?|headline|tags|follow-?ups|(?:follow-?up|related|next) questions)\b{_THIS}"
    rf"|{_KEEP}\b{_OBJECT}(?:facts|memor(?:y|ies)|profile|notes|preferences|remember(?:ed|ing)?)\b(?! in mind)"
    rf"|{_READ}\b{_SENTENCE}th(?:e|is) (?:\w+ )?{_CHAT}\b"
    rf"|(?:rephrase|rewrite|reformulate)\b{_OBJECT}(?:question|query)\b"
    rf"|{_TOLD}\w*{_SENTENCE}{_NAMED}|(?:{_NAMED}|fass)\w*{_SENTENCE}{_TOLD})"
    r"|(?:对话|聊天|会話|チャット|대화)[^。？！\n]{0,20}(?:标题|摘要|总结|タイトル|要約|제목|요약)"
)
_REWORK = re.compile(
    r"\b(?:(?:improve|revise|refine|polish|rewrite|rephrase|shorten|correct|proofread|fix|edit|make)\s+(?:\w+\s+){0,3}"
    r"(?:answer|reply|response|draft)\b|translate\b|übersetz|final (?:answer|reply|response)\b"
    rf"|(?:answer|respond to|reply to) (?:the|this|that|each)\b{_SENTENCE}(?:questions?|users?|customer)\b)"
)
"""Words that ask for another reply to the user."""
_USER = re.compile(
    r"\b(?:i|me|my|we|us|our|(?:can|could|would|will|do|did|have|are) you"
    r"|ich|mir|mich|meine?[rnms]?|wir|uns\w*|je|moi|nous|nos)\b"
)
"""Words by which the user asks: "Can you summarise our conversation?" """
_SPEAKER = re.compile(r"\b(?:assistant|ai|bot|chatbot|agent|model|assistent)\b|助手|アシスタント", re.IGNORECASE)
_MARKUP = re.compile(r"<[^<>]*>")
_LONGEST = 6_000


def tasks_of(texts: Iterable[str]) -> frozenset[str]:
    """The phrases in the texts of a prompt that ask for upkeep."""
    return frozenset(found[0] for text in texts for found in _TASK.finditer(_instructions(text)))


def reply_before(
    messages: Sequence[Message], new: Collection[int], answers: Sequence[recall.Answer], held: Collection[str]
) -> recall.Answer | None:
    """The reply to the user that a prompt does upkeep for, None for a prompt that asks for a reply.

    `new` are the positions of the messages that no earlier call had. `answers` are the replies of the turn, newest
    first. `held` are the origins of the replies that the provider holds.
    """
    if not answers:
        return None
    telling = [message for message in messages if message.role in INSTRUCTIONS]
    asking = [messages[place] for place in new]
    prompt, told, asked = _text(messages), _text(telling), _text(asking)
    for answer in answers:
        text, question = recall.fold(answer.text), last_line(answer.question)[-QUESTION_END:]
        if not text or not (len(text) > REPEATED_BY_CHANCE or answer.origin in held or recall.quotes(prompt, question)):
            continue
        ends, given = False, [*telling, *asking]
        said = max((place for place, message in enumerate(messages) if _is_said(message, text)), default=-1)
        if recall.quotes(asked, text):
            ends = _ends_with(asked, question, text)
        elif said >= 0 or answer.origin in held or recall.quotes(told, text):
            given = [messages[place] for place in new if place > said] or telling
            if given is not telling and any(_USER.search(_instructions(message.text)) for message in given):
                return None
        elif not (recall.quotes(asked, question) or recall.quotes(told, question)):
            continue
        texts = [m.text.replace(answer.text.strip(), " ").replace(answer.question.strip() or "\n", " ") for m in given]
        asks = ends or tasks_of(texts) - answer.tasks
        return answer if asks and not any(_REWORK.search(_instructions(text)) for text in texts) else None
    return None


def _is_said(message: Message, text: str) -> bool:
    return message.role == "assistant" and recall.fold(message.text) == text


def _text(messages: Iterable[Message]) -> str:
    return recall.fold("\n".join(message.text for message in messages)[: recall.PROMPT])


def _ends_with(prompt: str, question: str, text: str) -> bool:
    """Whether a prompt ends with a written chat whose last exchange is this question and this answer."""
    at = prompt.rfind(text)
    asked = prompt.rfind(question, max(at - len(question) - QUESTION_END, 0), at) if question and at > 0 else -1
    speaks = asked >= 0 and _SPEAKER.search(prompt[asked + len(question) : at])
    return bool(speaks) and re.search(r"\w", _MARKUP.sub(" ", prompt[at + len(text) :])) is None


def _instructions(text: str) -> str:
    """The beginning and the end of a text, where instructions stand, in lower case."""
    return (text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}\n{text[-_LONGEST // 2 :]}").lower()
