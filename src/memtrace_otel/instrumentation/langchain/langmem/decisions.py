"""What `MemoryStoreManager` does with an extraction: which record each fact adds, changes or removes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from memtrace_otel.instrumentation.langchain.documents import Known
from memtrace_otel.instrumentation.langchain.langgraph.store import WRITER
from memtrace_otel.instrumentation.langchain.langmem.calls import Call
from memtrace_otel.instrumentation.langchain.langmem.session import SESSION, statement
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.semconv import Action, OpKind, Role


def sort_results(call: Call) -> Step:
    """`_sort_results`: under which ids the model is shown the records that the searches found."""
    session, writer = SESSION.get(), WRITER.get()
    shown = yield
    if session is None or writer is None:
        return
    for id, item in cast(Mapping[str, Any], shown).items():
        session.show(id, item, writer.scopes.get(tuple(item.namespace), writer.scope))


def decide(call: Call) -> Step:
    """`_apply_manager_output`: facts and records in, one output per decision; a record left alone is NONE."""
    session, writer = SESSION.get(), WRITER.get()
    if session is None or writer is None:
        return
    arguments = call.arguments()
    made = [statement(memory) for memory in cast(Sequence[Any], arguments.get("manager_output") or ())]
    before = {row.id: row for row in map(statement, cast(Sequence[Any], arguments.get("store_based") or ()))}
    operation = call.open(None, OpKind.DECIDE, scope=writer.scope, purpose="MemoryStoreManager._apply_manager_output")
    yield
    for fact in made:
        stored, known = session.stored.get(fact.id), session.facts.get(fact.id)
        shown = before.get(fact.id)
        sources = [known.read_by(operation, fact.text)] if known else []
        if stored is not None:
            sources.append(stored.read_by(operation, shown.text if shown else "", Role.CANDIDATE))
        if known is None or known.ref != fact.ref:
            if stored is not None:
                operation.wrote(stored.ref, action=Action.NONE, content=fact.text, sources=sources)
            continue
        action = Action.DELETE if fact.removes else Action.UPDATE if stored is not None else Action.ADD
        operation.wrote(fact.ref, action=action, content=fact.text, sources=sources)
        session.facts[fact.id] = Known(fact.ref, operation.origin)
