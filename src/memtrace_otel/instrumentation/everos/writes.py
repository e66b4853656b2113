"""The markdown writers of EverOS, which hold the truth: entries, profiles, skills."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, config, origins
from memtrace_otel.instrumentation.everos.calls import Call
from memtrace_otel.instrumentation.everos.session import SESSION, Known
from memtrace_otel.instrumentation.everos.variables import (
    Space,
    entry_ref,
    entry_text,
    profile_ref,
    profile_text,
    space_of,
    state_ref,
    value,
)
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.semconv import Action, OpKind, Role

_EPISODE = "episode"
Entry = tuple[Mapping[str, Any], Mapping[str, str]]


def append_entries(call: Call) -> Step:
    """`BaseDailyWriter.append_entries`: one record per entry; the ids that it returns name them."""
    arguments = call.arguments()
    items = cast(Sequence[Entry], arguments.get("items"))
    entries = [(inline, entry_text(sections)) for inline, sections in items]
    space, owner = space_of(arguments), str(arguments.get("scope_id"))
    schema = value(call.instance, "schema")
    scope = space.owner(owner, str(value(schema, "SCOPE_DIR") or ""))
    operation = _open(call, semconv.CREATE_MEMORY, OpKind.CREATE, scope, space, "append_entries")
    sources = [_read_source(operation, inline, text) for inline, text in entries]
    if config().record_origin and operation.origin:
        marked = [({**inline, semconv.RECORD_ORIGIN_KEY: operation.origin}, sections) for inline, sections in items]
        given = {name: value for name, value in arguments.items() if name != "self"}
        call.args, call.kwargs = (), {**given, "items": marked}
    ids = yield
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(ids))
    if len(ids) == 1:
        operation.set(semconv.GEN_AI_MEMORY_RECORD_ID, ids[0].format())
    for id, (inline, text), source in zip(ids, entries, sources, strict=True):
        operation.wrote(
            entry_ref(id.format()),
            action=Action.ADD,
            content=text,
            sources=[source],
            event_time=str(inline.get("timestamp") or ""),
        )


def write_profile(call: Call) -> Step:
    """`ProfileWriter.write`: the profile of a user is overwritten."""
    arguments = call.arguments()
    profile, owner, space = arguments.get("frontmatter"), arguments.get("scope_id"), space_of(arguments)
    if value(type(profile), "PROFILE_FILENAME") != "user.md":
        return
    operation = _open(call, None, OpKind.UPDATE, space.owner(owner), space, "extract_user_profile")
    yield from _overwrite(operation, profile_ref(owner), profile_text(profile))


def write_skill(call: Call) -> Step:
    """`AgentSkillWriter.write_main`: a skill is created or overwritten."""
    arguments = call.arguments()
    name, space = arguments.get("skill_name"), space_of(arguments)
    scope = space.owner(arguments.get("agent_id"), "agent")
    operation = _open(call, semconv.UPSERT_MEMORY, OpKind.UPDATE, scope, space, "extract_agent_skill")
    operation.set(semconv.GEN_AI_MEMORY_RECORD_ID, str(name))
    yield from _overwrite(operation, entry_ref(name), str(arguments.get("body") or "").strip())


def delete_skill(call: Call) -> Step:
    """`AgentSkillWriter.delete_skill`: the directory of a renamed skill goes."""
    arguments = call.arguments()
    name, space = arguments.get("skill_name"), space_of(arguments)
    scope = space.owner(arguments.get("agent_id"), "agent")
    operation = _open(call, semconv.DELETE_MEMORY, OpKind.DELETE, scope, space, "reap_renamed_skill")
    operation.set(semconv.GEN_AI_MEMORY_RECORD_ID, str(name))
    ref = entry_ref(name)
    operation.read(ref, role=Role.PREVIOUS)
    removed = yield
    if removed:
        operation.wrote(ref, action=Action.DELETE)


def _open(call: Call, name: str | None, kind: OpKind, scope: str, space: Space, purpose: str) -> Operation:
    attributes = {semconv.GEN_AI_MEMORY_STORE_ID: space.store} if name else {}
    return call.open(name, kind, scope=scope, purpose=purpose, attributes=attributes)


def _overwrite(operation: Operation, ref: str, text: str) -> Step:
    """The extracted text in, over the version before; a new version out."""
    known = _known(text)
    if known is not None:
        known.read_by(operation)
    replaces = bool(origins().find(operation.scope, ref))
    if replaces:
        operation.read(ref, role=Role.PREVIOUS)
    yield
    operation.wrote(ref, action=Action.UPDATE if replaces else Action.ADD, content=text)


def _known(text: str) -> Known | None:
    session = SESSION.get()
    return session.known.get(text) if session is not None else None


def _read_source(operation: Operation, inline: Mapping[str, Any], text: str) -> int:
    """Read the extracted text that an entry holds; after a restart what is left is the parent that the entry names."""
    known = _known(text)
    if known is not None:
        return known.read_by(operation)
    parent = inline.get("parent_id")
    if not parent:
        return -1
    ref = entry_ref(parent) if inline.get("parent_type") == _EPISODE else state_ref(parent)
    return operation.read(ref)
