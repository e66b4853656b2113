"""Grafana's own schema of a dashboard, as the pinned `grafana-foundation-sdk` has it in Python types."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

register_default_plugins()


def problems(document: dict[str, Any]) -> list[str]:
    """Return what is wrong: what the schema does not know (it does not come back), and values of other types."""
    try:
        dashboard = Dashboard.from_json(document)
        read = json.loads(JSONEncoder().encode(dashboard))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return [f"cannot be read: {error!r}"]
    return [*_lost(document, read, "dashboard"), *_mistyped(dashboard, "dashboard")]


def _lost(given: Any, read: Any, where: str) -> Iterator[str]:
    if isinstance(given, dict) and isinstance(read, dict):
        for key, value in given.items():
            if key in read:
                yield from _lost(value, read[key], f"{where}.{key}")
            else:
                yield f"{where}.{key} is not in the schema"
    elif isinstance(given, list) and isinstance(read, list) and len(given) == len(read):
        for number, pair in enumerate(zip(given, read, strict=True)):
            yield from _lost(*pair, f"{where}[{number}]")
    elif given != read:
        yield f"{where} is {given!r}, read as {read!r}"


def _mistyped(value: Any, where: str) -> Iterator[str]:
    """Compare every attribute of the SDK's objects with its annotation, which the SDK itself does not."""
    if isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _mistyped(item, f"{where}[{number}]")
    elif type(value).__module__.startswith("grafana_foundation_sdk") and not isinstance(value, Enum):
        hints = get_type_hints(type(value))
        for name, inner in vars(value).items():
            if name in hints and not _fits(inner, hints[name]):
                yield f"{where}.{name} is {inner!r}, not {hints[name]}"
            yield from _mistyped(inner, f"{where}.{name}")


def _fits(value: Any, hint: Any) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in (Any, object):
        return True
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in arguments)
    if origin is Literal:
        return value in arguments
    if origin is list:
        return isinstance(value, list) and all(_fits(item, arguments[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict)
    if hint is None or hint is type(None):
        return value is None
    if issubclass(hint, Enum):
        return value in {member.value for member in hint} or isinstance(value, hint)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)
