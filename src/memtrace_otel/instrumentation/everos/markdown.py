"""Markdown files, which hold the memories of EverOS: the writers, and the cascade from files to the index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

from opentelemetry.context import Context

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, config, origins
from memtrace_otel.capture.tracing import context_of
from memtrace_otel.instrumentation.everos.state import SESSION, Call, Known
from memtrace_otel.instrumentation.everos.values import (
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
from memtrace_otel.model import is_origin, split_origin
from memtrace_otel.semconv import Action, OpKind, Role

_EPISODE = "episode"
Entry = tuple[Mapping[str, Any], Mapping[str, str]]


def append_entries(call: Call) -> Step:
    """`BaseDailyWriter.append_entries`: one record per entry, named by the returned ids."""
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
    """`AgentSkillWriter.delete_skill`: the directory of a renamed skill is deleted."""
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
    """The extracted text and the old version in, a new version out."""
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
    """Read the extracted text of an entry; after a restart only the named parent of the entry is known."""
    known = _known(text)
    if known is not None:
        return known.read_by(operation)
    parent = inline.get("parent_id")
    if not parent:
        return -1
    ref = entry_ref(parent) if inline.get("parent_type") == _EPISODE else state_ref(parent)
    return operation.read(ref)


_DEFAULT = {"default_app": "default", "default_project": "default"}


@dataclass(slots=True)
class File:
    """A changed markdown file: `<app>/<project>/users|agents/<owner>/...`."""

    call: Call
    path: str
    space: Space
    owner: str
    scope: str
    operation: Operation | None = None


_FILE: ContextVar[File | None] = ContextVar("memtrace_everos_file", default=None)


def handle_changed(call: Call) -> Step:
    """`BaseDailyLogHandler.handle_added_or_modified`: a written file; without changed entries nothing is recorded."""
    file = _file(call)
    if file is not None:
        call.carry(_FILE, file)
        yield


def diff_entries(call: Call) -> Step:
    """`_diff_entries`: the entries to embed and index; a changed entry with an index row was edited by a person.

    A new entry without a known writer is left out, because another process wrote the entry.
    """
    file = _FILE.get()
    if file is None:
        return
    arguments = call.arguments()
    known = {row.entry_id for row in cast(Sequence[Any], arguments.get("existing") or ())}
    changed, _ = yield
    for entry in changed:
        _adopt(file.scope, entry_ref(entry.entry_id), entry.structured.inline.get(semconv.RECORD_ORIGIN_KEY))
    changed = [entry for entry in changed if entry.entry_id in known or _has_writer(file.scope, entry.entry_id)]
    if not changed:
        return
    refs = [entry_ref(entry.entry_id) for entry in changed]
    operation = file.operation = file.call.open(
        None, OpKind.INDEX, scope=file.scope, purpose="cascade", parent=_parent(file.scope, refs)
    )
    for entry, ref in zip(changed, refs, strict=True):
        text = entry_text(entry.structured.sections)
        if entry.entry_id not in known:
            operation.read(ref, content=text)
            continue
        read = operation.read(ref, role=Role.PREVIOUS)
        operation.wrote(ref, action=Action.UPDATE, content=text, sources=[read])


def apply_changes(call: Call) -> Step:
    """`_apply_lance_changes`: written rows and deleted rows; the entries of deleted rows get tombstones."""
    file = _FILE.get()
    if file is None:
        return
    arguments = call.arguments()
    gone = [str(id) for id in cast(Sequence[object], arguments.get("to_delete_ids") or ())]
    operation = _open_delete(call, file, gone)
    yield
    indexed = call.patches.indexed(file.path)
    indexed.update(row.entry_id for row in cast(Sequence[Any], arguments.get("to_upsert") or ()))
    _delete(operation, indexed, gone)


def handle_deleted(call: Call) -> Step:
    """`handle_deleted`: a deleted file; the entries that this process has indexed get tombstones."""
    file = _file(call)
    if file is None:
        return
    indexed = call.patches.indexed(file.path)
    gone = sorted(indexed)
    operation = _open_delete(call, file, gone)
    yield
    _delete(operation, indexed, gone)


def handle_profile(call: Call) -> Step:
    """`UserProfileHandler.handle_added_or_modified`: a changed profile is indexed."""
    file = _file(call)
    if file is not None:
        outcome = yield
        _indexed_whole(call, file, profile_ref(file.owner), outcome)


def handle_skill(call: Call) -> Step:
    """`AgentSkillHandler.handle_added_or_modified`: a changed skill is indexed."""
    file = _file(call)
    if file is not None:
        outcome = yield
        name = next((part for part in file.path.split("/") if part.startswith("skill_")), "")
        _indexed_whole(call, file, entry_ref(name.removeprefix("skill_")), outcome)


def _file(call: Call) -> File | None:
    path = str(call.arguments().get("md_path") or "")
    parts = path.split("/")
    if len(parts) < 4:
        return None
    space = Space(_DEFAULT.get(parts[0], parts[0]), _DEFAULT.get(parts[1], parts[1]))
    return File(call, path, space, parts[3], space.owner(parts[3], parts[2]))


def _indexed_whole(call: Call, file: File, ref: str, outcome: Any) -> None:
    if value(outcome, "upserted") and origins().find(file.scope, ref):
        call.open(None, OpKind.INDEX, scope=file.scope, purpose="cascade", parent=_parent(file.scope, [ref])).read(ref)


def _open_delete(call: Call, file: File, gone: Sequence[str]) -> Operation | None:
    if not gone:
        return None
    refs = [entry_ref(id) for id in gone]
    operation = call.open(
        semconv.DELETE_MEMORY,
        OpKind.DELETE,
        scope=file.scope,
        purpose="cascade",
        attributes={semconv.GEN_AI_MEMORY_STORE_ID: file.space.store},
        parent=None if file.operation is not None else _parent(file.scope, refs),
    )
    for ref in refs:
        operation.read(ref, role=Role.PREVIOUS)
    return operation


def _delete(operation: Operation | None, indexed: set[str], gone: Sequence[str]) -> None:
    if operation is not None:
        for number, id in enumerate(gone):
            operation.wrote(entry_ref(id), action=Action.DELETE, sources=[number])
        indexed.difference_update(gone)


def _has_writer(scope: str, entry_id: object) -> bool:
    return bool(origins().find(scope, entry_ref(entry_id)))


def _parent(scope: str, refs: Iterable[str]) -> Context | None:
    """The context of the last writer, when all writers of these entries are in one trace.

    The background worker has no context of its own. Without a common trace the index operation has links only.
    """
    writers = [origin for ref in refs if (origin := origins().find(scope, ref))]
    traces = {split_origin(origin)[0] for origin in writers}
    return context_of(writers[-1]) if len(traces) == 1 else None


def _adopt(scope: str, ref: str, origin: object) -> None:
    """Use the origin that another process wrote into the entry (MEMTRACE_RECORD_ORIGIN)."""
    if isinstance(origin, str) and is_origin(origin) and not origins().find(scope, ref):
        origins().wrote(scope, ref, origin)
