"""Graph memory (1.x): relations between entities, stored in a graph beside the vector store.

A relation is a stored record. Graph stores give a relation no id, so the text names the record. For a local graph the
location is part of the name: `memory:relation-<digest of "source -- relationship -- destination">`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, cast

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, variable_ref
from memtrace_otel.instrumentation.mem0.state import (
    Call,
    Known,
    KnownRecord,
    Session,
    provider_session,
    session_of,
)
from memtrace_otel.instrumentation.mem0.values import Record, collection_of, mappings, model_of, owner_scope, turns
from memtrace_otel.instrumentation.mem0.writes import record_deleted
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.instrumentation.store_location import Places
from memtrace_otel.model import make_ref, split_ref
from memtrace_otel.semconv import Action, OpKind, RefKind, Role

PREFIX = "relation-"
_ENDS = ("destination", "target")
_places = Places()


@dataclass(slots=True)
class Work:
    """State of one call of the graph.

    `given`: messages, a query, or the memory whose relations are deleted. `asking`: the operation of the next model
    call, and the name of the prompt. `replies`: the replies of the model. `found`: relations that a search of the graph
    returned.
    """

    session: Session
    scope: str
    given: list[Known] = field(default_factory=list[Known])
    asking: tuple[Operation, str] | None = None
    replies: list[Known] = field(default_factory=list[Known])
    found: dict[str, Record] = field(default_factory=dict[str, Record])

    def known(self, record: Record) -> KnownRecord:
        """A relation as `KnownRecords` keeps it."""
        return KnownRecord(collection_of(self.session.memory), self.scope, record.id)


WORK: ContextVar[Work | None] = ContextVar("memtrace_mem0_graph", default=None)


def relations(found: object, scope: str, graph: object) -> list[Record]:
    """The relations that a graph or Mem0 returned, as records, each once."""
    place = _places.of(graph)
    records: dict[str, Record] = {}
    for item in _flat(found):
        end = next((item[name] for name in _ENDS if name in item), None)
        if end is None or "source" not in item:
            continue
        text = f"{item['source']} -- {item.get('relationship')} -- {end}"
        id = PREFIX + split_ref(variable_ref(RefKind.MEMORY, [text, place] if place else text))[1]
        records.setdefault(id, Record(id, text, scope, item.get("similarity")))
    return list(records.values())


def add_to_graph(call: Call) -> Step:
    """`_add_to_graph`: runs beside `_add_to_vector_store`, on the same messages."""
    session = session_of(call.instance)
    if session is None or not call.instance.enable_graph:
        return
    messages = turns(call.arguments().get("messages"), session.said_in)
    given = [Known(turn.ref, turn.content, Role.MESSAGE, "") for turn in messages]
    filters = _filters(call)
    owner = {**filters, "user_id": filters.get("user_id") or "user"}  # as Mem0 does for memories of an agent or a run
    call.carry(WORK, Work(session, owner_scope(collection_of(session.memory), owner), given))
    yield


def search(call: Call) -> Step:
    """`MemoryGraph.search`: beside the vector search, on the same query."""
    session = provider_session(call, "graph")
    if session is None:
        return
    work = Work(session, _scope(call, session), session.variable_of(call.arguments().get("query")))
    call.carry(WORK, work)
    yield
    session.candidates += work.found.values()


def delete(call: Call) -> Step:
    """`MemoryGraph.delete`: the relations in the text of a memory that is being deleted."""
    session = provider_session(call, "graph")
    if session is None:
        return
    call.carry(WORK, Work(session, _scope(call, session), session.variable_of(call.arguments().get("data"))))
    yield


def delete_all(call: Call) -> Step:
    """`MemoryGraph.delete_all`: tombstones for the relations that this process has seen, when all relations of an owner
    are deleted.

    Nothing is recorded for the relations of one agent or run: a relation may belong to several of them.
    """
    session = provider_session(call, "graph")
    filters = _filters(call)
    if session is None or filters.get("agent_id") or filters.get("run_id"):
        return
    yield
    store = collection_of(session.memory)
    deleted = call.patches.records.take(store, scope=owner_scope(store, filters), prefix=PREFIX)
    record_deleted(call, deleted, "delete_relations")


def extract_entities(call: Call) -> Step:
    """`_retrieve_nodes_from_data`: a model names the entities of a text."""
    yield from _ask(call, OpKind.EXTRACT, "extract_entities", "mem0.graph_entities")


def extract_relations(call: Call) -> Step:
    """`_establish_nodes_relations_from_data`: a model relates the entities of a text."""
    yield from _ask(call, OpKind.EXTRACT, "extract_relations", "mem0.graph_relations")


def decide_deletions(call: Call) -> Step:
    """`_get_delete_entities_from_search_output`: a model names the found relations that are no longer true."""
    yield from _ask(call, OpKind.DECIDE, "delete_relations", "mem0.graph_deletion")


def search_graph(call: Call) -> Step:
    """`_search_graph_db`: relations of similar entities. They are candidates when a query asked for them."""
    work = _work(call)
    if work is None:
        return
    if any(known.role == Role.QUERY for known in work.given):
        _found(work, (yield))
        return
    operation = call.open(None, OpKind.RETRIEVE, scope=work.scope, purpose="search_graph")
    for known in work.replies:
        known.read_by(operation, Role.QUERY)
    _found(work, (yield))
    work.session.read_all(operation, list(work.found.values()), Role.HIT)


def delete_relations(call: Call) -> Step:
    """`_delete_entities`: the tombstones of the deleted relations."""
    work = _work(call)
    if work is None or not call.arguments().get("to_be_deleted"):
        return
    operation, sources = _open_write(call, work, semconv.DELETE_MEMORY, OpKind.DELETE)
    deleted = relations((yield), work.scope, call.instance)
    for record in deleted:
        previous = work.session.read(operation, record, Role.PREVIOUS)
        operation.wrote(record.ref, action=Action.DELETE, sources=[*sources, previous])
        work.found.pop(record.id, None)
        call.patches.records.lost(work.known(record))
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(deleted))


def add_relations(call: Call) -> Step:
    """`_add_entities`: new relations; a relation that already exists is unchanged (NONE)."""
    work = _work(call)
    if work is None or not call.arguments().get("to_be_added"):
        return
    operation, sources = _open_write(call, work, semconv.CREATE_MEMORY, OpKind.CREATE)
    stored = relations((yield), work.scope, call.instance)
    for record in stored:
        known = work.known(record)
        operation.wrote(
            record.ref,
            action=Action.NONE if record.id in work.found or known in call.patches.records else Action.ADD,
            content=record.text,
            sources=sources,
            event_time=work.session.event_time,
        )
        call.patches.records.saw(known)
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(stored))


def generate_response(call: Call) -> Step:
    """A call of the graph's language model: prompt in, reply out, on the operation that asks."""
    work = WORK.get()
    if work is None or work.asking is None or getattr(work.session.memory.graph, "llm", None) is not call.instance:
        return
    operation, prompt = work.asking
    messages = mappings(call.arguments().get("messages"))
    system = next((str(message.get("content")) for message in messages if message.get("role") == "system"), "")
    operation.read(make_ref(RefKind.PROMPT, prompt), role=Role.PROMPT, content=system)
    for name, value in model_of(call.instance).items():
        operation.set(name, value)
    reply = yield
    ref = variable_ref(RefKind.COMPLETION, reply)
    operation.wrote(ref, content=reply)
    work.replies.append(Known(ref, reply, origin=operation.origin))


def _ask(call: Call, kind: OpKind, purpose: str, prompt: str) -> Step:
    work = _work(call)
    if work is None:
        return
    operation = call.open(None, kind, scope=work.scope, purpose=purpose)
    for known in work.given:
        known.read_by(operation)
    if kind == OpKind.DECIDE:
        work.session.read_all(operation, list(work.found.values()), Role.CANDIDATE)
    else:
        for known in work.replies[:1]:
            known.read_by(operation)
    call.carry(WORK, replace(work, asking=(operation, prompt)))
    yield


def _open_write(call: Call, work: Work, name: str, kind: OpKind) -> tuple[Operation, list[int]]:
    """Open the write of relations; its source is the reply that named them."""
    store = collection_of(work.session.memory)
    attributes = {semconv.GEN_AI_MEMORY_STORE_ID: store}
    operation = call.open(name, kind, scope=work.scope, purpose="relations", attributes=attributes)
    named = work.replies[1:2] if kind == OpKind.CREATE else work.replies[-1:]
    return operation, [known.read_by(operation) for known in named]


def _work(call: Call) -> Work | None:
    work = WORK.get()
    return work if work is not None and work.session.memory.graph is call.instance else None


def _found(work: Work, rows: object) -> None:
    work.found.update((record.id, record) for record in relations(rows, work.scope, work.session.memory.graph))


def _scope(call: Call, session: Session) -> str:
    return owner_scope(collection_of(session.memory), _filters(call)) or session.scope


def _filters(call: Call) -> Mapping[str, Any]:
    filters = call.arguments().get("filters")
    return cast("Mapping[str, Any]", filters if isinstance(filters, Mapping) else {})


def _flat(found: object) -> Iterable[Mapping[str, Any]]:
    if isinstance(found, Mapping):
        yield cast("Mapping[str, Any]", found)
    elif isinstance(found, list | tuple):
        for item in cast(list[object], found):
            yield from _flat(item)
