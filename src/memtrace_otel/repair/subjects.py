"""What is repaired: a memory system as texts that can change (`Subject`), and the questions that test the system."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from memtrace_otel.repair.components import Component

Texts = Mapping[str, str]
"""The texts of a candidate by the names of the components."""
RETRIEVAL = "retrieval"
"""Component with the parameters of the search as a JSON object, such as `{"k": 5, "threshold": 0.1}`."""
SPLITS = ("train", "validation", "test")
_PARAMETERS = frozenset(
    {Component.K, Component.THRESHOLD, Component.FILTER, Component.RERANKER, Component.CONTENT_LIMIT}
)


class RepairError(ValueError):
    """A configuration, a subject or a file of questions cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Case:
    """One question after one conversation. `messages` have the keys `role` and `content`, and perhaps `time`."""

    id: str
    conversation: str
    messages: tuple[Mapping[str, str], ...]
    question: str
    expected: str


class Subject(Protocol):
    """A memory system under repair."""

    def components(self) -> Texts:
        """Return the texts in use: prompts under `extraction prompt`, `update prompt` and `answering prompt`, the
        parameters of the search as JSON under `retrieval`."""
        ...

    def run(self, candidate: Texts, case: Case) -> str:
        """Build the system with the texts of a candidate and an empty memory, tell the messages, return the answer."""
        ...


def component_text(component: Component | None) -> str:
    """Return the name under which a subject has a component, '' for none."""
    return RETRIEVAL if component in _PARAMETERS else str(component or "")


def load_object(reference: str) -> Any:
    """Return the object that `package.module:name` names."""
    module, _, name = reference.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise RepairError(f"{reference!r} names no object: {error}") from error


def load_subject(reference: str, options: Mapping[str, Any]) -> Subject:
    """Return the subject that the function or class `package.module:name` makes from the options."""
    make = cast("Callable[..., Subject]", load_object(reference))
    try:
        subject = make(**options)
        components: Mapping[str, Any] = dict(subject.components())
    except Exception as error:
        raise (
            error if isinstance(error, RepairError) else RepairError(f"{reference}: {type(error).__name__}: {error}")
        ) from error
    if not components:
        raise RepairError(f"{reference} has no components")
    known = {component_text(one) for one in Component}
    if unknown := set(components) - known:
        raise RepairError(f"{reference}: unknown components {sorted(unknown)}; known are {', '.join(sorted(known))}")
    if other := [name for name, text in components.items() if not isinstance(text, str)]:
        raise RepairError(f"{reference}: {', '.join(other)} is no text")
    return subject


def read_cases(path: Path) -> list[Case]:
    """Read questions from a file of JSON lines: id, conversation, messages, question, expected."""
    cases: list[Case] = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            said = json.loads(line)
            if said["question"] is None or said["expected"] is None:
                raise ValueError("question or expected is null")
            if any(not isinstance(one.get(name), str) for one in said["messages"] for name in ("role", "content")):
                raise ValueError("each message needs the texts role and content")
            texts = {name: str(said[name]) for name in ("question", "expected")}
            messages = tuple({k: str(v) for k, v in message.items()} for message in said["messages"])
            cases.append(Case(str(said.get("id", number)), str(said["conversation"]), messages, **texts))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RepairError(f"{path}, line {number}: {type(error).__name__} {error}") from error
    if len({case.id for case in cases}) < len(cases):
        raise RepairError(f"{path}: two questions have one id")
    return cases


def split(cases: Sequence[Case]) -> dict[str, list[Case]]:
    """Return half of the conversations for training, a quarter for validation and a quarter for the last test.

    No conversation is in two parts. The order comes from the names of the conversations alone.
    """
    names = sorted({case.conversation for case in cases}, key=lambda name: sha256(name.encode()).digest())
    if len(names) < 4:
        raise RepairError(f"{len(names)} conversations: 4 are needed, for training, validation and the test")
    first, second = (len(names) + 1) // 2, (3 * len(names) + 1) // 4
    part = {name: SPLITS[(place >= first) + (place >= second)] for place, name in enumerate(names)}
    return {name: [case for case in cases if part[case.conversation] == name] for name in SPLITS}
