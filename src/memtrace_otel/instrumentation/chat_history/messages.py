"""Messages of a prompt, the request around them and the reply of a model, whatever library made the call."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

INSTRUCTIONS = frozenset({"system", "developer"})
"""Roles of system messages: they are no part of the history."""

Version = tuple[str, str]
"""One version of a variable: its ref and its origin ('' for input from outside)."""

Part = tuple[str, str]
"""One message of a reply: its text and its tool calls as text, each '' when missing."""

Choice = Sequence[Part]
"""One reply of a model call, as the messages that the next prompt repeats."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a prompt.

    `id` is the caller's id, '' for most callers. `text` of a tool call is its name and arguments; `text` of a
    compaction is its id. A `compaction` stands for the messages before it, and only the model can read it. `answers` is
    the id of the tool call whose result this is. `made_of` lists the known versions behind the message.
    """

    role: str
    text: str
    id: str = ""
    compaction: bool = False
    answers: str = ""
    made_of: tuple[Version, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Request:
    """One request to a model.

    `conversation` is the caller's name of the conversation and `previous_id` the id of the reply to continue, each ''
    when not given. `held_there`: the provider holds the earlier messages, so `messages` lacks them. `user` is the end
    user, '' when not given. `whole`: all parts are text.
    """

    model: str
    messages: tuple[Message, ...]
    stream: bool = False
    conversation: str = ""
    previous_id: str = ""
    held_there: bool = False
    user: str = ""
    whole: bool = True


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The reply of a model: `choices` without empty ones, and what the provider reports. `whole` is False for a stream
    that the program did not read to its end."""

    choices: Sequence[Choice]
    id: str = ""
    model: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    whole: bool = True


def choices_of(*given: Choice) -> list[Choice]:
    """Drop empty parts, then empty choices."""
    parts = ([part for part in choice if any(part)] for choice in given)
    return [choice for choice in parts if choice]


def call_text(name: str, arguments: str) -> str:
    """A tool call as text; JSON arguments are normalised, because frameworks change the blanks."""
    with suppress(ValueError):
        arguments = json.dumps(json.loads(arguments), ensure_ascii=False)
    return json.dumps([name, arguments], ensure_ascii=False)


def get(value: object, name: str) -> Any:
    """A field of a mapping or an object, None without one."""
    if isinstance(value, Mapping):
        return cast(Mapping[str, Any], value).get(name)
    return getattr(value, name, None)
