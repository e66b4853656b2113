"""A record that somebody deleted or replaced, its owner or not, in a trace of its own."""

from __future__ import annotations

import secrets
from uuid import uuid4

import pytest
from opentelemetry.trace import Tracer

from memtrace_otel import feedback, operation

QUESTION, TOLD = "Where does Ana live?", "Ana lives in Lisbon"
BY_ORIGIN, BY_ID = "origin", "unique id"
ways = pytest.mark.parametrize("named", [BY_ORIGIN, BY_ID])
people = pytest.mark.parametrize("who", ["its owner", "a janitor", ""], ids=["owner", "another scope", "no scope"])


def deleted_by(who: str, named: str, tracer: Tracer, kind: str = "delete") -> tuple[str, str]:
    """Record it, with an answer that would have needed the record and feedback on it; return the origins of the answer
    and of what deleted it, an operation of this kind."""
    owner = secrets.token_hex(8)
    ref = f"memory:{uuid4() if named == BY_ID else 1}"
    with operation("create_memory", kind="create", system="notes", scope=owner, tracer=tracer) as create:
        create.read("message:1", role="message", content=TOLD)
        create.wrote(ref, action="ADD", content=TOLD)
    scope = owner if who == "its owner" else who
    with operation("delete_memory", kind=kind, system="notes", scope=scope, tracer=tracer) as delete:
        if named == BY_ORIGIN:
            delete.read(ref, role="previous", origin=create.origin)
        delete.wrote(ref, action="DELETE")
    with operation("chat", kind="respond", system="model", scope=owner, tracer=tracer) as chat:
        chat.read("query:1", role="query", content=QUESTION)
        with operation("search_memory", kind="retrieve", system="notes", scope=owner, tracer=tracer) as found:
            found.read("query:1", role="query", content=QUESTION)
        chat.wrote("answer:1", role="answer", content="I do not know.")
    assert feedback("fail", expected="Lisbon", answer=chat.origin, tracer=tracer)
    return chat.origin, delete.origin


def replaced_in(scope: str, tracer: Tracer) -> tuple[str, str]:
    """Record a record of `scope` that was replaced, by its origin, and an answer of a search that gave what it said
    before; return the origins of the answer and of the search."""
    ref, now = "memory:1", "Ana lives in Porto"
    with operation("create_memory", kind="create", system="notes", scope=scope, tracer=tracer) as create:
        create.read("message:1", role="message", content=TOLD)
        create.wrote(ref, action="ADD", content=TOLD)
    with operation("update_memory", kind="update", system="notes", scope=scope, tracer=tracer) as update:
        update.read("message:2", role="message", content=now)
        update.read(ref, role="previous", origin=create.origin)
        update.wrote(ref, action="UPDATE", content=now)
    with operation("chat", kind="respond", system="model", scope=scope, tracer=tracer) as chat:
        chat.read("query:1", role="query", content=QUESTION)
        with operation("search_memory", kind="retrieve", system="notes", scope=scope, tracer=tracer) as found:
            found.read("query:1", role="query", content=QUESTION)
            found.read(ref, role="hit", origin=create.origin, content=TOLD)
            found.wrote("context:1", role="context", content=TOLD)
        chat.read("context:1", role="context", origin=found.origin, content=TOLD)
        chat.wrote("answer:1", role="answer", content="In Lisbon.")
    assert feedback("fail", expected="Porto", answer=chat.origin, tracer=tracer)
    return chat.origin, found.origin
