"""What a model call said and got, read from requests and results of the `openai` package without changing either."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

_CHAT, _RESPONSES = "/chat/completions", "/responses"
INSTRUCTIONS = frozenset({"system", "developer"})
"""Roles of the messages that are no history."""
_CONVERSATION_KEYS = ("conversation_id", "thread_id", "session_id")


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a prompt. `id` is the caller's own, '' mostly; `text` of a tool call is its name and arguments."""

    role: str
    text: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """What a model is asked. `conversation` is the caller's own name of the conversation, `previous_id` the reply that
    the model is to go on from (the earlier messages are then not in `messages`), each '' when not given."""

    model: str
    messages: tuple[Message, ...]
    stream: bool = False
    conversation: str = ""
    previous_id: str = ""


def read_request(options: object) -> Request | None:
    """Read the options of an HTTP request of the package, None when it asks no model for a reply."""
    url, body = str(get(options, "url") or ""), get(options, "json_data")
    if not url.endswith((_CHAT, _RESPONSES)) or str(get(options, "method")).lower() != "post":
        return None
    if not isinstance(body, Mapping):
        return None
    values = cast(Mapping[str, Any], body)
    model = values.get("model")
    return Request(
        model if isinstance(model, str) else "",
        tuple(_messages(values)),
        values.get("stream") is True,
        _conversation(values),
        str(values.get("previous_response_id") or ""),
    )


def _conversation(values: Mapping[str, Any]) -> str:
    named = values.get("conversation")
    if named:
        return str(named if isinstance(named, str) else get(named, "id") or "")
    metadata = values.get("metadata")
    if not isinstance(metadata, Mapping):
        return ""
    ids = cast(Mapping[str, object], metadata)
    return str(next((ids[key] for key in _CONVERSATION_KEYS if ids.get(key)), ""))


def _messages(values: Mapping[str, Any]) -> Iterator[Message]:
    instructions = values.get("instructions")
    if isinstance(instructions, str) and instructions:
        yield Message("system", instructions)
    given = values.get("messages", values.get("input"))
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    for item in cast(Sequence[object], given) if isinstance(given, list | tuple) else ():
        message = _message(item)
        if message.text:
            yield message


def _message(item: object) -> Message:
    """One item of `messages` (chat) or `input` (responses); parts that are no text are left out."""
    kind, id = get(item, "type"), str(get(item, "id") or "")
    if kind == "function_call":
        return Message("assistant", _call(item), id)
    if kind == "function_call_output":
        return Message("tool", _text(get(item, "output")), id)
    text = _text(get(item, "content"))
    calls = _calls(get(item, "tool_calls"))
    return Message(str(get(item, "role") or ""), "\n".join(filter(None, (text, calls))), id)


def parsed(result: object) -> object | None:
    """Return the completion behind a result, None when reading it would take it from the program (raw streams).

    A raw response keeps what it has parsed, so the program gets the same object later.
    """
    if hasattr(result, "choices") or hasattr(result, "output_text"):
        return result
    if type(result).__name__ == "LegacyAPIResponse" and not getattr(result, "_stream", True):
        return cast(Any, result).parse()
    return None


def reply_text(result: object) -> str:
    """Return the text of a chat completion or a response, '' when there is none (tool calls, raw responses)."""
    output = get(result, "output_text")
    return output if isinstance(output, str) else _text(get(_reply(result), "content"))


def reply_calls(result: object) -> str:
    """Return the tool calls of a reply, as they stand in the text of the message that repeats them; '' when none."""
    output = get(result, "output")
    if isinstance(output, list):
        calls = [item for item in cast(list[object], output) if get(item, "type") == "function_call"]
        return "\n".join(map(_call, calls))
    return _calls(get(_reply(result), "tool_calls"))


def delta_text(chunk: object) -> str:
    """Return the text that one chunk of a stream adds to the reply."""
    choices = get(chunk, "choices")
    if isinstance(choices, list) and choices:
        return _text(get(get(cast(list[object], choices)[0], "delta"), "content"))
    if get(chunk, "type") == "response.output_text.delta":
        return _text(get(chunk, "delta"))
    return ""


def delta_calls(chunk: object) -> Iterator[tuple[int, str, str]]:
    """Yield (index, name, arguments) for each part of a tool call that one chunk of a stream brings."""
    choices = get(chunk, "choices")
    if isinstance(choices, list) and choices:
        for call in get(get(cast(list[object], choices)[0], "delta"), "tool_calls") or ():
            function = get(call, "function")
            yield int(get(call, "index") or 0), str(get(function, "name") or ""), str(get(function, "arguments") or "")


def described(last: object) -> object:
    """The object of a stream's last chunk that names model, id and usage."""
    return get(last, "response") or last


def call_text(name: str, arguments: str) -> str:
    """A tool call as text; frameworks repeat the arguments with other blanks."""
    with suppress(ValueError):
        arguments = json.dumps(json.loads(arguments), ensure_ascii=False)
    return json.dumps([name, arguments], ensure_ascii=False)


def usage(result: object) -> tuple[int | None, int | None]:
    """Return (input tokens, output tokens), None where not reported."""
    counted = get(result, "usage")
    given = get(counted, "prompt_tokens") or get(counted, "input_tokens")
    made = get(counted, "completion_tokens") or get(counted, "output_tokens")
    return given if isinstance(given, int) else None, made if isinstance(made, int) else None


def get(value: object, name: str) -> Any:
    """A field of a mapping or an object, None without one."""
    if isinstance(value, Mapping):
        return cast(Mapping[str, Any], value).get(name)
    return getattr(value, name, None)


def _reply(result: object) -> object:
    choices = get(result, "choices")
    return get(cast(list[object], choices)[0], "message") if isinstance(choices, list) and choices else None


def _calls(calls: object) -> str:
    if not isinstance(calls, list | tuple):
        return ""
    return "\n".join(_call(get(call, "function")) for call in cast(Sequence[object], calls))


def _call(function: object) -> str:
    return call_text(str(get(function, "name")), str(get(function, "arguments")))


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list | tuple):
        parts = (get(part, "text") for part in cast(Sequence[object], content))
        return "\n".join(part for part in parts if isinstance(part, str))
    return ""
