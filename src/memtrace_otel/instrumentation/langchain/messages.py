"""Messages of LangChain, and dictionaries in the form of the OpenAI API, with the versions behind them."""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

from memtrace_otel.capture import recall
from memtrace_otel.capture.fork import new_lock_after_fork
from memtrace_otel.instrumentation.chat_history.messages import Message, Version, call_text, get

_MOST = 10_000
_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "function": "tool"}
_RUN = re.compile(r"run-+([0-9a-f-]{36})(?:-0)?$")
_Key = TypeVar("_Key")
_Result = tuple[str, int]  # id of the tool call, hash of the text


class MessageSources:
    """The versions behind messages: of replies by the id of the run or message; of tool results, within a turn, by the
    id of the call and the text. Bounded."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        new_lock_after_fork(self)
        self._replies: OrderedDict[str, tuple[Version, ...]] = OrderedDict()
        self._results: WeakKeyDictionary[recall.Turn, OrderedDict[_Result, tuple[Version, ...]]] = WeakKeyDictionary()

    def note_reply(self, versions: tuple[Version, ...], *ids: str) -> None:
        """Note the versions of the reply with these ids."""
        with self._lock:
            _add(self._replies, dict.fromkeys(map(_run_of, ids if versions else ()), versions))

    def note_result(self, turn: recall.Turn, call: str, text: str, versions: tuple[Version, ...]) -> None:
        """Note the versions from which a tool made its result of a call."""
        with self._lock:
            _add(self._results.setdefault(turn, OrderedDict()), {(call, hash(text)): versions})

    def of_reply(self, id: str) -> tuple[Version, ...]:
        """The versions of the reply with this id, empty if unknown."""
        return self._replies.get(_run_of(id), ())

    def of_result(self, call: str, text: str) -> tuple[Version, ...]:
        """The versions of a tool's result in this turn, empty if unknown."""
        turn = recall.turn_here()
        with self._lock:
            given = self._results.get(turn) if turn else None
            return given.get((call, hash(text)), ()) if given else ()


sources = MessageSources()


def message_of(message: Any) -> Message:
    """A message of LangChain, or a dictionary in the form of the OpenAI API."""
    kind, id, answers = role_of(message), get(message, "id"), get(message, "tool_call_id")
    id = "" if id is None else str(id)
    text = "\n".join(filter(None, (text_in(get(message, "content")), calls_of(message))))
    made_of = sources.of_result(str(answers), text) if answers else sources.of_reply(id) if id else ()
    return Message(_ROLES.get(kind, kind), text, id, made_of=made_of)


def role_of(message: object) -> str:
    """The role as the message names it, '' if the value is no message."""
    field = cast("dict[str, Any]", message).get if isinstance(message, dict) else partial(get, message)
    role = field("role")
    if not isinstance(role, str) or not role:
        role = field("type")
    return role if isinstance(role, str) else ""


def calls_of(message: object) -> str:
    """The tool calls of a message as text."""
    made = get(message, "tool_calls")
    return "\n".join(map(_call, cast(Sequence[object], made))) if isinstance(made, list | tuple) else ""


def text_in(content: object) -> str:
    """The text of a content, which may have parts."""
    if isinstance(content, str):
        return content
    parts = cast(Sequence[Any], content if isinstance(content, list) else ())
    texts = (part if isinstance(part, str) else get(part, "text") for part in parts)
    return "\n".join(text for text in texts if isinstance(text, str))


def _call(made: object) -> str:
    function = get(made, "function")
    if function is not None:  # in the form of the OpenAI API
        arguments = get(function, "arguments")
        return call_text(str(get(function, "name")), "" if arguments is None else str(arguments))
    return call_text(str(get(made, "name")), json.dumps(get(made, "args"), default=str))


def _run_of(id: str) -> str:
    """The id of the run that LangChain named a message after, else the id itself."""
    run = _RUN.search(id)
    return run[1] if run else id


def _add(known: OrderedDict[_Key, tuple[Version, ...]], new: Mapping[_Key, tuple[Version, ...]]) -> None:
    known.update(new)
    while len(known) > _MOST:
        known.popitem(last=False)
