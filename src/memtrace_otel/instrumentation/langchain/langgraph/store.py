"""Long-term stores: each operation of a batch is one memory operation.

Every method of a store calls `batch` or `abatch`. A namespace is the owner of its records, `namespace/key` their id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, cast

from opentelemetry.util.types import AttributeValue

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, recall, variable_ref
from memtrace_otel.capture.content import message_refs
from memtrace_otel.capture.guard import note_drop
from memtrace_otel.capture.values import as_text, text_in
from memtrace_otel.instrumentation.langchain.documents import Known
from memtrace_otel.instrumentation.langchain.langgraph.state import Call
from memtrace_otel.instrumentation.langchain.records import answers_of
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.model import make_ref
from memtrace_otel.semconv import OpKind, RefKind, Role

PUT, GET, SEARCH = "put", "get", "search"
_NAMES = {"PutOp": PUT, "GetOp": GET, "SearchOp": SEARCH}
_METHODS = {"aput": PUT, "adelete": PUT, "aget": GET, "asearch": SEARCH}


@dataclass(frozen=True, slots=True)
class StoreOp:
    """One operation on a store. A put with `value` None deletes; `namespace` of a search is a prefix."""

    action: str
    namespace: tuple[str, ...]
    key: str = ""
    value: Mapping[str, Any] | None = None
    query: str = ""
    limit: int | None = None

    @property
    def owner(self) -> str:
        """The namespace as one text."""
        return "/".join(self.namespace)


@dataclass(slots=True)
class Writer:
    """A library that writes through a store and knows the sources of a write (langmem). Searches are its steps.

    `sources` returns None for a write with unknown sources. `scope` becomes that of the first operation, `scopes` those
    of the found namespaces.
    """

    sources: Callable[[StoreOp], Sequence[Known] | None]
    scope: str = ""
    scopes: dict[tuple[str, ...], str] = field(default_factory=dict[tuple[str, ...], str])


WRITER: ContextVar[Writer | None] = ContextVar("memtrace_langgraph_writer", default=None)
_under_way: ContextVar[frozenset[str]] = ContextVar("memtrace_langgraph_store", default=frozenset())
"""Actions of the store call around this one."""


def batch(call: Call) -> Step:
    """`batch`, `abatch`: sibling operations. A call by the store's own task was recorded when it was queued."""
    if _is_queue(call.instance):
        return
    given = call.arguments().get("ops")
    if not isinstance(given, list | tuple):
        if not _under_way.get():
            note_drop("langgraph.batch:iterator")  # the store's to consume
        return
    operations = [_operation(op) for op in cast(Sequence[object], given)]
    yield from _observe(call, operations)


def queued(call: Call) -> Step:
    """A method that queues its operation: recorded here, in the context of the caller."""
    arguments = call.arguments()
    namespace = arguments.get("namespace", arguments.get("namespace_prefix", ()))
    asked = StoreOp(
        _METHODS[call.wrapped.__name__],
        tuple(str(part) for part in namespace),
        str(arguments.get("key") or ""),
        arguments.get("value"),
        arguments.get("query") or "",
        arguments.get("limit"),
    )
    yield from _observe(call, [asked], alone=True)


def text_of(value: object) -> str:
    """The text of a stored value: its own, that of its `data` or `value`, or its only text; else the value as JSON."""
    said, only, depth = text_in(value, "data", "value"), value, 3
    while said is None and depth and isinstance(only, Mapping) and len(cast("Mapping[object, object]", only)) == 1:
        (only,) = cast("Mapping[object, object]", only).values()
        said, depth = text_in(only, "data", "value"), depth - 1
    return as_text(value)[0] if said is None else said


def memory_ref(namespace: Sequence[str], key: str) -> str:
    """`memory:<namespace/key>`."""
    return make_ref(RefKind.MEMORY, "/".join((*namespace, key)))


def _is_queue(store: object) -> bool:
    task = getattr(store, "_task", None)
    try:
        return task is not None and task is asyncio.current_task()
    except RuntimeError:  # no loop runs in this thread
        return False


def _operation(op: object) -> StoreOp | None:
    action = _NAMES.get(type(op).__name__)
    if action is None:
        return None
    namespace = getattr(op, "namespace_prefix" if action == SEARCH else "namespace", ())
    return StoreOp(
        action,
        tuple(str(part) for part in namespace),
        str(getattr(op, "key", "") or ""),
        getattr(op, "value", None),
        getattr(op, "query", None) or "",
        getattr(op, "limit", None),
    )


def _observe(call: Call, asked: Sequence[StoreOp | None], *, alone: bool = False) -> Generator[None, Any, None]:
    actions, around = frozenset(op.action for op in asked if op is not None), _under_way.get()
    if around and (around != frozenset({PUT}) or PUT in actions):
        return  # a step of the store, such as a look-up by the embedder during a write
    call.carry(_under_way, actions)
    last = {(op.namespace, op.key): op for op in asked if op is not None and op.action == PUT}
    wanted = [op if op is None or op.action != PUT or last[op.namespace, op.key] is op else None for op in asked]
    turn = recall.turn_here()
    inner = bool(around) or WRITER.get() is not None
    opened = [_open(call, op, inner=inner, current=len(asked) == 1) if op is not None else None for op in wanted]
    returned = yield
    results = cast(Sequence[Any], [returned] if alone else returned)
    done = [row for row in zip(wanted, opened, results, strict=True) if row[0] is not None]
    for op, operation, result in sorted(done, key=lambda row: cast(StoreOp, row[0]).action == PUT):  # reads come first
        if op is None or operation is None:
            continue
        if op.action == PUT:
            _written(call, op, operation, turn)
        else:
            _retrieved(call, op, operation, result)


def _open(call: Call, op: StoreOp, *, inner: bool, current: bool) -> Operation:
    scope, writer = call.patches.scope_of(call.instance, op.owner), WRITER.get()
    if writer is not None and not writer.scope:
        writer.scope = scope
    attributes: dict[str, AttributeValue] = {semconv.GEN_AI_MEMORY_STORE_ID: type(call.instance).__name__}
    if op.key:
        attributes[semconv.GEN_AI_MEMORY_RECORD_ID] = "/".join((*op.namespace, op.key))
    purpose = f"store.{'delete' if op.action == PUT and op.value is None else op.action}"
    name: str | None
    if op.action != PUT:
        name, kind = (None if inner else semconv.SEARCH_MEMORY), OpKind.RETRIEVE
    elif op.value is None:
        name, kind = semconv.DELETE_MEMORY, OpKind.DELETE
    else:
        replaces = call.patches.records.holds(scope, memory_ref(op.namespace, op.key))
        name, kind = semconv.UPSERT_MEMORY, OpKind.UPDATE if replaces else OpKind.CREATE
    return call.open(name, kind, scope=scope, purpose=purpose, attributes=attributes, current=current)


def _written(call: Call, op: StoreOp, operation: Operation, turn: recall.Turn | None) -> None:
    ref, writer = memory_ref(op.namespace, op.key), WRITER.get()
    text = text_of(op.value)
    known = writer.sources(op) if writer is not None else None
    if known is not None:
        sources = [variable.read_by(operation, text) for variable in known]
    else:
        sources = _read_given(operation, text, turn) if text else []
    if op.value is None:
        call.patches.records.delete(operation, ref, sources)
    else:
        call.patches.records.write(operation, ref, text, sources)


def _read_given(operation: Operation, text: str, turn: recall.Turn | None) -> list[int]:
    """Read the source of a text that a program stores: an answer of this turn with its question, a tool call with the
    text, or a message. An equal text of another put is another message."""
    answer = next(iter(answers_of(turn, text)), None)
    said = answer or (turn.call_with(text) if turn else None)
    if said is None:
        [ref] = message_refs([(text, None)], operation.origin[33:])
        return [operation.read(ref, role=Role.MESSAGE, content=text)]
    read = [operation.read(said.ref, origin=said.origin, content=said.text)]
    if answer is not None and answer.question:
        # As a message, not as a query: queries of other answers must not be in the slice of an answer.
        [ref] = message_refs([(answer.question, None)], answer.origin[33:])
        read.append(operation.read(ref, role=Role.MESSAGE, content=answer.question))
    return read


def _retrieved(call: Call, op: StoreOp, operation: Operation, result: Any) -> None:
    if op.query:
        operation.read(variable_ref(RefKind.QUERY, op.query), role=Role.QUERY, content=op.query)
        if operation.captures_content:
            operation.set(semconv.GEN_AI_MEMORY_QUERY_TEXT, op.query)
    if op.limit is not None and op.action == SEARCH:
        operation.set(semconv.GEN_AI_RETRIEVAL_TOP_K, op.limit)
    if op.action == GET and result is None:
        call.patches.records.missed(operation.scope, memory_ref(op.namespace, op.key))
    items = cast(list[Any], result if isinstance(result, list) else [result] if result is not None else [])
    scopes = [call.patches.scope_of(call.instance, "/".join(item.namespace)) for item in items]
    writer = WRITER.get()
    if writer is not None:
        writer.scopes.update({tuple(item.namespace): scope for item, scope in zip(items, scopes, strict=True)})
    if len(set(scopes)) == 1:  # a search names a prefix, the record its owner
        operation.scope = scopes[0]
    for item, scope in zip(items, scopes, strict=True):
        operation.read(
            memory_ref(item.namespace, item.key),
            role=Role.HIT,
            content=text_of(item.value),
            score=getattr(item, "score", None),
            scope=scope,
            verbatim=True,
        )
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(items))
    operation.context()
