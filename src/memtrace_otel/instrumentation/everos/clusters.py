"""Clustering: to which cluster an episode or a case goes, and the cluster's new version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from memtrace_otel.capture import variable_ref
from memtrace_otel.instrumentation.everos.calls import Call
from memtrace_otel.instrumentation.everos.session import SESSION, ask
from memtrace_otel.instrumentation.everos.variables import entry_ref, ids_text, space_of, state_ref
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.semconv import Action, OpKind, RefKind, Role


def choose_cluster(call: Call) -> Step:
    """`cluster_by_geometry`, `cluster_by_llm`: the new member and the owner's clusters in, the decision out.

    The clusters carry numpy arrays: only their ids and members are looked at.
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
    """`upsert_with_members`: a cluster with its members, as a new version of the one before."""
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
