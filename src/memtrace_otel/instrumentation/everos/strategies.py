"""The background strategies: each run is a session of its own, and one that fails is seen."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from opentelemetry import propagate
from opentelemetry.trace import Status, StatusCode

from memtrace_otel import semconv
from memtrace_otel.instrumentation.everos.calls import Call
from memtrace_otel.instrumentation.everos.session import SESSION, Session
from memtrace_otel.instrumentation.everos.variables import Space, space_of, value
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.semconv import OpKind


@dataclass(slots=True)
class Attempt:
    """One attempt of a strategy; `error` is what ended it, `final` whether there is no other one."""

    error: str = ""
    final: bool = False


_ATTEMPT: ContextVar[Attempt | None] = ContextVar("memtrace_everos_attempt", default=None)


def run_attempt(call: Call) -> Step:
    """`Runner._run_one_attempt`: EverOS catches what a strategy raises, tries again and gives up in silence."""
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
    """`RunRecordStore.mark_failed`: there will be another attempt."""
    yield from _end_attempt(call, final=False)


def mark_dead_letter(call: Call) -> Step:
    """`RunRecordStore.mark_dead_letter`: the strategy has failed for good."""
    yield from _end_attempt(call, final=True)


def _end_attempt(call: Call, *, final: bool) -> Step:
    attempt = _ATTEMPT.get()
    if attempt is not None:
        attempt.error, attempt.final = str(call.arguments().get("error") or "Error"), final
    yield


def _scope(call: Call, space: Space, event: Any) -> str:
    """Scope of whom an event is about; one that names no owner is about the session of its memcell."""
    owner, agent = value(event, "owner_id"), value(event, "agent_id")
    if owner or agent:
        return space.owner(owner or agent, "user" if owner else "agent")
    turns = value(value(event, "memcell"), "items") or ()
    return call.patches.scope_of_session(space, str(value(event, "session_id") or ""), turns)
