"""The background strategies: each run is a session of its own, with extraction, clustering and failures."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

from opentelemetry import propagate
from opentelemetry.trace import Status, StatusCode

from memtrace_otel import semconv
from memtrace_otel.capture import variable_ref
from memtrace_otel.instrumentation.everos.state import SESSION, Call, Session, ask
from memtrace_otel.instrumentation.everos.values import Space, entry_ref, ids_text, space_of, state_ref, value
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.semconv import Action, OpKind, RefKind, Role


@dataclass(slots=True)
class Attempt:
    """One attempt of a strategy: its error ('' without one), and whether the attempt is the last."""

    error: str = ""
    final: bool = False


_ATTEMPT: ContextVar[Attempt | None] = ContextVar("memtrace_everos_attempt", default=None)


def run_attempt(call: Call) -> Step:
    """`Runner._run_one_attempt`: EverOS catches the error of a strategy, tries again and gives up without an error."""
    arguments = call.arguments()
    event, attempt = arguments.get("event"), Attempt()
    space = space_of(event)
    session = Session(space, _scope(call, space, event), event)
    call.carry(SESSION, session)
    call.carry(_ATTEMPT, attempt)
    yield
    if not attempt.error:
        return
    carrier = {"traceparent": str(arguments.get("traceparent") or "")}
    operation = call.open(
        None,
        OpKind.OTHER,
        scope=session.scope,
        purpose=str(value(arguments.get("meta"), "name") or ""),
        parent=propagate.extract(carrier),
    )
    number = int(arguments.get("attempt") or 0) + 1
    event_name = semconv.DEAD_LETTER_EVENT if attempt.final else semconv.RETRY_EVENT
    operation.span.add_event(event_name, {semconv.RETRY_ATTEMPT: number})
    failed = attempt.error.partition(":")[0]
    operation.set(semconv.ERROR_TYPE, failed)
    operation.span.set_status(Status(StatusCode.ERROR, f"{event_name}: {failed}"))


def mark_failed(call: Call) -> Step:
    """`RunRecordStore.mark_failed`: another attempt follows."""
    yield from _end_attempt(call, final=False)


def mark_dead_letter(call: Call) -> Step:
    """`RunRecordStore.mark_dead_letter`: the last attempt failed."""
    yield from _end_attempt(call, final=True)


def _end_attempt(call: Call, *, final: bool) -> Step:
    attempt = _ATTEMPT.get()
    if attempt is not None:
        attempt.error, attempt.final = str(call.arguments().get("error") or "Error"), final
    yield


def _scope(call: Call, space: Space, event: Any) -> str:
    """Scope of an event: of its owner, else of the session of its memcell."""
    owner, agent = value(event, "owner_id"), value(event, "agent_id")
    if owner or agent:
        return space.owner(owner or agent, "user" if owner else "agent")
    turns = value(value(event, "memcell"), "items") or ()
    return call.patches.scope_of_session(space, str(value(event, "session_id") or ""), turns)


def choose_cluster(call: Call) -> Step:
    """`cluster_by_geometry`, `cluster_by_llm`: the new member and the owner's clusters in, the decision out.

    Only ids and members of the clusters are read, because clusters hold numpy arrays.
    """
    session = SESSION.get()
    if session is None:
        return
    arguments = call.arguments()
    new = arguments.get("new_cluster")
    existing = cast(Sequence[Any], arguments.get("existing") or arguments.get("existing_clusters") or ())
    if new is None:
        return
    operation = call.open(None, OpKind.CONSOLIDATE, scope=session.scope, purpose="clustering")
    ask(call, "clustering")
    preview = "\n".join(new.preview).strip()
    members = [operation.read(entry_ref(member), content=preview) for member in new.members]
    considered = {
        cluster.id: operation.read(state_ref(cluster.id), role=Role.CANDIDATE, content=ids_text(cluster.members))
        for cluster in existing
    }
    merged = yield
    chosen = new.id if merged is None else merged.id
    text = f"{', '.join(new.members)} -> {chosen}"
    fed_by = [*members, *([considered[chosen]] if chosen in considered else [])]
    action = Action.ADD if merged is None else Action.UPDATE
    ref = variable_ref(RefKind.FACT, text)
    operation.wrote(ref, action=action, content=text, sources=fed_by)
    session.learn(f"cluster {chosen}", ref, operation)


def upsert_cluster(call: Call) -> Step:
    """`upsert_with_members`: a new version of a cluster with its members."""
    arguments = call.arguments()
    cluster, session = arguments.get("algo_cluster"), SESSION.get()
    if cluster is None:
        return
    space = space_of(arguments)
    scope = space.owner(arguments.get("owner_id"), str(arguments.get("owner_type") or ""))
    ref, members = state_ref(cluster.id), list(cluster.members)
    operation = call.open(None, OpKind.UPDATE, scope=scope, purpose="upsert_cluster")
    known = session.known.get(f"cluster {cluster.id}") if session is not None else None
    if known is not None:
        known.read_by(operation)
    if len(members) > 1:
        operation.read(ref, role=Role.PREVIOUS)
    if members:
        operation.read(entry_ref(members[-1]))
    yield
    operation.wrote(ref, action=Action.UPDATE if len(members) > 1 else Action.ADD, content=ids_text(members))
