"""`MemoryClient` and `AsyncMemoryClient`: calls of the hosted service as CLIENT spans.

The work inside the service is not visible. `gen_ai.memory.store.id` is the project of the API key, else the host.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

from opentelemetry.trace import SpanKind
from opentelemetry.util.types import AttributeValue

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, scope_id, variable_ref
from memtrace_otel.capture.content import said
from memtrace_otel.capture.layout import number
from memtrace_otel.capture.values import text_in
from memtrace_otel.instrumentation.mem0.memory import record_history, record_search
from memtrace_otel.instrumentation.mem0.state import Call, KnownRecord
from memtrace_otel.instrumentation.mem0.values import (
    Record,
    event_time,
    mappings,
    memory_ref,
    owner_scope,
    results,
    turns,
)
from memtrace_otel.instrumentation.mem0.writes import record_deleted
from memtrace_otel.instrumentation.steps import Step, record_filters
from memtrace_otel.semconv import Action, Incomplete, OpKind, RefKind, Role

_PORTS = {"https": 443, "http": 80}


def add(call: Call) -> Step:
    """`add`: messages in, the records that the service reports as stored, changed or deleted out.

    The span is `pending` when the service answers before the records are stored.
    """
    given = _given(call)
    as_is = given.get("infer") is False
    name, kind = (semconv.CREATE_MEMORY, OpKind.CREATE) if as_is else (semconv.UPSERT_MEMORY, OpKind.INGEST)
    operation = _open(call, name, kind, _scope(call, given), purpose="add")
    told_at = event_time(cast("Mapping[str, Any] | None", given.get("metadata")) or given)
    sources: list[int] = []
    for turn in turns(given.get("messages"), operation.origin[33:]):
        sources.append(operation.read(turn.ref, role=Role.MESSAGE, content=turn.content))
        told_at = told_at or turn.time
    result = yield
    stored = [item for item in results(result) if item.get("id")]
    for item in stored:
        action = str(item.get("event") or Action.ADD).upper()
        record = _record(item, operation.scope)
        fed_by = sources if action == Action.ADD else [*sources, operation.read(record.ref, role=Role.PREVIOUS)]
        if action in (Action.ADD, Action.UPDATE, Action.DELETE, Action.NONE):
            operation.wrote(record.ref, action=action, content=record.text, sources=fed_by, event_time=told_at)
            _note(call, record.scope, record.id, is_there=action != Action.DELETE)
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(stored))
    if any(item.get("status") == "PENDING" for item in (*results(result), *mappings([result]))):
        operation.mark(Incomplete.PENDING)


def search(call: Call) -> Step:
    """`search`: the query in, the hits in rank order, the context of the hits out."""
    given = _given(call)
    operation = _open(call, semconv.SEARCH_MEMORY, OpKind.RETRIEVE, _scope(call, given), purpose="search")
    record_search(operation, given.get("query"), given)
    result = yield
    _retrieved(call, operation, results(result))


def get_all(call: Call) -> Step:
    """`get_all`: the listed records (of one page) are the hits."""
    given = _given(call)
    operation = _open(call, semconv.SEARCH_MEMORY, OpKind.RETRIEVE, _scope(call, given), purpose="get_all")
    record_filters(operation, given.get("filters"))
    result = yield
    _retrieved(call, operation, results(result))


def get(call: Call) -> Step:
    """`get`: one record by id."""
    operation = _open_by_id(call, semconv.SEARCH_MEMORY, OpKind.RETRIEVE, purpose="get")
    result = yield
    _retrieved(call, operation, mappings([result]))


def history(call: Call) -> Step:
    """`history`: reads the newest version of one record; the number of older versions is the record count."""
    operation = _open_by_id(call, None, OpKind.RETRIEVE, purpose="history")
    rows = results((yield))
    _learn_owner(call, operation, rows)
    record_history(operation, str(_given(call).get("memory_id")), rows)


def update(call: Call) -> Step:
    """`update`: the given text and the replaced version in, the new version out."""
    yield from _write(call, _open_by_id(call, semconv.UPDATE_MEMORY, OpKind.UPDATE), [_given(call)], Action.UPDATE)


def delete(call: Call) -> Step:
    """`delete`: the last version in, the tombstone out."""
    yield from _write(call, _open_by_id(call, semconv.DELETE_MEMORY, OpKind.DELETE), [_given(call)], Action.DELETE)


def batch_update(call: Call) -> Step:
    """`batch_update`: several records, each from its own text."""
    yield from _write_batch(call, semconv.UPDATE_MEMORY, OpKind.UPDATE, "batch_update", Action.UPDATE)


def batch_delete(call: Call) -> Step:
    """`batch_delete`: the tombstones of several records."""
    yield from _write_batch(call, semconv.DELETE_MEMORY, OpKind.DELETE, "batch_delete", Action.DELETE)


def delete_all(call: Call) -> Step:
    """`delete_all`: tombstones for the records that this process has seen, when all of an owner are deleted."""
    yield from _delete_owner(call, "delete_all")


def delete_users(call: Call) -> Step:
    """`delete_users`: one owner, or every owner, with all memories."""
    yield from _delete_owner(call, "delete_users")


def reset(call: Call) -> Step:
    """`reset`: all memories of the project are deleted."""
    _open(call, semconv.DELETE_MEMORY_STORE, OpKind.DELETE, scope_id(_store(call)), purpose="reset")
    yield
    record_deleted(call, call.patches.records.take(_store(call)), "reset")


def _write_batch(call: Call, name: str, kind: OpKind, purpose: str, action: Action) -> Step:
    """One operation for all records of a batch. The span is `unknown_origin` unless all records have one known
    owner."""
    items = mappings(call.arguments().get("memories"))
    scopes = {call.patches.records.scope_of(str(item.get("memory_id"))) for item in items}
    scope = scopes.pop() if len(scopes) == 1 else ""
    operation = _open(call, name, kind, scope, purpose=purpose)
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(items))
    if not scope:
        operation.mark(Incomplete.UNKNOWN_ORIGIN)
    yield from _write(call, operation, items, action)


def _write(call: Call, operation: Operation, items: Sequence[Mapping[str, Any]], action: Action) -> Step:
    """Record the writes of records given by id, each with its own text and previous version."""
    sources: list[list[int]] = []
    for item in items:
        text, fed_by = _text(item) if action == Action.UPDATE else None, list[int]()
        if text is not None:
            ref = said(variable_ref(RefKind.FACT, text), operation.origin[33:], len(sources) + 1)
            fed_by.append(operation.read(ref, content=text, origin=""))
        id = str(item.get("memory_id"))
        scope = call.patches.records.scope_of(id) or None
        sources.append([*fed_by, operation.read(memory_ref(id), role=Role.PREVIOUS, scope=scope)])
    result = yield
    if len(items) == 1:
        _learn_owner(call, operation, mappings([result]))
    for item, fed_by in zip(items, sources, strict=True):
        id, text = str(item.get("memory_id")), _text(item) if action == Action.UPDATE else None
        operation.wrote(memory_ref(id), action=action, content=text, sources=fed_by)
        _note(call, call.patches.records.scope_of(id) or operation.scope, id, is_there=action != Action.DELETE)


def _delete_owner(call: Call, purpose: str) -> Step:
    given = _given(call)
    named = [key for key in ("user_id", "agent_id", "app_id", "run_id") if given.get(key)]
    scope = _scope(call, given)
    _open(call, semconv.DELETE_MEMORY, OpKind.DELETE, scope or scope_id(_store(call)), purpose=purpose)
    yield
    if len(named) == 1 or (purpose == "delete_users" and not named):  # with more ids, some memories of the owner stay
        record_deleted(call, call.patches.records.take(_store(call), scope=scope), purpose)


def _retrieved(call: Call, operation: Operation, items: Sequence[Mapping[str, Any]]) -> None:
    hits = [_record(item, owner_scope(_store(call), item) or operation.scope) for item in items]
    owners = {hit.scope for hit in hits}
    if len(owners) == 1:
        operation.scope = owners.pop()
    for hit in hits:
        operation.read(hit.ref, role=Role.HIT, content=hit.text, score=hit.score, scope=hit.scope or None)
        _note(call, hit.scope, hit.id)
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(hits))
    operation.context()


def _open(call: Call, name: str | None, kind: OpKind, scope: str, *, purpose: str = "", id: str = "") -> Operation:
    server = urlsplit(str(call.instance.host))
    attributes: dict[str, AttributeValue] = {
        semconv.GEN_AI_MEMORY_STORE_ID: _store(call),
        semconv.GEN_AI_PROVIDER_NAME: call.patches.system,
        semconv.SERVER_ADDRESS: server.hostname or "",
        semconv.SERVER_PORT: server.port or _PORTS.get(server.scheme, 443),
    }
    if id:
        attributes[semconv.GEN_AI_MEMORY_RECORD_ID] = id
    return call.open(
        name,
        kind,
        scope=scope,
        purpose=purpose,
        attributes=attributes,
        span_kind=SpanKind.CLIENT,
        on_error=lambda: _name_error(call.operations),
    )


def _name_error(operations: Sequence[Operation]) -> None:
    """Set the HTTP status as the error type. Mem0 replaces the exception of the HTTP client."""
    error = sys.exception()
    for cause in (error, getattr(error, "__context__", None)):
        status = getattr(getattr(cause, "response", None), "status_code", None)
        for operation in operations if isinstance(status, int) else ():
            operation.error_type = str(status)


def _open_by_id(call: Call, name: str | None, kind: OpKind, purpose: str = "") -> Operation:
    id = str(_given(call).get("memory_id"))
    return _open(call, name, kind, call.patches.records.scope_of(id), purpose=purpose, id=id)


def _learn_owner(call: Call, operation: Operation, items: Sequence[Mapping[str, Any]]) -> None:
    """Set the scope of records given by id, when the service returns the owner."""
    owners = {owner_scope(_store(call), item) for item in items} - {""}
    if not operation.scope and len(owners) == 1:
        operation.scope = owners.pop()
    if not operation.scope:
        operation.mark(Incomplete.UNKNOWN_ORIGIN)


def _store(call: Call) -> str:
    return str(getattr(call.instance, "project_id", None) or call.instance.host)


def _given(call: Call) -> Mapping[str, Any]:
    """The arguments; those of an options object (2.x) are included."""
    arguments = call.arguments()
    options = arguments.get("options")
    return {**options.model_dump(exclude_unset=True), **arguments} if options is not None else arguments


def _scope(call: Call, given: Mapping[str, Any]) -> str:
    """The owner named by the call, or by filters that all must hold."""
    named = {key: value for key, value in given.items() if value is not None}
    waiting = [given.get("filters")]
    while waiting:
        filters = waiting.pop(0)
        if isinstance(filters, Mapping):
            conditions = cast("Mapping[str, Any]", filters)
            named = {**{key: value for key, value in conditions.items() if isinstance(value, str)}, **named}
            waiting += [conditions.get("AND")]
        elif isinstance(filters, list):
            waiting += cast("list[Any]", filters)
    return owner_scope(_store(call), named)


def _note(call: Call, scope: str, id: str, *, is_there: bool = True) -> None:
    """Remember a record that exists, forget a deleted one."""
    (call.patches.records.saw if is_there else call.patches.records.lost)(KnownRecord(_store(call), scope, id))


def _record(item: Mapping[str, Any], scope: str) -> Record:
    return Record(str(item.get("id")), _text(item) or "", scope, number(item.get("score")))


def _text(item: Mapping[str, Any]) -> str | None:
    """The text of a memory in a request or in an answer of the service."""
    return text_in(item, "data")
