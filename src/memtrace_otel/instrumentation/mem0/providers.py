"""The other providers behind a Memory: embedder, ranking, reranker, history table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from opentelemetry import trace

from memtrace_otel import semconv
from memtrace_otel.capture import variable_ref
from memtrace_otel.instrumentation.mem0.calls import Call
from memtrace_otel.instrumentation.mem0.session import SESSION, Known, provider_session
from memtrace_otel.instrumentation.mem0.stores import records
from memtrace_otel.instrumentation.mem0.variables import memory_ref, model_of
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.semconv import OpKind, RefKind, Role


def embed(call: Call) -> Step:
    """One or several texts embedded; recorded when they are variables of ours (entity names are not)."""
    session = provider_session(call, "embedding_model")
    if session is None:
        return
    arguments = call.arguments()
    given = arguments.get("texts", arguments.get("text"))
    texts = cast(list[object], given) if isinstance(given, list) else [given]
    embedded = [known for text in texts for known in session.embeds(text)]
    if not embedded and session.turns and arguments.get("memory_action") == "search":
        embedded = [Known(turn.ref, turn.content, Role.MESSAGE, "") for turn in session.turns]
    if not embedded:
        return
    operation = call.open(None, OpKind.INDEX, scope=session.scope, purpose="embed", attributes=model_of(call.instance))
    for known in embedded:
        known.read_by(operation)
    yield


def score_and_rank(call: Call) -> Step:
    """`score_and_rank` (2.x): which scorers took part depends on what is installed and what the store can do."""
    session = SESSION.get()
    if session is None:
        return
    arguments = call.arguments()
    optional = (("bm25", "bm25_scores"), ("entity", "entity_boosts"))
    scorers = ["semantic", *(name for name, argument in optional if arguments.get(argument))]
    session.operation.set(semconv.RETRIEVAL_SCORERS, scorers)
    yield


def rerank(call: Call) -> Step:
    """The hits of a search in a new order: candidates as they came, hits as they are returned."""
    session = provider_session(call, "reranker")
    if session is None:
        return
    arguments = call.arguments()
    operation = call.open(None, OpKind.RERANK, scope=session.scope, purpose="rerank")
    query = arguments.get("query")
    operation.read(variable_ref(RefKind.QUERY, query), role=Role.QUERY, content=query)
    session.read_all(operation, records(session, arguments.get("documents")), Role.CANDIDATE)
    reordered = yield
    session.read_all(operation, records(session, reordered), Role.HIT)


def add_history(call: Call) -> Step:
    """Rows of the history table: an event on the span of the write they belong to."""
    session = provider_session(call, "db")
    if session is None:
        return
    arguments = call.arguments()
    rows = cast("list[Mapping[str, Any]]", arguments.get("records") or [arguments])
    yield
    attributes = {
        semconv.OUTPUTS: [memory_ref(row.get("memory_id")) for row in rows],
        semconv.OUTPUTS_ACTIONS: [str(row.get("event")) for row in rows],
    }
    trace.get_current_span().add_event(semconv.HISTORY_EVENT, attributes)
