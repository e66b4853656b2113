"""Read requests and results of the `openai` package without changing either."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from memtrace_otel.instrumentation.chat_history.messages import (
    Choice,
    Message,
    ModelReply,
    Part,
    Request,
    call_text,
    choices_of,
    get,
)
from memtrace_otel.model import content_digest

_CHAT, _RESPONSES = "/chat/completions", "/responses"
_COMPACTION = "compaction"
_TEXTS = ("text", "refusal", "stdout", "stderr")
"""Text fields of a part of a content or of a tool output."""
_ARGUMENTS = ("arguments", "input", "action", "actions", "operation")
"""Fields of a tool call with its arguments, by the kind of the call."""
_TOKENS = "_tokens"
_CONVERSATION_KEYS = ("conversation_id", "thread_id", "session_id")


def read_request(options: object) -> Request | None:
    """Read the options of an HTTP request of the package, None if the request calls no model."""
    url, body = str(get(options, "url") or "").partition("?")[0], get(options, "json_data")
    if not url.endswith((_CHAT, _RESPONSES)) or str(get(options, "method")).lower() != "post":
        return None
    if not isinstance(body, Mapping):
        return None
    values = cast(Mapping[str, Any], {**body, **(get(options, "extra_json") or {})})
    model, items = values.get("model"), _items(values)
    return Request(
        model if isinstance(model, str) else "",
        tuple(_messages(items)),
        values.get("stream") is True,
        _conversation(values),
        str(values.get("previous_response_id") or ""),
        bool(values.get("previous_response_id") or values.get("conversation")),
        str(values.get("safety_identifier") or values.get("user") or ""),
        all(map(_is_text, items)),
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


def _items(values: Mapping[str, Any]) -> list[object]:
    """The input of a model, its instructions first."""
    given = values.get("messages", values.get("input"))
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    instructions = {"role": "system", "content": values.get("instructions")}
    return [instructions, *(cast(Sequence[object], given) if isinstance(given, list | tuple) else ())]


def _messages(items: Sequence[object]) -> list[Message]:
    return [message for message in map(_message, items) if message.text]


def _is_text(item: object) -> bool:
    """Whether all parts of a message or of a tool output are text: no images, sounds or files."""
    parts = get(item, "output" if _is_output(item) else "content")
    if not isinstance(parts, list | tuple):
        return not isinstance(parts, Mapping)
    return all(any(isinstance(get(part, key), str) for key in _TEXTS) for part in cast(Sequence[object], parts))


def _message(item: object) -> Message:
    """One item of `messages` (chat) or `input` (responses)."""
    unnamed = "tool" if _is_output(item) else "assistant"  # only messages have a role
    role, id = str(get(item, "role") or unnamed), str(get(item, "id") or "")
    answers = str(get(item, "call_id" if _is_output(item) else "tool_call_id") or "")
    return Message(role, "\n".join(filter(None, _part(item))), id, get(item, "type") == _COMPACTION, answers)


def _part(item: object) -> Part:
    """The text and the tool calls of a message (chat) or an item (responses)."""
    if _is_call(item):
        return "", call_text(*_asked(item))
    if _is_output(item):
        return _text(get(item, "output")), ""
    if get(item, "type") == "reasoning":
        return "", ""
    if get(item, "type") == _COMPACTION:
        return "", f"{_COMPACTION} {get(item, 'id') or content_digest(str(get(item, 'encrypted_content')))}"
    return _said(item), "\n".join(call_text(*_asked(call)) for call in _calls(item))


def read_reply(result: object) -> ModelReply | None:
    """Read a result; None when reading would take the result from the program (raw streams)."""
    readable = parsed(result)
    return None if readable is None else reply_of(readable, choices_in(readable))


def reply_of(described: object, choices: Sequence[Choice], *, whole: bool = True) -> ModelReply:
    """The reply with these choices, described by a completion, a response or the last chunk of a stream."""
    described = get(described, "response") or described
    counted = get(described, "usage")
    tokens = (
        (get(counted, f"prompt{_TOKENS}") or get(counted, f"input{_TOKENS}")),
        (get(counted, f"completion{_TOKENS}") or get(counted, f"output{_TOKENS}")),
    )
    read, written = (number if isinstance(number, int) else None for number in tokens)
    id, model = (value if isinstance(value := get(described, key), str) else "" for key in ("id", "model"))
    return ModelReply(choices, id, model, read, written, whole)


def parsed(result: object) -> object | None:
    """The completion behind a result, None when reading would take the result from the program (raw streams).

    A raw response keeps the parsed object, so the program gets the same object later.
    """
    if hasattr(result, "choices") or hasattr(result, "output"):
        return result
    if is_raw(result) and not getattr(result, "_stream", True):
        return cast(Any, result).parse()
    return None


def is_raw(result: object) -> bool:
    """Whether a result is the raw response that the program parses itself, once or more often (`with_raw_response`)."""
    return type(result).__name__ == "LegacyAPIResponse"


def choices_in(result: object) -> list[Choice]:
    """The replies in a result: one for each choice of a chat completion, one with a message per item of a response.

    Empty without a text and a tool call (images, raw responses). Outputs of tools run by the provider are left out.
    """
    output = get(result, "output")
    if isinstance(output, list):
        return choices_of([_part(item) for item in cast(list[object], output) if not _is_output(item)])
    return choices_of(*([_part(get(choice, "message"))] for choice in _choices(result)))


def delta_texts(chunk: object) -> Iterator[tuple[int, str]]:
    """Yield (choice, text) for each text that one chunk of a stream adds to a reply."""
    for choice in _choices(chunk):
        yield int(get(choice, "index") or 0), _said(get(choice, "delta"))
    if get(chunk, "type") in ("response.output_text.delta", "response.refusal.delta"):
        yield 0, _text(get(chunk, "delta"))


def delta_calls(chunk: object) -> Iterator[tuple[int, int, str, str]]:
    """Yield (choice, index, name, arguments) for each part of a tool call that one chunk of a stream brings."""
    for choice in _choices(chunk):
        for call in _calls(get(choice, "delta")):
            yield int(get(choice, "index") or 0), int(get(call, "index") or 0), *_asked(call)
    kind, item, place = get(chunk, "type"), get(chunk, "item"), int(get(chunk, "output_index") or 0)
    if kind == "response.output_item.added" and _is_call(item):
        yield 0, place, *_asked(item)
    elif kind in ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta"):
        yield 0, place, "", str(get(chunk, "delta") or "")


def _choices(result: object) -> Sequence[object]:
    choices = get(result, "choices")
    return cast(list[object], choices) if isinstance(choices, list) else ()


def _said(message: object) -> str:
    """The text of a message: its content and its refusal."""
    return "\n".join(filter(None, (_text(get(message, "content")), _text(get(message, "refusal")))))


def _calls(message: object) -> list[object]:
    """The tool calls of a chat message; `function_call` is the older field for one call."""
    several, one = get(message, "tool_calls"), get(message, "function_call")
    calls = cast(Sequence[object], several) if isinstance(several, list | tuple) else ()
    return [*calls, one] if one else [*calls]


def _asked(call: object) -> tuple[str, str]:
    """Name and arguments of a tool call, of its part (chat) or of the item itself (responses)."""
    asked = get(call, "function") or get(call, "custom") or call
    arguments = next((value for key in _ARGUMENTS if (value := get(asked, key))), "")
    if not isinstance(arguments, str):
        arguments = json.dumps(_given(arguments), ensure_ascii=False, sort_keys=True, default=str)
    kind = get(asked, "type") if _is_call(asked) else ""  # a built-in tool has no other name
    return str(get(asked, "name") or kind or ""), arguments


def _given(value: Any) -> object:
    """The set fields of a record of the package: programs that repeat a record may add nulls."""
    if hasattr(value, "model_dump"):
        value = value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, Mapping):
        fields = cast(Mapping[str, object], value)
        return {name: _given(field) for name, field in fields.items() if field is not None}
    return [_given(one) for one in cast(Sequence[object], value)] if isinstance(value, list | tuple) else value


def _is_call(item: object) -> bool:
    """Whether the application runs this tool call: calls that the provider runs have no `call_id`."""
    return str(get(item, "type")).endswith("_call") and bool(get(item, "call_id"))


def _is_output(item: object) -> bool:
    return str(get(item, "type")).endswith("_call_output")


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list | tuple):
        texts = (get(part, key) for part in cast(Sequence[object], content) for key in _TEXTS)
        return "\n".join(text for text in texts if isinstance(text, str) and text)
    return ""
