"""What a model call said and got, read from arguments and results of the `openai` package without changing either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast


def prompt_messages(kwargs: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (role, text) of every message of a chat or responses call; parts that are no text are left out."""
    given = kwargs.get("messages")
    if given is None:
        given = kwargs.get("input")
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    messages: list[tuple[str, str]] = []
    instructions = kwargs.get("instructions")
    if isinstance(instructions, str):
        messages.append(("system", instructions))
    if isinstance(given, list | tuple):
        for message in cast(Sequence[object], given):
            text = _text(_get(message, "content"))
            if text:
                messages.append((str(_get(message, "role") or ""), text))
    return messages


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
    choices = _get(result, "choices")
    if isinstance(choices, list) and choices:
        return _text(_get(_get(cast(list[object], choices)[0], "message"), "content"))
    output = _get(result, "output_text")
    return output if isinstance(output, str) else ""


def delta_text(chunk: object) -> str:
    """Return the text that one chunk of a stream adds to the reply."""
    choices = _get(chunk, "choices")
    if isinstance(choices, list) and choices:
        return _text(_get(_get(cast(list[object], choices)[0], "delta"), "content"))
    if _get(chunk, "type") == "response.output_text.delta":
        return _text(_get(chunk, "delta"))
    return ""


def usage(result: object) -> tuple[int | None, int | None]:
    """Return (input tokens, output tokens), None where not reported."""
    counted = _get(result, "usage")
    given = _get(counted, "prompt_tokens") or _get(counted, "input_tokens")
    made = _get(counted, "completion_tokens") or _get(counted, "output_tokens")
    return given if isinstance(given, int) else None, made if isinstance(made, int) else None


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list | tuple):
        parts = (_get(part, "text") for part in cast(Sequence[object], content))
        return "\n".join(part for part in parts if isinstance(part, str))
    return ""


def _get(value: object, name: str) -> Any:
    if isinstance(value, Mapping):
        return cast(Mapping[str, Any], value).get(name)
    return getattr(value, name, None)
