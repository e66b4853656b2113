"""What messages say, those of LangChain and those in the form of the OpenAI API."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from memtrace_otel.instrumentation.chat_history.messages import Message, Version, call_text, get
from memtrace_otel.instrumentation.langchain.identity import said

_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "function": "tool"}


def message_of(message: Any) -> Message:
    """A message of LangChain, or one in the form of the OpenAI API."""
    kind, id = role_of(message), get(message, "id")
    id = "" if id is None else str(id)
    text = "\n".join(filter(None, (text_in(get(message, "content")), calls_of(message))))
    return Message(_ROLES.get(kind, kind), text, id, made_of=_made_of(id, get(message, "tool_call_id"), text))


def _made_of(id: str, answers: object, text: str) -> tuple[Version, ...]:
    """What a reply, or what a tool `answers` to a call, is known to be made of."""
    if answers:
        return said.of_result(str(answers), text)
    return said.of_reply(id) if id else ()


def role_of(message: object) -> str:
    """Who says it, in the words of the message; '' of what is no message."""
    field = cast("dict[str, Any]", message).get if isinstance(message, dict) else partial(get, message)
    role = field("role")
    if not isinstance(role, str) or not role:
        role = field("type")
    return role if isinstance(role, str) else ""


def calls_of(message: object) -> str:
    """The tool calls of a message as text."""
    made = get(message, "tool_calls")
    return "\n".join(map(_call, cast(Sequence[object], made))) if isinstance(made, list | tuple) else ""


def _call(made: object) -> str:
    function = get(made, "function")
    if function is not None:  # as OpenAI words it
        arguments = get(function, "arguments")
        return call_text(str(get(function, "name")), "" if arguments is None else str(arguments))
    return call_text(str(get(made, "name")), json.dumps(get(made, "args"), default=str))


def text_in(content: object) -> str:
    """The text of a content, which may have parts."""
    if isinstance(content, str):
        return content
    parts = cast(Sequence[Any], content if isinstance(content, list) else ())
    texts = (part if isinstance(part, str) else get(part, "text") for part in parts)
    return "\n".join(text for text in texts if isinstance(text, str))
