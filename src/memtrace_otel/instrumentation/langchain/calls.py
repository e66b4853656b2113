"""The call that LangChain's steps are given."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, TypeAlias

from memtrace_otel.instrumentation import steps

if TYPE_CHECKING:
    from memtrace_otel.instrumentation.langchain.patches import LangChainPatches

Call: TypeAlias = "steps.Call[LangChainPatches]"


def purpose(call: steps.Call[Any]) -> str:
    """What the library calls the operation: class and method, a coroutine by the name of its plain twin."""
    owner = call.instance if isinstance(call.instance, type) else type(call.instance)
    name = call.wrapped.__name__
    plain = name.removeprefix("a") if inspect.iscoroutinefunction(call.wrapped) else name
    return f"{owner.__name__}.{plain}"


def first(call: steps.Call[Any], name: str) -> Any:
    """The argument of this name; the first one where a class of the application calls it otherwise."""
    return call.arguments().get(name, call.args[0] if call.args else None)
