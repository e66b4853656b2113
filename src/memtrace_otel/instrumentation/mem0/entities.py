"""The entity collection of 2.x: which entities point to which memories, and which memories they move up in a search.

An entity is `state:<id>`; its name is an input of the link and not its content, for it says nothing about the world.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from memtrace_otel.capture import Operation, variable_ref
from memtrace_otel.capture.layout import number
from memtrace_otel.instrumentation.mem0.calls import Call
from memtrace_otel.instrumentation.mem0.session import PROVIDER, SESSION, Session
from memtrace_otel.instrumentation.mem0.variables import memory_ref
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.model import make_ref
from memtrace_otel.semconv import Action, OpKind, RefKind, Role

_LINKS = "linked_memory_ids"


def entity_session(call: Call) -> Session | None:
    """The session whose Memory keeps its entities in `call.instance`, outside other calls of that store."""
    session = SESSION.get()
    if session is None or PROVIDER.get() is call.instance:
        return None
    if getattr(session.memory, "_entity_store", None) is not call.instance:
        return None
    call.carry(PROVIDER, call.instance)
    return session


def insert(call: Call, session: Session) -> Step:
    """New entities, each with the memories that name it."""
    arguments = call.arguments()
    ids = cast(Sequence[object], arguments.get("ids") or [])
    payloads = cast(Sequence[Mapping[str, Any]], arguments.get("payloads") or [])
    operation = _open(call, session)
    places: dict[str, int] = {}
    sources = [_read(operation, payload, places) for payload in payloads]
    yield
    for id, fed_by in zip(ids, sources, strict=False):
        operation.wrote(_ref(id), action=Action.ADD, sources=fed_by)


def update(call: Call, session: Session) -> Step:
    """An entity with other memories than before."""
    arguments = call.arguments()
    payload = cast("Mapping[str, Any]", arguments.get("payload") or {})
    ref = _ref(arguments.get("vector_id"))
    operation = _open(call, session)
    sources = [operation.read(ref, role=Role.PREVIOUS), *_read(operation, payload, {})]
    yield
    operation.wrote(ref, action=Action.UPDATE, sources=sources)


def delete(call: Call, session: Session) -> Step:
    """An entity that no memory names any more."""
    ref = _ref(call.arguments().get("vector_id"))
    operation = _open(call, session)
    previous = operation.read(ref, role=Role.PREVIOUS)
    yield
    operation.wrote(ref, action=Action.DELETE, sources=[previous])


def boosts(call: Call) -> Step:
    """`_compute_entity_boosts`: the memories that entities of the query move up, and by how much."""
    session = SESSION.get()
    if session is None or session.memory is not call.instance:
        return
    operation = call.open(None, OpKind.RERANK, scope=session.scope, purpose="entity_boosts")
    if session.query is not None:
        session.query.read_by(operation)
    found = yield
    ranked = sorted(cast("Mapping[str, object]", found).items(), key=lambda item: -(number(item[1]) or 0.0))
    for id, boost in ranked:
        operation.read(memory_ref(id), role=Role.CANDIDATE, score=number(boost))


def _open(call: Call, session: Session) -> Operation:
    return call.open(None, OpKind.INDEX, scope=session.operation.scope, purpose="link_entities")


def _read(operation: Operation, payload: Mapping[str, Any], places: dict[str, int]) -> list[int]:
    """Read the name of an entity and the memories that name it, each memory once per operation; returns the inputs."""
    name = payload.get("data")
    linked = [str(id) for id in cast(Sequence[object], payload.get(_LINKS) or [])]
    for id in linked:
        if id not in places:
            places[id] = operation.read(memory_ref(id))
    return [operation.read(variable_ref(RefKind.FACT, name), content=name, origin=""), *(places[id] for id in linked)]


def _ref(id: object) -> str:
    return make_ref(RefKind.STATE, str(id))
