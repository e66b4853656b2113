"""`MemoryClient` and `AsyncMemoryClient`: the hosted service as CLIENT spans.

What the service does inside is not seen. `gen_ai.memory.store.id` is the project of the API key, without one the host.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

from opentelemetry.trace import SpanKind
from opentelemetry.util.types import AttributeValue

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, origins, scope_id, variable_ref
from memtrace_otel.capture.content import said
from memtrace_otel.capture.layout import number
from memtrace_otel.capture.values import text_in
from memtrace_otel.instrumentation.mem0.calls import Call
from memtrace_otel.instrumentation.mem0.filters import record_filters
from memtrace_otel.instrumentation.mem0.known_records import KnownRecord
from memtrace_otel.instrumentation.mem0.public import read_history
from memtrace_otel.instrumentation.mem0.variables import (
    Record,
    event_time,
    memory_ref,
    owner_in,
    results,
    turns,
)
from memtrace_otel.instrumentation.mem0.writes import gone
from memtrace_otel.instrumentation.steps import Step, StepFunction
from memtrace_otel.semconv import Action, Incomplete, OpKind, RefKind, Role

_PORTS = {"https": 443, "http": 80}


def add(call: Call) -> Step:
    """`add`: messages in; out what the service says it stored, changed or deleted. It may answer before it knows."""
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
            _note(call, record, is_there=action != Action.DELETE)
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(stored))
    answers = [*results(result), *results([result])]
    if any(item.get("status") == "PENDING" for item in answers):
        operation.mark(Incomplete.PENDING)


def search(call: Call) -> Step:
    """`search`: query in, hits in rank order, the context they make out."""
    given = _given(call)
    operation = _open(call, semconv.SEARCH_MEMORY, OpKind.RETRIEVE, _scope(call, given), purpose="search")
    query = given.get("query")
    operation.read(variable_ref(RefKind.QUERY, query), role=Role.QUERY, content=query)
    if operation.captures_content and isinstance(query, str):
        operation.set(semconv.GEN_AI_MEMORY_QUERY_TEXT, query)
    if isinstance(given.get("top_k"), int):
        operation.set(semconv.GEN_AI_RETRIEVAL_TOP_K, given["top_k"])
    threshold = number(given.get("threshold"))
    if threshold is not None:
        operation.set(semconv.RETRIEVAL_THRESHOLD, threshold)
    record_filters(operation, given.get("filters"))
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
    _retrieved(call, operation, results([result]))


def history(call: Call) -> Step:
    """`history`: reads the newest version of one record; the older ones are named by their count only."""
    operation = _open_by_id(call, None, OpKind.RETRIEVE, purpose="history")
    rows = results((yield))
    _tell_owner(call, operation, rows)
    read_history(operation, str(_given(call).get("memory_id")), rows)


def update(call: Call) -> Step:
    """`update`: the given text and the replaced version in, the new version out."""
    given = _given(call)
    operation = _open_by_id(call, semconv.UPDATE_MEMORY, OpKind.UPDATE)
    yield from _update(call, operation, [given])


def batch_update(call: Call) -> Step:
    """`batch_update`: the same for several records, each from its own text."""
    changed = _batch(call)
    operation = _open(call, semconv.UPDATE_MEMORY, OpKind.UPDATE, _scope_of(call, changed), purpose="batch_update")
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(changed))
    yield from _update(call, operation, changed)


def delete(call: Call) -> Step:
    """`delete`: the last version in, its tombstone out."""
    operation = _open_by_id(call, semconv.DELETE_MEMORY, OpKind.DELETE)
    yield from _delete(call, operation, [_given(call)])


def batch_delete(call: Call) -> Step:
    """`batch_delete`: the same for several records."""
    deleted = _batch(call)
    operation = _open(call, semconv.DELETE_MEMORY, OpKind.DELETE, _scope_of(call, deleted), purpose="batch_delete")
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(deleted))
    yield from _delete(call, operation, deleted)


def delete_all(call: Call) -> Step:
    """`delete_all`: tombstones for the records known here, when all of an owner go."""
    yield from _delete_owner(call, "delete_all")


def delete_users(call: Call) -> Step:
    """`delete_users`: an owner, or every one, with all memories."""
    yield from _delete_owner(call, "delete_users")


def reset(call: Call) -> Step:
    """`reset`: everything of the project goes."""
    _open(call, semconv.DELETE_MEMORY_STORE, OpKind.DELETE, scope_id(_store(call)), purpose="reset")
    yield
    gone(call, call.patches.records.take(_store(call)), "reset")


def create_memory_export(call: Call) -> Step:
    """`create_memory_export`: a model of the service is to bring memories into the form of a schema."""
    given = _given(call)
    operation = _open(call, None, OpKind.OTHER, _scope(call, given), purpose="create_memory_export")
    schema = given.get("schema")
    operation.read(variable_ref(RefKind.PROMPT, schema), role=Role.PROMPT, content=schema)
    record_filters(operation, given.get("filters"))
    yield


def get_memory_export(call: Call) -> Step:
    """`get_memory_export`: what was made of the memories, as a context; the service does not say of which ones."""
    yield from _made_of_memories(call, "get_memory_export")


def get_summary(call: Call) -> Step:
    """`get_summary`: the same for the summary of the memories."""
    yield from _made_of_memories(call, "get_summary")


def get_profile(call: Call) -> Step:
    """`get_profile`: the same for the profile of a user."""
    yield from _made_of_memories(call, "get_profile")


METHODS: dict[str, StepFunction] = {
    "add": add,
    "search": search,
    "get": get,
    "get_all": get_all,
    "history": history,
    "update": update,
    "batch_update": batch_update,
    "delete": delete,
    "batch_delete": batch_delete,
    "delete_all": delete_all,
    "delete_users": delete_users,
    "reset": reset,
    "create_memory_export": create_memory_export,
    "get_memory_export": get_memory_export,
    "get_summary": get_summary,
    "get_profile": get_profile,  # 2.x
}
POINTS = {
    "mem0.client.main": {
        f"{name}.{method}": step for name in ("MemoryClient", "AsyncMemoryClient") for method, step in METHODS.items()
    }
}


def _update(call: Call, operation: Operation, changed: Sequence[Mapping[str, Any]]) -> Step:
    sources: list[list[int]] = []
    for item in changed:
        text = _text(item)
        ref = said(variable_ref(RefKind.FACT, text), operation.origin[33:], len(sources) + 1)
        fed_by = [] if text is None else [operation.read(ref, content=text, origin="")]
        sources.append([*fed_by, _read_previous(call, operation, item)])
    result = yield
    _tell_owner(call, operation, results([result]))
    for item, fed_by in zip(changed, sources, strict=True):
        _note_owned(call, operation, item, alone=len(changed) == 1)
        operation.wrote(memory_ref(item.get("memory_id")), action=Action.UPDATE, content=_text(item), sources=fed_by)


def _delete(call: Call, operation: Operation, deleted: Sequence[Mapping[str, Any]]) -> Step:
    refs = [memory_ref(item.get("memory_id")) for item in deleted]
    previous = [_read_previous(call, operation, item) for item in deleted]
    result = yield
    _tell_owner(call, operation, results([result]))
    for item, ref, index in zip(deleted, refs, previous, strict=True):
        operation.wrote(ref, action=Action.DELETE, sources=[index])
        _note_owned(call, operation, item, alone=len(deleted) == 1, is_there=False)


def _delete_owner(call: Call, purpose: str) -> Step:
    given = _given(call)
    named = [key for key in ("user_id", "agent_id", "app_id", "run_id") if given.get(key)]
    scope = _scope(call, given)
    _open(call, semconv.DELETE_MEMORY, OpKind.DELETE, scope or scope_id(_store(call)), purpose=purpose)
    yield
    if len(named) == 1 or (purpose == "delete_users" and not named):  # else only some of the owner's memories went
        gone(call, call.patches.records.take(_store(call), scope=scope), purpose)


def _made_of_memories(call: Call, purpose: str) -> Step:
    given = _given(call)
    owner = {"user_id": given.get("entity_id"), **given}  # a profile is of a user
    operation = _open(call, None, OpKind.RETRIEVE, _scope(call, owner), purpose=purpose)
    record_filters(operation, given.get("filters"))
    made = yield
    operation.mark(Incomplete.UNKNOWN_ORIGIN)
    operation.context(made)


def _retrieved(call: Call, operation: Operation, items: Sequence[Mapping[str, Any]]) -> None:
    hits = [_record(item, owner_in(_store(call), item) or operation.scope) for item in items]
    owners = {hit.scope for hit in hits}
    if len(owners) == 1:
        operation.scope = owners.pop()
    for hit in hits:
        operation.read(hit.ref, role=Role.HIT, content=hit.text, score=hit.score, scope=hit.scope or None)
        _note(call, hit)
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
    """An HTTP status says what failed; Mem0 turns the error of the HTTP client into one of its own."""
    error = sys.exception()
    for cause in (error, getattr(error, "__context__", None)):
        status = getattr(getattr(cause, "response", None), "status_code", None)
        for operation in operations if isinstance(status, int) else ():
            operation.error_type = str(status)


def _open_by_id(call: Call, name: str | None, kind: OpKind, purpose: str = "") -> Operation:
    id = str(_given(call).get("memory_id"))
    return _open(call, name, kind, call.patches.records.scope_of(id), purpose=purpose, id=id)


def _tell_owner(call: Call, operation: Operation, items: Sequence[Mapping[str, Any]]) -> None:
    """The scope of records that only their ids named, where the service says whose they are."""
    owners = {owner_in(_store(call), item) for item in items} - {""}
    if not operation.scope and len(owners) == 1:
        operation.scope = owners.pop()
    if not operation.scope:
        operation.mark(Incomplete.UNKNOWN_ORIGIN)


def _store(call: Call) -> str:
    return str(getattr(call.instance, "project_id", None) or call.instance.host)


def _given(call: Call) -> Mapping[str, Any]:
    """The arguments, with those of an options object (2.x) among them."""
    arguments = call.arguments()
    options = arguments.get("options")
    return {**options.model_dump(exclude_unset=True), **arguments} if options is not None else arguments


def _scope(call: Call, given: Mapping[str, Any]) -> str:
    """The owner named by the call, or by filters that all hold at once."""
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
    return owner_in(_store(call), named)


def _batch(call: Call) -> list[Mapping[str, Any]]:
    return results(call.arguments().get("memories"))


def _scope_of(call: Call, items: Sequence[Mapping[str, Any]]) -> str:
    """The owner of several records, as far as they are known."""
    scopes = {call.patches.records.scope_of(str(item.get("memory_id"))) for item in items} - {""}
    return scopes.pop() if len(scopes) == 1 else ""


def _note(call: Call, record: Record, *, is_there: bool = True) -> None:
    known = KnownRecord(_store(call), record.scope, record.id)
    (call.patches.records.saw if is_there else call.patches.records.lost)(known)


def _read_previous(call: Call, operation: Operation, item: Mapping[str, Any]) -> int:
    """The version of its owner, who need not be that of the others of a batch."""
    scope = call.patches.records.scope_of(str(item.get("memory_id")))
    return operation.read(memory_ref(item.get("memory_id")), role=Role.PREVIOUS, scope=scope or None)


def _note_owned(
    call: Call, operation: Operation, item: Mapping[str, Any], *, alone: bool, is_there: bool = True
) -> None:
    """Note a record that only its id named, where it is known whose it is: of a batch, not that of the others."""
    id = str(item.get("memory_id"))
    scope = call.patches.records.scope_of(id) or (operation.scope if alone else "")
    if not scope:
        operation.mark(Incomplete.UNKNOWN_ORIGIN)
        return
    _note(call, Record(id, "", scope), is_there=is_there)
    if scope != operation.scope:  # a batch of several owners: each finds its own
        origins().wrote(scope, memory_ref(id), operation.origin, deleted=not is_there)


def _record(item: Mapping[str, Any], scope: str) -> Record:
    return Record(str(item.get("id")), _text(item) or "", scope, number(item.get("score")))


def _text(item: Mapping[str, Any]) -> str | None:
    """The text of a memory as the service or a caller words it; `data` may hold it, too."""
    return text_in(item, "data")
